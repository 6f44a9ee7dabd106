// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_DEVICE_SPEED_H_
#define GPUSHARED_SCHEDULER_SIM_DEVICE_SPEED_H_

#include <vector>

#include "scheduler/sim/profile.h"

namespace gpushared::simulation {

// Change of a device's speed while a profile was taken, as kernel times relative to the kernel's
// mean.
//
// A core of a virtual machine runs at half its speed, for seconds at a time, while another machine
// uses the sibling hyperthread. Differences between launches of a kernel are not a change of speed,
// because they average out within a twentieth of a recording.
struct DeviceSpeed {
  // Values of the fastest and the slowest twentieth, without the most extreme one at either end.
  // Both are 1 if too few kernels were measured.
  double fast = 1, slow = 1;
  // For each step of all requests in order, the value of the twentieth that contains it. Empty if
  // too few kernels were measured.
  std::vector<double> of_steps;

  bool has_changed() const;
};

DeviceSpeed GetDeviceSpeed(const Profile& profile);

// Returns the profile as if the device had had this speed all the time. The client's own time is
// unchanged.
Profile AtSpeed(Profile profile, const DeviceSpeed& speed, double wanted);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_DEVICE_SPEED_H_
