// SPDX-License-Identifier: Apache-2.0
// For how long the machine kept the device from running what it had.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_HOST_DELAY_H_
#define GPUSHARED_SERVER_DEVICE_CPU_HOST_DELAY_H_

#include <time.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "server/device/device.h"

namespace gpushared::device {

// What comes later than it should by less than this is the usual way of a machine.
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
    std::chrono::nanoseconds busy{};     // With work: running, asleep by its wish, or delayed.
    std::chrono::nanoseconds delayed{};  // Of that, without a core.
  };

  // Of a thread that begins to run.
  explicit ExecutorTimes(const Reading& now) : last_(now) {}

  // It has work, and should have had it since `due`, or since it waits if that is later.
  void Run(DeviceClock::time_point due, const Reading& now);
  // Its work sleeps until `due`.
  void Sleep(DeviceClock::time_point due, const Reading& now);
  // Its work goes on.
  void Wake(const Reading& now);
  void Wait(const Reading& now);

  const Totals& UpTo(const Reading& now);

 private:
  enum class State : std::uint8_t { kWaiting, kRunning, kSleeping };

  void Enter(State state, const Reading& now);

  State state_ = State::kRunning;
  DeviceClock::time_point due_;  // While it sleeps.
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

  void Run(DeviceClock::time_point due);
  void Wait();
  // Sleeps for the running work.
  void Sleep(std::chrono::nanoseconds time);

  // Any thread.
  ExecutorTimes::Totals Totals();

 private:
  ExecutorTimes::Reading Read() const;

  std::mutex mutex_;  // Protects everything below.
  clockid_t clock_{};
  std::optional<ExecutorTimes> times_;
};

// Puts the threads together: where they were kept from a part of what they had to do, the device
// was, too, for that part of the time.
//
// Thread-compatible.
class HostDelay {
 public:
  // `threads`: all totals so far, always of the same threads. Everything that the device had has
  // ended at `ended`, if that is set, and nobody has taken note.
  void Look(std::span<const ExecutorTimes::Totals> threads,
            std::optional<DeviceClock::time_point> ended, DeviceClock::time_point now);

  DeviceClock::time_point looked() const { return looked_; }
  std::chrono::nanoseconds total() const { return total_; }

 private:
  std::vector<ExecutorTimes::Totals> before_;
  DeviceClock::time_point looked_;
  std::chrono::nanoseconds total_{};
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_HOST_DELAY_H_
