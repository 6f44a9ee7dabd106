// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

// Limit for the terms of sums created and compared for all functions of one module; remaining
// accesses count as not earlier. The programs of the CUDA toolkit's own libraries take up to ten
// thousand.
inline constexpr std::size_t kLookBackStepsMax = std::size_t{1} << 22;

// Returns for each of these instructions whether it is a load that only polls places of blocks
// before its own: its address is that of a place which every block stores at %ctaid.x times a
// constant, less at least one such step. The address may decrease between polls. Loads in a .func
// are never classified, because its arguments are unknown. `steps`: taken so far of
// kLookBackStepsMax.
std::vector<bool> ReadEarlierBlocks(const ControlFlow& flow,
                                    const std::vector<std::uint32_t>& accesses, std::size_t& steps);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_
