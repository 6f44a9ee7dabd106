// SPDX-License-Identifier: Apache-2.0
// Table of clients. On a narrow terminal the least important columns are omitted.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_CLIENT_TABLE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_CLIENT_TABLE_H_

#include <cstddef>
#include <string>

#include "server/tools/ctl/top/canvas.h"
#include "server/tools/ctl/top/view.h"

namespace gpushared::server::top {

// Draws a heading and as many clients as fit into `rows`. Names are the last column, so that no
// character of a name can displace a figure.
void DrawClients(Canvas& canvas, std::size_t row, std::size_t rows, View& view);

// Help text with one line per column.
std::string ClientColumnsHelp();

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_CLIENT_TABLE_H_
