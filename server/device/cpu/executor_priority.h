// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRIORITY_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRIORITY_H_

#include <sys/types.h>

#include <atomic>
#include <functional>

namespace gpushared::device {

struct QueuedWork;

// Raises a thread above ordinary threads of the machine, or demotes it to their level. Thread-safe.
using PrioritizeFunction = std::function<void(pid_t thread, bool ahead)>;

// Host scheduling priority of an executor thread: raised or demoted. A thread that takes work below
// the highest recent priority is demoted, because otherwise the clients with the urgent work would
// have one core less for their own threads. The thread is promoted when it has no work, when more
// urgent work waits for a thread, or when its work is to end.
//
// Owned by one thread. Other threads may promote it at any time.
class ExecutorPriority {
 public:
  // `prioritize` may be empty and must outlive this object.
  explicit ExecutorPriority(const PrioritizeFunction& prioritize) : prioritize_(prioritize) {}
  ExecutorPriority(const ExecutorPriority&) = delete;
  ExecutorPriority& operator=(const ExecutorPriority&) = delete;

  // ---- called by the thread itself

  // Must be called first.
  void Begin();
  void Demote();

  // ---- any thread, after Begin

  // Raises the thread, unless it is already raised.
  void Promote();
  bool is_demoted() const { return is_demoted_; }

 private:
  friend class WorkQueue;

  // Calls `prioritize_`. If several threads do so at the same time, the last call leaves the thread
  // in the state that `is_demoted_` requests.
  void Apply(bool demoted);

  const PrioritizeFunction& prioritize_;
  pid_t thread_ = 0;
  // Sequentially consistent, as required by WorkQueue::Apply.
  std::atomic<bool> is_demoted_{false};
  const QueuedWork* running_ = nullptr;  // Guarded by the queue's mutex.
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRIORITY_H_
