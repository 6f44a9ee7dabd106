// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_GATE_H_
#define GPUSHARED_SERVER_TOOLS_WEB_GATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/tools/web/http_server.h"

namespace gpushared::web {

// Compares in a time that does not depend on `given`. `wanted` has at most 512 bytes.
bool IsSameToken(std::string_view given, std::string_view wanted);

// Access control: admits requests with the token, if there is one. A browser gets a cookie in
// exchange for the token. The cookie is valid for this process only and reveals nothing about the
// token.
//
// Only known host names are accepted, with and without a token, because a malicious site can make
// its own name resolve to this machine (DNS rebinding). Its requests then carry that name as the
// host.
//
// Thread-safe after construction.
class Gate {
 public:
  // `hosts`: additional names of this machine.
  Gate(std::string token, std::vector<std::string> hosts);

  // Accepts localhost and loopback addresses; with a token also every address and `hosts`. Ignores
  // the port.
  bool KnowsHost(std::string_view host) const;
  std::string HostsAllowed() const;
  // Checks the bearer token or the cookie; admits every request if there is no token.
  bool IsAuthorized(const HttpServer::Request& request) const;
  // Returns true if a form, "token=...", contains the token.
  bool HasToken(std::string_view form) const;
  // Returns the value of Set-Cookie for a client that has presented the token.
  std::string Cookie() const;

 private:
  const std::string token_;
  const std::vector<std::string> hosts_;
  const std::string key_;  // Key that the cookie contains. Empty if there is no token.
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_GATE_H_
