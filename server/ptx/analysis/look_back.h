// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

// Terms of sums made and compared for all functions of one module; what is left then counts as not
// earlier. The programs of the CUDA toolkit's own libraries take up to ten thousand.
inline constexpr std::size_t kLookBackStepsMax = std::size_t{1} << 22;

// For each of these instructions, whether it is a load that looks only at places of blocks before
// its own: its address is that of something which every block stores at %ctaid.x times a constant,
// less at least one such step. The address may go down from one look to the next. Nothing is known
// of what a .func is given, so none of its loads is. `steps`: taken so far of kLookBackStepsMax.
std::vector<bool> ReadEarlierBlocks(const ControlFlow& flow,
                                    const std::vector<std::uint32_t>& accesses, std::size_t& steps);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_LOOK_BACK_H_
