// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_METRICS_H_
#define GPUSHARED_SERVER_TOOLS_WEB_METRICS_H_

#include <string>

#include "server/tools/web/exposition.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::web {

// Formats a server's answers to AdminVerb::kStatus and kEndpoints as metrics. Missing values are
// omitted, never reported as 0. Thread-safe.
std::string MetricsText(const nlohmann::json& status, const nlohmann::json& endpoints,
                        const std::string& host, TextFormat format);

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_METRICS_H_
