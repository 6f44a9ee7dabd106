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

// Thread pool for blocking calls whose duration a client controls and which may never return, such
// as closing a socket in which the client left descriptors, or releasing memory that it is writing
// to.
//
// Each call runs on a separate thread, up to a total limit and a limit per user; further calls are
// queued. Idle threads end after a while. The destructor detaches calls that are still running, so
// a call must not refer to objects that may be destroyed before it returns.
//
// Thread-safe.
class UnboundedCalls {
 public:
  explicit UnboundedCalls(std::size_t threads_max) : UnboundedCalls(threads_max, threads_max) {}
  UnboundedCalls(std::size_t threads_max, std::size_t threads_of_user_max);
  ~UnboundedCalls();
  UnboundedCalls(const UnboundedCalls&) = delete;
  UnboundedCalls& operator=(const UnboundedCalls&) = delete;

  // Runs `call` on a thread of the pool. `uid` is the user who controls its duration.
  template <typename Call>
  void Post(Call call, std::uint32_t uid = 0) {
    // std::function requires a copyable target.
    auto shared = std::make_shared<Call>(std::move(call));
    Add(uid, [shared = std::move(shared)] { (*shared)(); });
  }

  // Closes the socket of a client, on this thread unless the client left descriptors in the socket.
  // In that case a call closes the socket, and is charged to the peer's user. In either case the
  // peer observes the end of the connection at once.
  void CloseSocket(UniqueFd socket);

  // Returns the number of calls that have not returned.
  std::size_t pending() const;

 private:
  struct Shared;
  void Add(std::uint32_t uid, std::function<void()> call);

  const std::shared_ptr<Shared> shared_;
};

// Socket of a client; CloseSocket closes it. `calls` must outlive this object.
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
  // Returns the socket without closing it, for a caller that hands it to another process.
  UniqueFd Release() { return std::move(socket_); }

 private:
  UniqueFd socket_;
  UnboundedCalls* calls_;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_UNBOUNDED_CALLS_H_
