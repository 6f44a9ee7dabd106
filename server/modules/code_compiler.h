// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_
#define GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_

#include <functional>
#include <string>

#include "server/config/config.h"
#include "server/device/code_compiler.h"

namespace gpushared::server {

// Returns the factory with which devices create the configured compiler (server/modules/compile);
// empty if the configuration disables it. `warn`, which may be called on any thread, receives the
// reason if the compiler cannot be created.
device::MakeCodeCompiler GetCompiler(const Config& config,
                                     std::function<void(const std::string&)> warn);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_MODULES_CODE_COMPILER_H_
