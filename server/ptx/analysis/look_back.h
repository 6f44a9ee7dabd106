// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

// Limit for the terms of sums created and compared for all functions of one module. Beyond it,
// accesses are treated as not waiting for earlier blocks. The CUDA toolkit's libraries take up to
// ten thousand.
inline constexpr std::size_t kLookBackStepsMax = std::size_t{1} << 22;

// Returns for each of `accesses` whether it is a load that reads only what blocks with a lower
// index store: each block stores at an address that grows by a constant step with %ctaid.x, and the
// load's address is at least one step below it. The load's address may decrease between polls.
// Loads in a .func never qualify, because its arguments are unknown. `steps`: number of steps taken
// so far, at most kLookBackStepsMax.
std::vector<bool> ReadEarlierBlocks(const ControlFlow& flow,
                                    const std::vector<std::uint32_t>& accesses, std::size_t& steps);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_
