// SPDX-License-Identifier: Apache-2.0
// `gpusharedctl top`: devices and clients, live in a terminal.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_TOP_TOP_H_
#define GPUSHARED_SERVER_TOOLS_CTL_TOP_TOP_H_

#include <chrono>
#include <string>

#include "server/tools/ctl/command_line.h"

namespace gpushared::server::top {

// Shows the server at `socket`, asked every so often, until the operator has seen enough. The exit
// code. Without an answer to its first question it says so and returns, as other commands do; a
// server that goes later is waited for.
int ShowTop(const std::string& socket, std::chrono::duration<double> every);

}  // namespace gpushared::server::top

#endif  // GPUSHARED_SERVER_TOOLS_CTL_TOP_TOP_H_
