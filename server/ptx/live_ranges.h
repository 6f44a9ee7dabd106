// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_LIVE_RANGES_H_
#define GPUSHARED_SERVER_PTX_LIVE_RANGES_H_

#include <cstdint>
#include <vector>

#include "server/ptx/control_flow.h"

namespace gpushared::ptx {

// Fills in live_begin and live_end of flow.registers. `predecessors` has one list per block.
void FindLiveRanges(ControlFlow& flow, const std::vector<std::vector<std::uint32_t>>& predecessors);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_LIVE_RANGES_H_
