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
    const auto found = std::ranges::find(sleepers_, futex, &Sleepers::futex);
    if (found == sleepers_.end()) {
      sleepers_.push_back({.futex = futex, .left = count, .asked_again = false});
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
                  [this]() GPUSHARED_REQUIRES(mutex_) { return is_over_ || !sleepers_.empty(); });
    if (is_over_) return;
    Sleepers& sleepers = sleepers_.front();
    const auto* const futex = sleepers.futex;
    const std::uint32_t batch = std::min(sleepers.left, kBatch);
    sleepers.left -= batch;
    sleepers.asked_again = false;
    lock.Unlock();
    const bool are_more = ipc::FutexWake(futex, batch) == batch;
    lock.Lock();
    // The entry is still the first one, because others are only appended.
    const Sleepers rest = sleepers_.front();
    sleepers_.pop_front();
    // More threads may have fallen asleep since the batch; Wake was then called for them.
    if (rest.left > 0 && (are_more || rest.asked_again)) sleepers_.push_back(rest);
  }
}

}  // namespace gpushared::server
