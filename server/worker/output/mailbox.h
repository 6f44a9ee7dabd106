// SPDX-License-Identifier: Apache-2.0
// Message queues between the threads of a worker.

#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_MAILBOX_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_MAILBOX_H_

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"

namespace gpushared::server {

// Messages for one thread, in the order in which they were posted. Posting never waits for the
// receiver. The queue is bounded, because each sender may have only a bounded number of requests
// open.
//
// Thread-safe; only the receiving thread may call TakeAll.
template <typename Message>
class Mailbox {
 public:
  // `wake` notifies the receiver. It is called on the posting thread when a message enters an empty
  // mailbox.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Post(Message message) {
    bool was_empty = false;
    {
      const MutexLock lock(mutex_);
      was_empty = messages_.empty();
      messages_.push_back(std::move(message));
      has_mail_.store(true, std::memory_order_release);
    }
    if (was_empty) wake_();
  }

  // Lock-free check for a receiver that polls frequently.
  bool has_mail() const { return has_mail_.load(std::memory_order_acquire); }

  // Moves all messages into `out`, which must be empty.
  void TakeAll(std::vector<Message>& out) {
    const MutexLock lock(mutex_);
    out.swap(messages_);
    has_mail_.store(false, std::memory_order_relaxed);
  }

 private:
  const std::function<void()> wake_;
  Mutex mutex_;
  std::vector<Message> messages_ GPUSHARED_GUARDED_BY(mutex_);
  std::atomic<bool> has_mail_{false};
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_MAILBOX_H_
