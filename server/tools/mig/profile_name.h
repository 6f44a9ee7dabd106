// SPDX-License-Identifier: Apache-2.0
// Names of instances: NVML's ids, and NVIDIA's names of MIG devices.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_PROFILE_NAME_H_
#define GPUSHARED_SERVER_TOOLS_MIG_PROFILE_NAME_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

#include "server/tools/mig/layout.h"

namespace gpushared::mig {

// Number of devices by name: "1g.5gb", "1g.5gb+me", or "1c.3g.20gb" for a compute instance that
// shares its GPU instance with others.
using DeviceCounts = std::map<std::string, std::uint32_t>;

// Returns true if a board could have devices of that name.
bool IsDeviceName(std::string_view name);

// Returns instances with these devices. Compute instances of a profile share as few GPU instances
// as possible. kNotFound for a name that this board does not have; kLimitExceeded for too many.
Result<std::vector<Wanted>> InstancesFor(const Board& board, const DeviceCounts& devices);
DeviceCounts GetDevices(const Board& board, const Layout& layout);

// Parses ids and names in any order: "19,19,14,9", "1g.5gb,1g.5gb,2g.10gb,3g.20gb" or
// "2x1g.5gb,14,9".
Result<std::vector<Wanted>> ParseInstances(const Board& board, std::string_view list);
// Parses ids and names with placements, such as "19:6,2g.10gb:0".
Result<Layout> ParseLayout(const Board& board, std::string_view list);

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_PROFILE_NAME_H_
