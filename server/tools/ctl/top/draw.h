// SPDX-License-Identifier: Apache-2.0
// Layout of a view for a terminal of any size.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_DRAW_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_DRAW_H_

#include "server/tools/ctl/top/canvas.h"
#include "server/tools/ctl/top/figures.h"
#include "server/tools/ctl/top/view.h"

namespace gpushared::server::top {

// Minimum size. A smaller terminal shows only a message that it is too small.
inline constexpr Size kSizeLeast = {40, 8};

// Draws the whole screen. Passes the number of rows for clients, or for the page, to the view.
Canvas Draw(View& view, const Scene& scene, Size size, Charset charset);

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_DRAW_H_
