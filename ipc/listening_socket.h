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

// A listening socket that came with the start of this process.
struct InheritedSocket {
  UniqueFd fd;  // Close-on-exec, non-blocking.
  std::string path;
  bool is_own = false;  // Its file is ours to remove; else it is of whoever handed it over.

  // kInvalidArgument: it is no Unix stream socket that listens at a path.
  static Result<InheritedSocket> Examine(UniqueFd fd);
};
struct BorrowedSocket {
  int fd = -1;
  bool is_own = false;
};

// The broker's socket in the file system, and the proof that no other broker serves it.
//
// The proof is a lock on <path>.lock, which the kernel gives back when the broker dies however
// it dies. Whoever has the lock may remove a socket file that is there: it is stale. The lock
// file itself stays; removing it would let two brokers lock two different files of one name.
//
// Confined to the control thread. The destructor removes the socket file, if it is ours, and gives
// the lock back.
class ListeningSocket {
 public:
  struct Options {
    std::string path;
    mode_t mode = 0660;  // The socket file's mode.
    int backlog = 128;
  };
  // Non-blocking, close-on-exec. kUnavailable when another server has the lock.
  // `inherited`: a socket that listens there already, in place of a new one.
  static Result<ListeningSocket> Open(const Options& options,
                                      std::optional<InheritedSocket> inherited = std::nullopt);

  ListeningSocket(ListeningSocket&&) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) noexcept;
  ~ListeningSocket();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }
  BorrowedSocket Borrow() const { return {.fd = fd(), .is_own = removes_file_}; }
  // A socket file of an earlier server that had died was replaced.
  bool replaced_stale() const { return replaced_stale_; }

  // One connection, non-blocking and close-on-exec; empty when none waits.
  Result<std::optional<UniqueFd>> Accept();

  // Stops listening and removes the socket file; the lock stays until destruction.
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
