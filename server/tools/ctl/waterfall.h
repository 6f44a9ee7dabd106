// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_WATERFALL_H_
#define GPUSHARED_SERVER_TOOLS_CTL_WATERFALL_H_

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// Formats the waterfall in an answer to `explain` in lines of at most 80 characters: when the
// request waited, which work of which client ran in the meantime, and why that work was or was not
// preempted. Empty if the answer has no waterfall.
std::string WaterfallText(const nlohmann::json& reply);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_WATERFALL_H_
