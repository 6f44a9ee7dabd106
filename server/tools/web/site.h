// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_SITE_H_
#define GPUSHARED_SERVER_TOOLS_WEB_SITE_H_

#include <functional>
#include <string_view>

#include "server/tools/web/gate.h"
#include "server/tools/web/http_server.h"

namespace gpushared::web {

// Maps paths to contents, and restricts access: the login form and the files that it needs are
// public, everything else requires the gate's permission.
//
// Thread-safe; `gate` must outlive this object.
class Site {
 public:
  // Answers paths other than the page's files.
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
