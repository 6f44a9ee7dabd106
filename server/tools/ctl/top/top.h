// SPDX-License-Identifier: Apache-2.0
// `gpusharedctl top`: devices and clients, live in a terminal.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_TOP_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_TOP_H_

#include <chrono>
#include <string>

#include "server/tools/ctl/command_line.h"

namespace gpushared::server::top {

// Shows the server at `socket`, refreshed periodically, until the operator quits. Returns the exit
// code. If the first request fails, reports that and returns like other commands; if the server
// disappears later, waits for it.
int ShowTop(const std::string& socket, std::chrono::duration<double> every);

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_TOP_H_
