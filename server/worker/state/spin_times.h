// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_SPIN_TIMES_H_
#define GPUSHARED_SERVER_WORKER_STATE_SPIN_TIMES_H_

#include <chrono>

#include "gpushared/scheduling_class.h"

#include "ipc/doorbell.h"
#include "server/device/device.h"

namespace gpushared::server {

// Times for which threads poll before they sleep.
struct SpinTimes {
  // About the cost of waking a thread; 0 where spinning would take a core that executes kernels.
  std::chrono::nanoseconds budget{0};
  // The machine has enough cores for threads to spin for milliseconds, which is worthwhile because
  // waking the device thread and its client cost a null launch 28 µs at p50 and more than 400 µs at
  // p99 on the 16 cores of an H100 virtual machine.
  bool has_spare_cores = false;

  // Returns the values for this machine and its device.
  static SpinTimes For(const device::DeviceInfo& info) {
    constexpr unsigned kSpareFrom = 8;
    const unsigned cores = ipc::UsableCores();
    if (!info.spinning_pays || cores <= 1) return {};
    return {.budget = std::chrono::microseconds(cores >= 4 ? 50 : 20),
            .has_spare_cores = cores >= kSpareFrom};
  }

  // Spin time of an idle device thread. `polls`: the device has work and reports its end only when
  // polled. `is_high_near`: a command of the high class is on the device or, with cores to spare,
  // such a client is connected.
  std::chrono::nanoseconds OfDeviceThread(bool polls, bool is_high_near) const {
    if (polls || has_spare_cores) return is_high_near ? kLongest * budget : kLong * budget;
    return is_high_near ? kHighFactor * budget : budget;
  }
  // Spin time of a client that waits for its commands. The driver's own waits also spin on a
  // machine that has more cores than contexts.
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
