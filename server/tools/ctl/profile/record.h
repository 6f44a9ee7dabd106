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
  std::vector<std::uint64_t> sessions;  // Ids of the node's clients, in the same order.
};

struct RecordOptions {
  std::string socket;
  std::string device;  // May be empty if the server has a single device.
  // If 0, the whole device is recorded; otherwise this client, on its device.
  std::uint64_t client = 0;
  std::chrono::duration<double> time{10};
};

// Records a device for the given time and returns it with its clients. Omits idle clients;
// kNotReady if the named client was idle. If the server rejects a request, returns the server's
// Status. Blocks.
Result<RecordedDevice> RecordDevice(const RecordOptions& options);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_PROFILE_RECORD_H_
