// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/site.h"

#include <string>
#include <utility>

#include "server/tools/web/page_files.h"

namespace gpushared::web {
namespace {

// Text of login.html that hides the error message.
constexpr std::string_view kWhatIsWrong = "class=\"problem\" hidden";

HttpAnswer Show(const PageFile& file) {
  return {.content_type = std::string(PageFileType(file)), .body = std::string(file.text)};
}

HttpAnswer GoTo(const char* path) { return {.code = 303, .headers = {{"Location", path}}}; }

// Returns whether the login form needs the file. Such files contain no information about the
// server.
bool IsForEverybody(std::string_view name) { return name == "style.css" || name == "icon.svg"; }

}  // namespace

Site::Site(const Gate& gate, Answer answer) : gate_(gate), answer_(std::move(answer)) {}

void Site::Handle(const HttpServer::Request& request, HttpServer::Reply reply) const {
  if (!gate_.KnowsHost(request.host)) {
    return reply(
        {.code = 421,
         .body = "the Host header names another machine; allowed: " + gate_.HostsAllowed() + "\n"});
  }
  if (request.path == "/login") return reply(LogIn(request));
  if (request.is_post) {
    return reply(
        {.code = 405, .body = "allowed: GET and HEAD\n", .headers = {{"Allow", "GET, HEAD"}}});
  }
  const bool is_in = gate_.IsAuthorized(request);
  const bool is_page = request.path == "/";
  if (!is_in && is_page) return reply(GoTo("/login"));
  const std::string_view name =
      is_page ? "index.html" : std::string_view(request.path).substr(request.path.empty() ? 0 : 1);
  if (!is_in && !IsForEverybody(name)) {
    return reply({.code = 401,
                  .body = "the token is wrong or missing\n",
                  .headers = {{"WWW-Authenticate", "Bearer"}}});
  }
  if (const PageFile* const file = FindPageFile(name)) return reply(Show(*file));
  answer_(request, std::move(reply));
}

HttpAnswer Site::LogIn(const HttpServer::Request& request) const {
  if (gate_.IsAuthorized(request)) return GoTo("/");
  HttpAnswer form = Show(*FindPageFile("login.html"));
  if (!request.is_post) return form;
  if (gate_.HasToken(request.body)) {
    HttpAnswer answer = GoTo("/");
    answer.headers.emplace_back("Set-Cookie", gate_.Cookie());
    return answer;
  }
  form.code = 401;
  form.headers = {{"WWW-Authenticate", "Bearer"}};
  const std::size_t at = form.body.find(kWhatIsWrong);
  if (at != std::string::npos) form.body.replace(at, kWhatIsWrong.size(), "class=\"problem\"");
  return form;
}

}  // namespace gpushared::web
