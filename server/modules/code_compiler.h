// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_
#define GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_

#include <functional>
#include <string>

#include "server/config/config.h"
#include "server/device/code_compiler.h"

namespace gpushared::server {

// Returns the compiler of server/modules/compile in the form that devices use, according to the
// configuration. `warn` receives the reason if there is no compiler; any thread.
device::MakeCodeCompiler GetCompiler(const Config& config,
                                     std::function<void(const std::string&)> warn);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_
