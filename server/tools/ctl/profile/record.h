// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_PROFILE_RECORD_H_
#define GPUSHARED_SERVER_TOOLS_CTL_PROFILE_RECORD_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/sim/profile.h"

namespace gpushared::server {

struct RecordedDevice {
  simulation::Node node;
  std::vector<std::uint64_t> sessions;  // The numbers of the node's clients, in their order.
};

struct RecordOptions {
  std::string socket;
  std::string device;        // Empty: the only one there is.
  std::uint64_t client = 0;  // 0: all of the device. Else the device is this client's.
  std::chrono::duration<double> time{10};
};

// Watches a device for that time, and tells it with its clients. Clients that ran nothing are left
// out; for one that was named that is kNotReady. A rejection is the server's own. Blocks.
Result<RecordedDevice> RecordDevice(const RecordOptions& options);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_PROFILE_RECORD_H_
