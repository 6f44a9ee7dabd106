// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_

#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {

// Fills in live_begin, live_end and is_read_unwritten of flow.registers.
void FindLiveRanges(ControlFlow& flow);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_LIVE_RANGES_H_
