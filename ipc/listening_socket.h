// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_LISTENING_SOCKET_H_
#define GPUSHARED_IPC_LISTENING_SOCKET_H_

#include <sys/types.h>

#include <optional>
#include <string>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "ipc/unique_fd.h"

namespace gpushared::ipc {

// Listening socket that this process received when it was started.
struct InheritedSocket {
  UniqueFd fd;  // Close-on-exec, non-blocking.
  std::string path;
  // Whether this process removes the socket file; if not, the process that passed the socket does.
  bool is_own = false;

  // Takes ownership of the socket. kInvalidArgument unless it is a Unix stream socket listening at
  // a path.
  static Result<InheritedSocket> Examine(UniqueFd fd);
};
struct BorrowedSocket {
  int fd = -1;
  bool is_own = false;
};

// Socket of the broker in the file system, and the proof that no other broker serves it.
//
// The proof is a lock on <path>.lock, which the kernel releases when the broker dies, however it
// dies. Therefore a socket that the new owner of the lock finds is stale, and the owner may unlink
// it. The lock file itself is never removed; otherwise two brokers could lock two different files
// with the same name.
//
// Confined to the control thread. The destructor removes the socket file, if this process owns it,
// and releases the lock.
class ListeningSocket {
 public:
  struct Options {
    std::string path;
    mode_t mode = 0660;  // Mode of the socket file.
    int backlog = 128;
  };
  // Opens a non-blocking, close-on-exec socket. kUnavailable if another server holds the lock.
  // `inherited` is a socket that already listens at the path, to be used instead of a new one.
  static Result<ListeningSocket> Open(const Options& options,
                                      std::optional<InheritedSocket> inherited = std::nullopt);

  ListeningSocket(ListeningSocket&&) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) noexcept;
  ~ListeningSocket();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }
  BorrowedSocket Borrow() const { return {.fd = fd(), .is_own = removes_file_}; }
  // Returns whether Open replaced the socket file of a server that had died.
  bool replaced_stale() const { return replaced_stale_; }

  // Accepts one connection, non-blocking and close-on-exec; no value if none is waiting.
  Result<std::optional<UniqueFd>> Accept();

  // Stops listening and removes the socket file. The lock is held until destruction.
  void Close();

 private:
  ListeningSocket() = default;

  std::string path_;
  UniqueFd lock_;
  UniqueFd socket_;
  bool removes_file_ = true;
  bool replaced_stale_ = false;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_LISTENING_SOCKET_H_
