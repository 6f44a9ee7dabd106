// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_WATERFALL_H_
#define GPUSHARED_SERVER_TOOLS_CTL_WATERFALL_H_

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// The waterfall of a reply to explain, as lines of at most 80 characters: when its client waited,
// what ran meanwhile and whose it was, and why that was or was not cut. Empty without one.
std::string WaterfallText(const nlohmann::json& reply);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_WATERFALL_H_
