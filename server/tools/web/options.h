// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_OPTIONS_H_
#define GPUSHARED_SERVER_TOOLS_WEB_OPTIONS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpushared/result.h"

#include "server/telemetry/admin/exit_now.h"

namespace gpushared::web {

// Listening address: numeric, without the brackets of IPv6.
struct Endpoint {
  std::string address;
  std::uint16_t port = 0;  // 0 lets the kernel choose.
  bool is_loopback = false;
};
// Parses "127.0.0.1:9464" or "[::1]:9464". Fails with kInvalidArgument and the expected format.
Result<Endpoint> ParseEndpoint(std::string_view text);

// Reads the token from the file: 16 to 512 bytes of printable ASCII without spaces, and at most one
// line break. kInvalidArgument if the contents do not have this form, or if users other than owner
// and group may read the file.
Result<std::string> ReadToken(const std::string& path);

struct Options {
  std::string socket;  // Path as given; if empty, the default locations apply.
  Endpoint listen;
  std::string token;  // If empty, no token is required, and the address must be a loopback address.
  // Names of this machine that browsers may use, if there is a token.
  std::vector<std::string> hosts;
};

using admin::ExitNow;
std::variant<Options, ExitNow> ParseOptions(std::span<const char* const> arguments);

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_OPTIONS_H_
