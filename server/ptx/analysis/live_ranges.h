// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_

#include <cstddef>

#include "server/ptx/analysis/flow.h"

namespace gpushared::ptx {

// Blocks visited to find live ranges, all registers together. Registers that are left
// when it is used up count as needed everywhere, which is right but shares nothing.
inline constexpr std::size_t kLivenessVisitsMax = std::size_t{1} << 26;

// Fills in live_begin, live_end and is_read_unwritten of flow.registers.
void FindLiveRanges(ControlFlow& flow);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_
