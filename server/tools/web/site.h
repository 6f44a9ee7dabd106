// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_SITE_H_
#define GPUSHARED_SERVER_TOOLS_WEB_SITE_H_

#include <functional>
#include <string_view>

#include "server/tools/web/gate.h"
#include "server/tools/web/http_server.h"

namespace gpushared::web {

// What is at which path, and what is shown to whom: the form that asks for the token to everybody,
// all else to those whom the gate lets in.
//
// Thread-safe; `gate` outlives it.
class Site {
 public:
  // Answers the paths that are no file of the page.
  using Answer = std::function<void(const HttpServer::Request& request, HttpServer::Reply reply)>;

  Site(const Gate& gate, Answer answer);
  void Handle(const HttpServer::Request& request, HttpServer::Reply reply) const;

 private:
  HttpAnswer LogIn(const HttpServer::Request& request) const;

  const Gate& gate_;
  const Answer answer_;
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_SITE_H_
