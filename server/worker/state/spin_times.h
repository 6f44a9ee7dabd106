// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_SPIN_TIMES_H_
#define GPUSHARED_SERVER_WORKER_STATE_SPIN_TIMES_H_

#include <chrono>

#include "gpushared/scheduling_class.h"

#include "ipc/doorbell.h"
#include "server/device/device.h"

namespace gpushared::server {

// How long threads look for news before they sleep.
struct SpinTimes {
  // About what it costs to wake a thread; 0 where spinning takes the core that executes.
  std::chrono::nanoseconds budget{0};
  // The machine can do without the cores of spinning threads, so they spin for milliseconds: on the
  // 16 cores of an H100's virtual machine, waking the device thread and its client cost a null
  // launch 28 µs at p50 and more than 400 µs at p99.
  bool has_spare_cores = false;

  // For this machine and its device.
  static SpinTimes For(const device::DeviceInfo& info) {
    constexpr unsigned kSpareFrom = 8;
    const unsigned cores = ipc::UsableCores();
    if (!info.spinning_pays || cores <= 1) return {};
    return {.budget = std::chrono::microseconds(cores >= 4 ? 50 : 20),
            .has_spare_cores = cores >= kSpareFrom};
  }

  // The device thread's, with nothing to do. `polls`: the device has work and tells of its end only
  // when asked. `is_high_near`: a command of the high class is on the device or, with cores to
  // spare, such a client is connected.
  std::chrono::nanoseconds OfDeviceThread(bool polls, bool is_high_near) const {
    if (polls || has_spare_cores) return is_high_near ? kLongest * budget : kLong * budget;
    return is_high_near ? kHighFactor * budget : budget;
  }
  // A client's that waits for its commands. The driver's own waits spin, too, where a machine has
  // more cores than contexts.
  std::chrono::nanoseconds OfClient(SchedulingClass of) const {
    if (!has_spare_cores) return budget;
    return of == SchedulingClass::kHigh ? kLongest * budget : kLong * budget;
  }

 private:
  static constexpr int kLong = 20;      // 1 ms for a budget of 50 µs.
  static constexpr int kLongest = 120;  // 6 ms.
  static constexpr int kHighFactor = 4;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_SPIN_TIMES_H_
