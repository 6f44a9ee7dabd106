// SPDX-License-Identifier: Apache-2.0
// Devices at the top of the screen: bars of time and memory, and a strip of their recent activity.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_DEVICE_PANEL_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_DEVICE_PANEL_H_

#include <cstddef>
#include <vector>

#include "server/tools/ctl/top/canvas.h"
#include "server/tools/ctl/top/figures.h"

namespace gpushared::server::top {

// Draws from `row` on and returns the row after it. Devices take four rows each if all of them then
// fit into `rows_max`, otherwise one each; a last row states how many do not fit.
std::size_t DrawDevices(Canvas& canvas, std::size_t row, std::size_t rows_max,
                        const std::vector<DeviceFigures>& devices, const Scene& scene);

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_DEVICE_PANEL_H_
