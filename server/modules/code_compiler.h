// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_
#define GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_

#include <functional>
#include <string>

#include "server/config/config.h"
#include "server/device/code_compiler.h"

namespace gpushared::server {

// What the configuration says about compiling: server/modules/compile as devices see it. `warn` is
// told why where there is no compiler; any thread.
device::MakeCodeCompiler GetCompiler(const Config& config,
                                     std::function<void(const std::string&)> warn);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_
