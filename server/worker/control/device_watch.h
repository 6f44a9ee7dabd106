// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_DEVICE_WATCH_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_DEVICE_WATCH_H_

#include <chrono>
#include <cstdint>

namespace gpushared::server {

// Finds a device thread that stands inside of a call of the device: it cannot find that itself, and
// while it stands nobody's work starts, ends or is stopped.
//
// A driver may make a call wait for a kernel that runs, however long that takes. So kernels that
// can be ended without the driver are told to end first. If that does not help, the device is lost.
//
// What counts is the watcher's own time: each look adds one interval, whatever a clock says, so
// neither a machine that slept nor a process that a debugger has stopped is taken for a loss.
//
// Thread-compatible.
class DeviceWatch {
 public:
  struct Limits {
    std::chrono::nanoseconds interval;       // Between two looks.
    std::chrono::nanoseconds turn_max;       // Then kernels are told to end.
    std::chrono::nanoseconds leaves_within;  // So long they may take for that.
  };
  enum class Verdict : std::uint8_t { kFine, kTellKernels, kLost };

  // `turn_max` after the calls that may rightly wait for a kernel; looks a tenth of it apart.
  static Limits LimitsFor(std::chrono::nanoseconds turn_max,
                          std::chrono::nanoseconds leaves_within);

  explicit DeviceWatch(const Limits& limits) : limits_(limits) {}

  // Once per interval, with DeviceThread::turn_steps. kTellKernels and kLost are each returned once
  // per turn that stands.
  Verdict Look(std::uint64_t turn_steps);
  // For how long at least the present turn had run by the last look.
  std::chrono::nanoseconds stood() const { return stood_; }
  const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  std::uint64_t turn_steps_ = 0;  // At the last look.
  std::chrono::nanoseconds stood_{0};
  bool has_told_ = false;
  bool is_lost_ = false;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_DEVICE_WATCH_H_
