// SPDX-License-Identifier: Apache-2.0
// Measures host steal: time for which the machine kept the device from running its work.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_HOST_STEAL_H_
#define GPUSHARED_SERVER_DEVICE_CPU_HOST_STEAL_H_

#include <time.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "gpushared/mutex.h"

#include "server/device/device.h"

namespace gpushared::device {

// Usual scheduling latency on a machine with enough cores. Only the excess is a delay.
inline constexpr std::chrono::microseconds kUsuallyLate{200};

// Divides the time in which an executor thread has work into running, waiting and delayed time. The
// caller reads the clocks.
//
// Thread-compatible.
class ExecutorTimes {
 public:
  struct Reading {
    DeviceClock::time_point at;
    std::chrono::nanoseconds ran{};  // CPU time of the thread so far.
  };
  struct Totals {
    std::chrono::nanoseconds busy{};  // Time with work: running, waiting voluntarily, or delayed.
    std::chrono::nanoseconds delayed{};  // Time with work but without a core.
  };

  // Initially the thread has work.
  explicit ExecutorTimes(const Reading& now) : last_(now) {}

  // Records that the thread starts or continues its work.
  void Run(const Reading& now);
  // Records that the thread has no work.
  void Idle(const Reading& now);
  // Records that the thread's work sleeps until `until`.
  void Wait(DeviceClock::time_point until, const Reading& now);

  const Totals& UpTo(const Reading& now);

 private:
  enum class State : std::uint8_t { kRunning, kIdle, kWaiting };

  void Enter(State state, const Reading& now);

  State state_ = State::kRunning;
  DeviceClock::time_point late_from_;  // Valid while the work sleeps.
  Reading last_;
  // Elapsed time in kRunning minus CPU time, as far as not yet added to the totals. Negative after
  // a CPU clock that advances in ticks has caught up.
  std::chrono::nanoseconds missing_{};
  Totals totals_;
};

// ExecutorTimes with the clocks of the calling thread. One thread makes all calls except Totals.
class ExecutorClock {
 public:
  // Must be called first.
  void Begin();

  // Each call reads two clocks, or none if the state is unchanged.
  void Run();
  void Idle();
  bool is_idle() const { return is_idle_; }

  // Sleeps on behalf of the running work.
  void Sleep(std::chrono::nanoseconds time);
  // Runs a function that may block for any time. Its duration is recorded as voluntary waiting of
  // the running work, not as a delay by the machine.
  void Block(const std::function<void()>& what);

  // May be called by any thread.
  ExecutorTimes::Totals Totals();

 private:
  void Wait(DeviceClock::duration at_most, const std::function<void()>& what);
  ExecutorTimes::Reading Read() const GPUSHARED_REQUIRES(mutex_);

  bool is_idle_ = false;  // Accessed only by the measured thread.
  Mutex mutex_;
  clockid_t clock_ GPUSHARED_GUARDED_BY(mutex_){};
  std::optional<ExecutorTimes> times_ GPUSHARED_GUARDED_BY(mutex_);
};

// Combines the threads' times: the device is delayed by the fraction of their working time in which
// the threads had no core.
//
// Thread-compatible.
class HostSteal {
 public:
  // Updates the result. `threads` must always be the totals of the same threads.
  void Update(std::span<const ExecutorTimes::Totals> threads);

  std::chrono::nanoseconds total() const { return total_; }

 private:
  std::vector<ExecutorTimes::Totals> before_;
  std::chrono::nanoseconds total_{};
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_HOST_STEAL_H_
