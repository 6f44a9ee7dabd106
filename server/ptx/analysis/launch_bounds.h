// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_LAUNCH_BOUNDS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_LAUNCH_BOUNDS_H_

#include <array>
#include <cstdint>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Extents that a kernel's performance directives specify or limit, along x, y and z; an omitted
// extent is 1.
//
// Thread-compatible value.
struct LaunchBounds {
  // .maxntid and .reqntid: product of the extents. 0 if neither is specified.
  std::uint32_t threads_per_block_max = 0;
  std::array<std::uint32_t, 3> block = {};  // .reqntid, exact; all zero if unspecified.
  // .reqnctapercluster, in blocks; all zero if unspecified.
  std::array<std::uint32_t, 3> cluster = {};
};

// Reads the directives of a kernel. Pure.
LaunchBounds GetLaunchBounds(const Function& kernel);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_LAUNCH_BOUNDS_H_
