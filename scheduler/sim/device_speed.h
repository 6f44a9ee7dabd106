// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_DEVICE_SPEED_H_
#define GPUSHARED_SCHEDULER_SIM_DEVICE_SPEED_H_

#include <vector>

#include "scheduler/sim/profile.h"

namespace gpushared::simulation {

// How the speed of a device changed while a profile was taken. Figures are times of kernels as
// parts of the kernels' means.
//
// A core of a virtual machine runs at half its speed while another machine uses its twin, for
// seconds. What kernels differ by from one launch to the next is no change of speed: in a twentieth
// of a recording that evens out.
struct DeviceSpeed {
  // Of the fastest and the slowest twentieth, the extreme one at either end apart. Both are 1 where
  // too few kernels were measured.
  double fast = 1, slow = 1;
  // By step, through all requests: what the twentieth has in which it lies. Empty where too few
  // kernels were measured.
  std::vector<double> of_steps;

  bool has_changed() const;
};

DeviceSpeed GetDeviceSpeed(const Profile& profile);

// The profile as if the device had had this speed all the time. The client's own time stays.
Profile AtSpeed(Profile profile, const DeviceSpeed& speed, double wanted);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_DEVICE_SPEED_H_
