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

// The socket at which a broker finds a worker whose own broker has died: a file named by the
// worker's process number, in a directory that only the server's user may enter.
//
// Confined to the worker's control thread. The destructor removes the file.
class RegistrySocket {
 public:
  // Binds and listens; non-blocking, close-on-exec. `directory` exists. kInvalidArgument: its path
  // is too long for a socket's address.
  static Result<RegistrySocket> Open(const std::string& directory);

  RegistrySocket(RegistrySocket&&) noexcept;
  RegistrySocket& operator=(RegistrySocket&&) = delete;
  ~RegistrySocket();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

  // The channel to a broker, non-blocking and close-on-exec; empty when none waits.
  // kPermissionDenied: somebody of another user knocked, and is gone.
  Result<std::optional<UniqueFd>> Accept();

 private:
  RegistrySocket() = default;

  std::string path_;
  UniqueFd socket_;
};

// The other side of a channel: who the kernel says listens there.
struct FoundWorker {
  UniqueFd channel;  // Non-blocking, close-on-exec.
  UniqueFd pidfd;
  pid_t pid = 0;
};

// Connects to the worker whose file that is. kNotFound: nobody listens there, so the file is of a
// worker that died. kPermissionDenied: whoever listens there is another user, or not the process
// that the file names.
Result<FoundWorker> FindWorker(const std::string& directory, pid_t pid);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_REGISTRY_SOCKET_H_
