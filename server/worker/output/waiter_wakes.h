// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_WAITER_WAKES_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_WAITER_WAKES_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <thread>

#include "gpushared/mutex.h"

namespace gpushared::server {

// Wakes client threads that ipc::CompletionDoorbell left asleep. Uses a separate thread, with small
// batches in round-robin order over clients, so that a client with many sleeping threads does not
// delay the wake-ups of others.
//
// The futex address is only passed to the kernel, which checks whether it is mapped. A client may
// therefore leave while its threads are being woken.
//
// Thread-safe.
class WaiterWakes {
 public:
  // The kernel holds a lock for a whole batch, which may delay other wakes by about 30 us.
  static constexpr std::uint32_t kBatch = 32;

  WaiterWakes();
  // Threads not woken yet stay asleep.
  ~WaiterWakes();
  WaiterWakes(const WaiterWakes&) = delete;
  WaiterWakes& operator=(const WaiterWakes&) = delete;

  // Wakes up to `count` threads that sleep on `futex`. If a wake-up is already pending for it, the
  // larger count applies.
  void Wake(const std::atomic<std::uint32_t>* futex, std::uint32_t count);

 private:
  struct Sleepers {
    const std::atomic<std::uint32_t>* futex = nullptr;
    std::uint32_t left = 0;
    bool asked_again = false;  // Wake was called again after the last batch began.
  };
  void Run();

  Mutex mutex_;  // Not held during wake calls.
  std::condition_variable changed_;
  // Served round-robin; at most one entry per futex.
  std::deque<Sleepers> sleepers_ GPUSHARED_GUARDED_BY(mutex_);
  bool is_over_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_WAITER_WAKES_H_
