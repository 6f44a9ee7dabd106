// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/gate.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/web/page_files.h"
#include "server/tools/web/site.h"

namespace gpushared::web {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kToken = "0123456789abcdef";

TEST(Gate, HostNamesThisMachine) {
  const Gate gate("", {"gpu-server"});
  for (const std::string host : {"localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:9464",
                                 "[::1]", "[::1]:1", "127.3.4.5"}) {
    EXPECT_TRUE(gate.KnowsHost(host)) << host;
  }
  for (const std::string host :
       {"", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
        "localhost:", "localhost:x", "::1", "0.0.0.0", "[::]", "localhost@evil.example", "10.0.0.1",
        ":80", "gpu-server"}) {
    EXPECT_FALSE(gate.KnowsHost(host)) << host;
  }
}

TEST(Gate, WithTokenHostMustBeAddressOrKnownName) {
  const Gate gate(kToken, {"gpu-server", "gpu.example"});
  for (const std::string host :
       {"localhost:1", "10.0.0.1:9464", "[2001:db8::1]:9464", "gpu-server", "GPU.example:80"}) {
    EXPECT_TRUE(gate.KnowsHost(host)) << host;
  }
  for (const std::string host :
       {"", ":80", "evil.example", "gpu-server.evil.example", "gpu.example:", "x.gpu.example"}) {
    EXPECT_FALSE(gate.KnowsHost(host)) << host;
  }
  EXPECT_THAT(gate.HostsAllowed(), HasSubstr("gpu-server, gpu.example"));
}

TEST(Gate, AcceptsOnlyCompleteToken) {
  EXPECT_TRUE(IsSameToken(kToken, kToken));
  for (const std::string other : {"", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"}) {
    EXPECT_FALSE(IsSameToken(other, kToken)) << other;
  }
  EXPECT_FALSE(IsSameToken(std::string(600, 'x'), std::string(512, 'x')));
  const Gate gate(kToken, {});
  EXPECT_TRUE(gate.IsAuthorized({.authorization = "Bearer " + kToken}));
  EXPECT_TRUE(gate.IsAuthorized({.authorization = "bearer " + kToken}));
  for (const std::string& other :
       std::vector<std::string>{"", "Basic " + kToken, kToken, "Bearer", "Bearer " + kToken + "x",
                                "Bearer  " + kToken}) {
    EXPECT_FALSE(gate.IsAuthorized({.authorization = other})) << other;
  }
  EXPECT_TRUE(Gate("", {}).IsAuthorized({}));
}

TEST(Gate, CookieIsValidOnlyForGateThatIssuedIt) {
  const Gate gate(kToken, {}), next(kToken, {});
  const std::string given = gate.Cookie();
  EXPECT_THAT(given, HasSubstr("; HttpOnly; SameSite=Strict"));
  EXPECT_THAT(given, Not(HasSubstr(kToken)));
  const std::string cookie = given.substr(0, given.find(';'));
  EXPECT_TRUE(gate.IsAuthorized({.cookie = cookie}));
  EXPECT_TRUE(gate.IsAuthorized({.cookie = "other=1; " + cookie + "; more"}));
  EXPECT_FALSE(next.IsAuthorized({.cookie = cookie}));
  for (const std::string& other : std::vector<std::string>{
           "", "gpushared", "gpushared=", "gpushared=" + kToken, "x" + cookie, cookie + "0",
           "gpushared=;;==;", cookie.substr(0, cookie.size() - 1)}) {
    EXPECT_FALSE(gate.IsAuthorized({.cookie = other})) << other;
  }
}

TEST(Gate, AFormHasTheTokenAsBrowsersSendIt) {
  const Gate gate("with+and%and&16by", {});
  EXPECT_TRUE(gate.HasToken("token=with%2Band%25and%2616by"));
  for (const std::string form : {"", "token", "token=", "token=with+and%and&16by", "token=%",
                                 "token=%2", "token=%zz", "x=with%2Band%25and%2616by"}) {
    EXPECT_FALSE(gate.HasToken(form)) << form;
  }
}

HttpAnswer Ask(const Gate& gate, HttpServer::Request request) {
  if (request.host.empty()) request.host = "localhost";
  HttpAnswer told;
  const Site site(gate, [](const HttpServer::Request&, HttpServer::Reply reply) {
    reply({.body = "figures"});
  });
  site.Handle(request, [&](HttpAnswer answer) { told = std::move(answer); });
  return told;
}

TEST(Site, ShowsEverythingIfNoTokenIsRequired) {
  const Gate gate("", {});
  EXPECT_EQ(Ask(gate, {.path = "/"}).body, FindPageFile("index.html")->text);
  EXPECT_EQ(Ask(gate, {.path = "/style.css"}).content_type, "text/css; charset=utf-8");
  EXPECT_EQ(Ask(gate, {.path = "/api/ps"}).body, "figures");
  EXPECT_EQ(Ask(gate, {.path = "/", .host = "evil.example"}).code, 421U);
  EXPECT_EQ(Ask(gate, {.is_post = true, .path = "/"}).code, 405U);
  // No login is needed here.
  EXPECT_EQ(Ask(gate, {.path = "/login"}).code, 303U);
}

TEST(Site, ShowsOnlyFormIfTokenIsRequired) {
  const Gate gate(kToken, {});
  const HttpAnswer away = Ask(gate, {.path = "/"});
  EXPECT_EQ(away.code, 303U);
  EXPECT_THAT(away.headers,
              ::testing::Contains(std::pair<std::string, std::string>("Location", "/login")));
  for (const std::string path : {"/api/ps", "/events", "/metrics", "/healthz", "/page.js",
                                 "/index.html", "//", "/login/", "/style.css/", ""}) {
    EXPECT_EQ(Ask(gate, {.path = path}).code, 401U) << path;
  }
  EXPECT_EQ(Ask(gate, {.path = "/style.css"}).code, 200U);
  EXPECT_EQ(Ask(gate, {.path = "/login"}).code, 200U);
  EXPECT_EQ(Ask(gate, {.path = "/api/ps", .authorization = "Bearer " + kToken}).body, "figures");
  EXPECT_EQ(Ask(gate, {.is_post = true, .path = "/login", .host = "evil.example"}).code, 421U);
}

TEST(Site, TheFormGivesACookieForTheToken) {
  const Gate gate(kToken, {});
  const HttpAnswer wrong = Ask(gate, {.is_post = true, .path = "/login", .body = "token=x"});
  EXPECT_EQ(wrong.code, 401U);
  EXPECT_THAT(wrong.body, HasSubstr("<p class=\"problem\">"));
  for (const auto& [name, value] : wrong.headers) EXPECT_NE(name, "Set-Cookie");
  const HttpAnswer right =
      Ask(gate, {.is_post = true, .path = "/login", .body = "token=" + kToken});
  EXPECT_EQ(right.code, 303U);
  ASSERT_EQ(right.headers.back().first, "Set-Cookie");
  const std::string& cookie = right.headers.back().second;
  EXPECT_EQ(Ask(gate, {.path = "/", .cookie = cookie.substr(0, cookie.find(';'))}).code, 200U);
}

TEST(PageFiles, NothingIsInlineOrFromElsewhere) {
  EXPECT_THAT(PageFiles(), Not(IsEmpty()));
  for (const PageFile& file : PageFiles()) {
    const std::string text(file.text);
    for (const std::string wrong :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
          " style=\"", " onclick=", "<script>", "<style", "https://"}) {
      EXPECT_EQ(text.find(wrong), std::string::npos) << file.name << ": " << wrong;
    }
    const std::size_t plain = text.find("http://");
    EXPECT_TRUE(plain == std::string::npos || text.find("http://www.w3.org/2000/svg") == plain)
        << file.name;
  }
}

}  // namespace
}  // namespace gpushared::web
