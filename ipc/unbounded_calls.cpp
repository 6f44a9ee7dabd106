// SPDX-License-Identifier: Apache-2.0
#include "ipc/unbounded_calls.h"

#include <pthread.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "ipc/unix_socket.h"

namespace gpushared::ipc {
namespace {

constexpr auto kIdleMax = std::chrono::seconds(1);

}  // namespace

// Outlives the object that made it, for threads in a call that does not return.
struct UnboundedCalls::Shared : std::enable_shared_from_this<Shared> {
  explicit Shared(std::size_t most) : threads_max(most) {}

  void Run() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      const bool has_call =
          changed.wait_for(lock, kIdleMax, [this] { return !waiting.empty() || is_over; });
      --idle;
      if (!has_call || waiting.empty()) break;
      std::function<void()> call = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      call();
      call = nullptr;
      lock.lock();
      --pending;
    }
    --threads;
    changed.notify_all();
  }

  // With `mutex` locked. Without a thread, the calls wait for the next one.
  void StartThread() {
    try {
      std::thread([self = shared_from_this()] {
        ::pthread_setname_np(::pthread_self(), "gpushared-end");
        self->Run();
      }).detach();
      ++threads;
    } catch (const std::system_error&) {
    }
  }

  const std::size_t threads_max;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;
  std::size_t threads = 0;
  std::size_t idle = 0;     // Threads that wait for a call.
  std::size_t pending = 0;  // Calls that have not returned.
  bool is_over = false;
};

UnboundedCalls::UnboundedCalls(std::size_t threads_max)
    : shared_(std::make_shared<Shared>(threads_max)) {}

UnboundedCalls::~UnboundedCalls() {
  const std::lock_guard lock(shared_->mutex);
  shared_->is_over = true;
  shared_->changed.notify_all();
}

void UnboundedCalls::Add(std::function<void()> call) {
  const std::lock_guard lock(shared_->mutex);
  shared_->waiting.push_back(std::move(call));
  ++shared_->pending;
  if (shared_->idle < shared_->waiting.size() && shared_->threads < shared_->threads_max) {
    shared_->StartThread();
  }
  shared_->changed.notify_one();
}

std::size_t UnboundedCalls::pending() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->pending;
}

void UnboundedCalls::CloseSocket(UniqueFd socket) {
  // From now on nothing arrives, so what is found here is all there will be.
  ::shutdown(socket.get(), SHUT_RDWR);
  if (DropBytes(socket.get())) return;
  Post([socket = std::move(socket)]() mutable { socket.Reset(); });
}

}  // namespace gpushared::ipc
