// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_STANDING_H_
#define GPUSHARED_SERVER_DEVICE_CPU_STANDING_H_

#include <sys/types.h>

#include <atomic>
#include <functional>

namespace gpushared::device {

struct QueuedWork;

// Puts a thread ahead of the machine's ordinary ones, or back among them. Thread-safe.
using StandFunction = std::function<void(pid_t thread, bool ahead)>;

// An executor thread's standing beside the machine's other threads: ahead of them, or back among
// them. A thread is back after it took work that is less urgent than what came lately, until it
// takes other work. Else the clients with the urgent work would have a core less for their own
// threads.
//
// One thread owns it. Others may call it forward at any time.
class Standing {
 public:
  // `stand`: may be empty. Outlives it.
  explicit Standing(const StandFunction& stand) : stand_(stand) {}
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;

  // ---- the thread's own

  // First, and before all else.
  void Begin();
  void StepBack();

  // ---- any thread's, once it has begun

  // Nothing where it is ahead already.
  void StepForward();
  bool is_back() const { return is_back_; }

 private:
  friend class WorkQueue;

  // Whoever stands it last leaves it as `is_back_` says.
  void Stand(bool back);

  const StandFunction& stand_;
  pid_t thread_ = 0;
  // Sequentially consistent, as WorkQueue::Stand needs it.
  std::atomic<bool> is_back_{false};
  const QueuedWork* running_ = nullptr;  // The queue's.
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_STANDING_H_
