// SPDX-License-Identifier: Apache-2.0
// Clients as a table. The columns that matter least are left out where the terminal is narrow.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_CLIENT_TABLE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_CLIENT_TABLE_H_

#include <cstddef>
#include <string>

#include "server/tools/ctl/top/canvas.h"
#include "server/tools/ctl/top/view.h"

namespace gpushared::server::top {

// Draws a heading and as many clients as fit into `rows`. Names stand last in their row, so that no
// character of theirs moves a figure.
void DrawClients(Canvas& canvas, std::size_t row, std::size_t rows, View& view);

// A line for each column, for the page of help.
std::string ClientColumnsHelp();

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_CLIENT_TABLE_H_
