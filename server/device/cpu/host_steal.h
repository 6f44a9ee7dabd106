// SPDX-License-Identifier: Apache-2.0
// For how long the machine kept the device from running what it had.

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

// What comes later than it should is late by what is more than this: so far it is the way of a
// machine that has a core for everybody.
inline constexpr std::chrono::microseconds kUsuallyLate{200};

// What an executor thread did with the time for which it had work. Is told the time.
//
// Thread-compatible.
class ExecutorTimes {
 public:
  struct Reading {
    DeviceClock::time_point at;
    std::chrono::nanoseconds ran{};  // Processor time of the thread until then.
  };
  struct Totals {
    std::chrono::nanoseconds busy{};     // With work: running, waiting by its wish, or delayed.
    std::chrono::nanoseconds delayed{};  // Time without a core.
  };

  // For a thread that has work.
  explicit ExecutorTimes(const Reading& now) : last_(now) {}

  // It has work, which goes on.
  void Run(const Reading& now);
  // It has none.
  void Idle(const Reading& now);
  // Its work waits for something until `until`.
  void Wait(DeviceClock::time_point until, const Reading& now);

  const Totals& UpTo(const Reading& now);

 private:
  enum class State : std::uint8_t { kRunning, kIdle, kWaiting };

  void Enter(State state, const Reading& now);

  State state_ = State::kRunning;
  DeviceClock::time_point late_from_;  // While it waits.
  Reading last_;
  // What processor time is behind, as far as it is not in the totals. Negative after a clock that
  // counts in ticks was behind for a while.
  std::chrono::nanoseconds missing_{};
  Totals totals_;
};

// The same by the clocks of a thread, which calls all but Totals.
class ExecutorClock {
 public:
  // First, and before all else.
  void Begin();

  // Each costs two readings, and nothing where it is so already.
  void Run();
  void Idle();
  bool is_idle() const { return is_idle_; }

  // Sleeps for the running work.
  void Sleep(std::chrono::nanoseconds time);
  // Runs what may wait for as long as it likes: the doing of the running work, not of the machine.
  void Block(const std::function<void()>& what);

  // Any thread.
  ExecutorTimes::Totals Totals();

 private:
  void Wait(DeviceClock::duration at_most, const std::function<void()>& what);
  ExecutorTimes::Reading Read() const GPUSHARED_REQUIRES(mutex_);

  bool is_idle_ = false;  // The thread's own.
  Mutex mutex_;
  clockid_t clock_ GPUSHARED_GUARDED_BY(mutex_){};
  std::optional<ExecutorTimes> times_ GPUSHARED_GUARDED_BY(mutex_);
};

// Puts the threads together: where they were kept from a part of what they had to do, the device
// was, too, for that part of the time.
//
// Thread-compatible.
class HostSteal {
 public:
  // All totals so far, always of the same threads.
  void Look(std::span<const ExecutorTimes::Totals> threads);

  std::chrono::nanoseconds total() const { return total_; }

 private:
  std::vector<ExecutorTimes::Totals> before_;
  std::chrono::nanoseconds total_{};
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_HOST_STEAL_H_
