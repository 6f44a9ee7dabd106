// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_

#include <cstddef>

#include "server/ptx/analysis/flow.h"

namespace gpushared::ptx {

// Limit for the blocks visited to find live ranges of all registers together. Beyond it, the
// remaining registers are treated as live everywhere, which is correct but prevents sharing.
inline constexpr std::size_t kLivenessVisitsMax = std::size_t{1} << 26;

// Sets live_begin, live_end and is_read_unwritten of flow.registers.
void FindLiveRanges(ControlFlow& flow);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_
