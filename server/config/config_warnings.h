// SPDX-License-Identifier: Apache-2.0
// What a configuration says and does not mean: rules that no client reaches, and limits that
// others make void.

#ifndef GPUSHARED_SERVER_CONFIG_CONFIG_WARNINGS_H_
#define GPUSHARED_SERVER_CONFIG_CONFIG_WARNINGS_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/config/config.h"

namespace gpushared::server {

// In the order of the file that `source` names.
std::vector<std::string> FindWarnings(const Config& config, std::string_view source);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_CONFIG_WARNINGS_H_
