// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_UNBOUNDED_CALLS_H_
#define GPUSHARED_IPC_UNBOUNDED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "ipc/unique_fd.h"

namespace gpushared::ipc {

// Calls whose duration a client decides, and which may never return: closing a socket in which it
// left descriptors, returning memory that it is writing to.
//
// Each has a thread of its own, up to a limit, and up to another one for each user. Those beyond
// the limits wait for one that returns. Threads end when they have had nothing to do for a while.
// The destructor leaves those that are in a call behind, so a call refers to nothing that the
// destruction of its poster ends.
//
// Thread-safe.
class UnboundedCalls {
 public:
  explicit UnboundedCalls(std::size_t threads_max) : UnboundedCalls(threads_max, threads_max) {}
  UnboundedCalls(std::size_t threads_max, std::size_t threads_of_user_max);
  ~UnboundedCalls();
  UnboundedCalls(const UnboundedCalls&) = delete;
  UnboundedCalls& operator=(const UnboundedCalls&) = delete;

  // `uid`: of the user who decides how long the call takes.
  template <typename Call>
  void Post(Call call, std::uint32_t uid = 0) {
    // A std::function must be copyable.
    auto shared = std::make_shared<Call>(std::move(call));
    Add(uid, [shared = std::move(shared)] { (*shared)(); });
  }

  // Closes the socket of a client: here, unless the client left descriptors in it. Then it is a
  // call of the peer's user. The peer sees the end at once in any case.
  void CloseSocket(UniqueFd socket);

  // Calls that have not returned.
  std::size_t pending() const;

 private:
  struct Shared;
  void Add(std::uint32_t uid, std::function<void()> call);

  const std::shared_ptr<Shared> shared_;
};

// A client's socket that is closed by CloseSocket. `calls` outlives it.
//
// Thread-compatible.
class ClientSocket {
 public:
  ClientSocket(UniqueFd socket, UnboundedCalls& calls)
      : socket_(std::move(socket)), calls_(&calls) {}
  ~ClientSocket() { Close(); }
  ClientSocket(ClientSocket&&) = default;
  ClientSocket& operator=(ClientSocket&& other) noexcept {
    Close();
    socket_ = std::move(other.socket_);
    calls_ = other.calls_;
    return *this;
  }
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  int get() const { return socket_.get(); }
  void Close() {
    if (socket_.valid()) calls_->CloseSocket(std::move(socket_));
  }
  // For whoever closes it as it should be, or hands it to another process.
  UniqueFd Release() { return std::move(socket_); }

 private:
  UniqueFd socket_;
  UnboundedCalls* calls_;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_UNBOUNDED_CALLS_H_
