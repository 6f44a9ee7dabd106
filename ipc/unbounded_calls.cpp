// SPDX-License-Identifier: Apache-2.0
#include "ipc/unbounded_calls.h"

#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <system_error>
#include <thread>

#include "gpushared/mutex.h"

#include "ipc/unix_socket.h"

namespace gpushared::ipc {
namespace {

constexpr auto kIdleMax = std::chrono::seconds(1);

}  // namespace

// State shared with the threads; outlives UnboundedCalls if a call does not return.
struct UnboundedCalls::Shared : std::enable_shared_from_this<Shared> {
  struct User {
    std::deque<std::function<void()>> waiting;
    std::size_t running = 0;
  };

  Shared(std::size_t most, std::size_t most_of_user)
      : threads_max(most), threads_of_user_max(most_of_user) {}

  void Run() {
    MutexLock lock(mutex);
    for (;;) {
      ++idle;
      const bool has_call =
          changed.wait_for(lock.waitable(), kIdleMax,
                           [this]() GPUSHARED_REQUIRES(mutex) { return Ready() != 0 || is_over; });
      --idle;
      if (!has_call || Ready() == 0) break;
      MakeNext();
    }
    --threads;
    changed.notify_all();
  }

  bool MayBegin(const User& user) const {
    return !user.waiting.empty() && user.running < threads_of_user_max;
  }

  // Returns the number of calls that may begin now.
  std::size_t Ready() const GPUSHARED_REQUIRES(mutex) {
    std::size_t ready = 0;
    for (const auto& [uid, user] : users) {
      ready += std::min(user.waiting.size(), threads_of_user_max - user.running);
    }
    return ready;
  }

  void MakeNext() GPUSHARED_REQUIRES(mutex) {
    const auto next =
        std::ranges::find_if(users, [this](const auto& each) { return MayBegin(each.second); });
    User& user = next->second;  // The entry exists while the user has queued or running calls.
    std::function<void()> call = std::move(user.waiting.front());
    user.waiting.pop_front();
    ++user.running;
    {
      const MutexUnlock unlock(mutex);
      call();
      call = nullptr;
    }
    --pending;
    if (--user.running == 0 && user.waiting.empty()) users.erase(next);
  }

  // Starts a thread. If that fails, the calls wait until a running thread takes them.
  void StartThread() GPUSHARED_REQUIRES(mutex) {
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
  Mutex mutex;
  std::condition_variable changed;
  std::map<std::uint32_t, User> users
      GPUSHARED_GUARDED_BY(mutex);  // Users with queued or running calls, by uid.
  std::size_t threads GPUSHARED_GUARDED_BY(mutex) = 0;
  std::size_t idle GPUSHARED_GUARDED_BY(mutex) = 0;     // Threads waiting for a call.
  std::size_t pending GPUSHARED_GUARDED_BY(mutex) = 0;  // Calls that have not returned.
  bool is_over GPUSHARED_GUARDED_BY(mutex) = false;
};

UnboundedCalls::UnboundedCalls(std::size_t threads_max, std::size_t threads_of_user_max)
    : shared_(std::make_shared<Shared>(threads_max, threads_of_user_max)) {}

UnboundedCalls::~UnboundedCalls() {
  const MutexLock lock(shared_->mutex);
  shared_->is_over = true;
  shared_->changed.notify_all();
}

void UnboundedCalls::Add(std::uint32_t uid, std::function<void()> call) {
  const MutexLock lock(shared_->mutex);
  shared_->users[uid].waiting.push_back(std::move(call));
  ++shared_->pending;
  if (shared_->idle < shared_->Ready() && shared_->threads < shared_->threads_max) {
    shared_->StartThread();
  }
  shared_->changed.notify_one();
}

std::size_t UnboundedCalls::pending() const {
  const MutexLock lock(shared_->mutex);
  return shared_->pending;
}

void UnboundedCalls::CloseSocket(UniqueFd socket) {
  // Nothing can arrive after the shutdown, so the result of DropBytes is final.
  ::shutdown(socket.get(), SHUT_RDWR);
  if (DropBytes(socket.get())) return;
  const Result<PeerIdentity> peer = GetPeer(socket.get());
  Post([socket = std::move(socket)]() mutable { socket.Reset(); }, peer.ok() ? peer->uid : 0);
}

}  // namespace gpushared::ipc
