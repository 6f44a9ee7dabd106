// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_REGISTRY_SOCKET_H_
#define GPUSHARED_IPC_REGISTRY_SOCKET_H_

#include <optional>
#include <string>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"

namespace gpushared::ipc {

// Socket through which a restarted broker finds a worker whose broker has died. Its file is named
// after the worker's process id, in a directory that only the user of the server may enter.
//
// Confined to the worker's control thread. The destructor removes the file.
class RegistrySocket {
 public:
  // Binds and listens; non-blocking, close-on-exec. `directory` must exist. kInvalidArgument if its
  // path is too long for a socket address.
  static Result<RegistrySocket> Open(const std::string& directory);

  RegistrySocket(RegistrySocket&&) noexcept;
  RegistrySocket& operator=(RegistrySocket&&) = delete;
  ~RegistrySocket();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

  // Accepts the channel to a broker, non-blocking and close-on-exec; no value if none is waiting.
  // kPermissionDenied if the peer belongs to another user; its connection has been closed.
  Result<std::optional<UniqueFd>> Accept();

 private:
  RegistrySocket() = default;

  std::string path_;
  UniqueFd socket_;
};

// The worker at the other end of a channel, as identified by the kernel.
struct FoundWorker {
  UniqueFd channel;  // Non-blocking, close-on-exec.
  UniqueFd pidfd;
  pid_t pid = 0;
};

// Connects to the worker whose file has this process id. kNotFound if no process listens there,
// because the worker has died. kPermissionDenied if the listener belongs to another user, or is not
// the process that the file names.
Result<FoundWorker> FindWorker(const std::string& directory, pid_t pid);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_REGISTRY_SOCKET_H_
