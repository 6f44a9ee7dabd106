// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_ROSTER_SOCKET_H_
#define GPUSHARED_IPC_ROSTER_SOCKET_H_

#include <optional>
#include <string>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"
#include "ipc/unix_socket.h"

namespace gpushared::ipc {

// The socket at which a broker finds a worker whose own broker has died: a file named by the
// worker's process number, in a folder that only the server's user may enter.
//
// Confined to the worker's control thread. The destructor removes the file.
class RosterSocket {
 public:
  // Binds and listens; non-blocking, close-on-exec. `folder` exists. kInvalidArgument: its path is
  // too long for a socket's address.
  static Result<RosterSocket> Open(const std::string& folder);

  RosterSocket(RosterSocket&&) noexcept;
  RosterSocket& operator=(RosterSocket&&) = delete;
  ~RosterSocket();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

  // The channel to a broker, non-blocking and close-on-exec; empty when none waits.
  // kPermissionDenied: somebody of another user knocked, and is gone.
  Result<std::optional<UniqueFd>> Accept();

 private:
  RosterSocket() = default;

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
Result<FoundWorker> FindWorker(const std::string& folder, pid_t pid);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_ROSTER_SOCKET_H_
