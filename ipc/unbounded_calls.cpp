// SPDX-License-Identifier: Apache-2.0
#include "ipc/unbounded_calls.h"

#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
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
  struct User {
    std::deque<std::function<void()>> waiting;
    std::size_t running = 0;
  };

  Shared(std::size_t most, std::size_t most_of_user)
      : threads_max(most), threads_of_user_max(most_of_user) {}

  void Run() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      const bool has_call =
          changed.wait_for(lock, kIdleMax, [this] { return Ready() != 0 || is_over; });
      --idle;
      if (!has_call || Ready() == 0) break;
      MakeNext(lock);
    }
    --threads;
    changed.notify_all();
  }

  bool MayBegin(const User& user) const {
    return !user.waiting.empty() && user.running < threads_of_user_max;
  }

  // Calls that may begin now.
  std::size_t Ready() const {
    std::size_t ready = 0;
    for (const auto& [uid, user] : users) {
      ready += std::min(user.waiting.size(), threads_of_user_max - user.running);
    }
    return ready;
  }

  void MakeNext(std::unique_lock<std::mutex>& lock) {
    const auto next =
        std::ranges::find_if(users, [this](const auto& each) { return MayBegin(each.second); });
    User& user = next->second;  // Stays while it has a call.
    std::function<void()> call = std::move(user.waiting.front());
    user.waiting.pop_front();
    ++user.running;
    lock.unlock();
    call();
    call = nullptr;
    lock.lock();
    --pending;
    if (--user.running == 0 && user.waiting.empty()) users.erase(next);
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

  const std::size_t threads_max, threads_of_user_max;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::uint32_t, User> users;  // Those with a call; by uid.
  std::size_t threads = 0;
  std::size_t idle = 0;     // Threads that wait for a call.
  std::size_t pending = 0;  // Calls that have not returned.
  bool is_over = false;
};

UnboundedCalls::UnboundedCalls(std::size_t threads_max, std::size_t threads_of_user_max)
    : shared_(std::make_shared<Shared>(threads_max, threads_of_user_max)) {}

UnboundedCalls::~UnboundedCalls() {
  const std::lock_guard lock(shared_->mutex);
  shared_->is_over = true;
  shared_->changed.notify_all();
}

void UnboundedCalls::Add(std::uint32_t uid, std::function<void()> call) {
  const std::lock_guard lock(shared_->mutex);
  shared_->users[uid].waiting.push_back(std::move(call));
  ++shared_->pending;
  if (shared_->idle < shared_->Ready() && shared_->threads < shared_->threads_max) {
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
  const Result<PeerIdentity> peer = PeerOf(socket.get());
  Post([socket = std::move(socket)]() mutable { socket.Reset(); }, peer.ok() ? peer->uid : 0);
}

}  // namespace gpushared::ipc
