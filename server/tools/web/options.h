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

// Where to listen: a numeric address, without the brackets of IPv6.
struct Endpoint {
  std::string address;
  std::uint16_t port = 0;  // 0: the kernel chooses.
  bool is_loopback = false;
};
// "127.0.0.1:9464" or "[::1]:9464". kInvalidArgument, with what is allowed.
Result<Endpoint> ParseEndpoint(std::string_view text);

// The token in the file: printable ASCII without spaces, 16 to 512 bytes, and a line break at most.
// kInvalidArgument when it is not, or when others than owner and group may read the file.
Result<std::string> ReadToken(const std::string& path);

struct Options {
  std::string socket;  // As asked for; empty: the usual places.
  Endpoint listen;
  std::string token;  // Empty: none is asked for, and the address is of this machine alone.
  std::vector<std::string> hosts;  // Names under which browsers reach it, with a token.
};

using admin::ExitNow;
std::variant<Options, ExitNow> ParseOptions(std::span<const char* const> arguments);

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_OPTIONS_H_
