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

// Wakes those threads of clients that ipc::CompletionDoorbell left asleep, on a thread of its own:
// in small batches and in turns over clients, so that no crowd keeps another client's waiting.
//
// An address is only handed to the kernel, which looks whether it is mapped. So a client may leave
// while its threads are woken, and nobody waits for that.
//
// Thread-safe.
class WaiterWakes {
 public:
  // The kernel holds a lock for so long that other wakes may meet: about 30 us.
  static constexpr std::uint32_t kBatch = 32;

  WaiterWakes();
  // Leaves asleep who is not woken yet.
  ~WaiterWakes();
  WaiterWakes(const WaiterWakes&) = delete;
  WaiterWakes& operator=(const WaiterWakes&) = delete;

  // Wakes up to `count` sleepers on `futex`; where it does so already, in all as many as the larger
  // of both.
  void Wake(const std::atomic<std::uint32_t>* futex, std::uint32_t count);

 private:
  struct Crowd {
    const std::atomic<std::uint32_t>* futex = nullptr;
    std::uint32_t left = 0;
    bool asked_again = false;  // Since its last batch began.
  };
  void Run();

  Mutex mutex_;  // Not held over the calls that wake.
  std::condition_variable changed_;
  std::deque<Crowd> crowds_ GPUSHARED_GUARDED_BY(mutex_);  // In turns; each futex once.
  bool is_over_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_WAITER_WAKES_H_
