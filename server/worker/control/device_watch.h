// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_DEVICE_WATCH_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_DEVICE_WATCH_H_

#include <chrono>
#include <cstdint>

namespace gpushared::server {

// Watchdog that detects a device thread blocked in a device call. The thread cannot detect this
// itself, and while it is blocked no client's work can start, finish or be preempted.
//
// A driver may make a call wait for a running kernel, however long that takes. Therefore the end of
// those kernels that can be ended without the driver is requested first. If that does not help, the
// device is considered lost.
//
// Time is counted in intervals between polls instead of being read from a clock, so that neither a
// suspended machine nor a process stopped by a debugger is mistaken for a lost device.
//
// Thread-compatible.
class DeviceWatch {
 public:
  struct Limits {
    std::chrono::nanoseconds interval;  // Time between two polls.
    // Maximum duration of one loop iteration, after which the end of kernels is requested.
    std::chrono::nanoseconds turn_max;
    std::chrono::nanoseconds leaves_within;  // Maximum time from that request to the kernels' end.
  };
  enum class Verdict : std::uint8_t { kFine, kEndKernels, kLost };

  // `turn_max` must exceed the time of calls that may legitimately wait for a kernel. The interval
  // is a tenth of `turn_max`, but at least 1 ms and at most 1 s.
  static Limits LimitsFor(std::chrono::nanoseconds turn_max,
                          std::chrono::nanoseconds leaves_within);

  explicit DeviceWatch(const Limits& limits) : limits_(limits) {}

  // Called once per interval, with DeviceThread::turn_steps. Returns kEndKernels and kLost at most
  // once per blocked iteration.
  Verdict Poll(std::uint64_t turn_steps);
  // Lower bound of the current iteration's duration at the last poll.
  std::chrono::nanoseconds blocked_for() const { return blocked_for_; }
  const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  std::uint64_t turn_steps_ = 0;  // Value at the last poll.
  std::chrono::nanoseconds blocked_for_{0};
  bool has_ended_kernels_ = false;
  bool is_lost_ = false;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_DEVICE_WATCH_H_
