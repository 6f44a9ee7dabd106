// SPDX-License-Identifier: Apache-2.0
#include "server/worker/output/waiter_wakes.h"

#include <pthread.h>

#include <algorithm>

#include "ipc/doorbell.h"

namespace gpushared::server {

WaiterWakes::WaiterWakes() : thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "gpushared-wake");
}

WaiterWakes::~WaiterWakes() {
  {
    const MutexLock lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void WaiterWakes::Wake(const std::atomic<std::uint32_t>* futex, std::uint32_t count) {
  {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find(crowds_, futex, &Crowd::futex);
    if (found == crowds_.end()) {
      crowds_.push_back({.futex = futex, .left = count, .asked_again = false});
    } else {
      found->left = std::max(found->left, count);
      found->asked_again = true;
    }
  }
  changed_.notify_one();
}

void WaiterWakes::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(lock.waitable(),
                  [this]() GPUSHARED_REQUIRES(mutex_) { return is_over_ || !crowds_.empty(); });
    if (is_over_) return;
    Crowd& crowd = crowds_.front();
    const auto* const futex = crowd.futex;
    const std::uint32_t batch = std::min(crowd.left, kBatch);
    crowd.left -= batch;
    crowd.asked_again = false;
    lock.Unlock();
    const bool are_more = ipc::FutexWake(futex, batch) == batch;
    lock.Lock();
    // The crowd is still the first entry, because others are only appended.
    const Crowd rest = crowds_.front();
    crowds_.pop_front();
    // More threads may have fallen asleep since the batch; Wake was then called for them.
    if (rest.left > 0 && (are_more || rest.asked_again)) crowds_.push_back(rest);
  }
}

}  // namespace gpushared::server
