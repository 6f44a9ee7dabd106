// SPDX-License-Identifier: Apache-2.0
// Warnings about settings without effect: rules that match no client, and limits that other
// settings make void.

#ifndef GPUSHARED_SERVER_CONFIG_CONFIG_WARNINGS_H_
#define GPUSHARED_SERVER_CONFIG_CONFIG_WARNINGS_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/config/config.h"

namespace gpushared::server {

// Returns warnings in the order of the file, whose name is `source`.
std::vector<std::string> FindWarnings(const Config& config, std::string_view source);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CONFIG_CONFIG_WARNINGS_H_
