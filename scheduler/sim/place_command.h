// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_PLACE_COMMAND_H_
#define GPUSHARED_SCHEDULER_SIM_PLACE_COMMAND_H_

#include <functional>

#include "common/command_line/command_line.h"

namespace gpushared::simulation {

// Adds `place`, which finds the best node for a job. The returned function runs the subcommand once
// the arguments are parsed, and returns the exit code.
std::function<int()> AddPlace(const command_line::Command& app);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_PLACE_COMMAND_H_
