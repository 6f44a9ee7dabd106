// SPDX-License-Identifier: Apache-2.0
// Entrances for containers, as a file of the Container Device Interface.

#ifndef GPUSHARED_SERVER_CTL_CDI_H_
#define GPUSHARED_SERVER_CTL_CDI_H_

#include "gpushared/result.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// A device gpushared.io/entrance=NAME for each entrance of the configuration: its folder is mounted
// read-only, and nothing else. The server's own socket and leases are none: whoever had the folder
// of the former would have all, and the latter end. `answer` is the server's to `entrances`.
// kUnsupported: the folder of an entrance holds another one's socket, or no device may be called
// so.
Result<nlohmann::json> CdiFile(const nlohmann::json& answer);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CTL_CDI_H_
