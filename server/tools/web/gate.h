// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_GATE_H_
#define GPUSHARED_SERVER_TOOLS_WEB_GATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/tools/web/http_server.h"

namespace gpushared::web {

// Takes as long for every `given`. `wanted` has at most 512 bytes.
bool IsSameToken(std::string_view given, std::string_view wanted);

// Who is let in: who knows the token, where there is one. A browser gets a cookie for the token. It
// holds for this process alone, and says nothing about the token.
//
// A page of another site that a browser was led to may have had its own name point here. Its
// requests name that name as their host, so known hosts are asked for with and without a token.
//
// Thread-safe once made.
class Gate {
 public:
  // `hosts`: further names under which this machine is reached.
  Gate(std::string token, std::vector<std::string> hosts);

  // localhost and loopback addresses; with a token, every address and `hosts`. Any port.
  bool KnowsHost(std::string_view host) const;
  std::string HostsAllowed() const;
  // By bearer token or cookie; everybody where there is no token.
  bool LetsIn(const HttpServer::Request& request) const;
  // Whether a form, "token=...", has the token.
  bool HasToken(std::string_view form) const;
  // Set-Cookie, for who has the token.
  std::string Cookie() const;

 private:
  const std::string token_;
  const std::vector<std::string> hosts_;
  const std::string key_;  // In the cookie. Empty where there is no token.
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_GATE_H_
