// SPDX-License-Identifier: Apache-2.0
#include "server/web/http_server.h"

#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/web/raw_http.h"

namespace gpushared::web {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::RawHttp;
using ::testing::StartsWith;

// Runs for as long as it lives.
class RunningServer {
 public:
  explicit RunningServer(HttpLimits limits, std::string token = {}, std::size_t answer_bytes = 3) {
    Result<std::unique_ptr<HttpServer>> server = HttpServer::Listen(
        *ParseEndpoint("127.0.0.1:0"), std::move(token), limits,
        [answer_bytes](const HttpServer::Request& request, const HttpServer::Reply& reply) {
          if (request.path == "/later") {
            std::thread([reply] {
              std::this_thread::sleep_for(20ms);
              reply({.body = "later"});
            }).detach();
          } else {
            reply({.body = std::string(answer_bytes, 'x')});
          }
        });
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    const std::string address = server_->address();
    port_ = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    thread_ = std::thread([this] { server_->Run(); });
  }
  ~RunningServer() {
    server_->Stop();
    thread_.join();
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  std::unique_ptr<HttpServer> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

TEST(HttpServer, AnswersGetAndHead) {
  const RunningServer server({});
  EXPECT_THAT(RawHttp::Get(server.port(), "/any?with=query"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(RawHttp::Get(server.port(), "/"), HasSubstr("\r\n\r\nxxx"));
  EXPECT_THAT(RawHttp::Get(server.port(), "/later"), HasSubstr("\r\n\r\nlater"));
  const std::string head = RawHttp::Get(server.port(), "/", "Host: localhost\r\n", "HEAD");
  EXPECT_THAT(head, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(head, ::testing::EndsWith("\r\n\r\n"));
  const std::string post = RawHttp::Get(server.port(), "/", "Host: localhost\r\n", "POST");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(post, HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST(HttpServer, HostNamesThisMachine) {
  for (const std::string host : {"localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:9464",
                                 "[::1]", "[::1]:1", "127.3.4.5"}) {
    EXPECT_TRUE(NamesLoopback(host)) << host;
  }
  for (const std::string host : {"", "evil.example", "localhost.evil.example",
                                 "127.0.0.1.evil.example", "localhost:", "localhost:x", "::1",
                                 "0.0.0.0", "[::]", "localhost@evil.example", "10.0.0.1", ":80"}) {
    EXPECT_FALSE(NamesLoopback(host)) << host;
  }
  const RunningServer server({});
  EXPECT_THAT(RawHttp::Get(server.port(), "/", "Host: evil.example\r\n"),
              StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(RawHttp::Get(server.port(), "/", ""), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(RawHttp::Get(server.port(), "/", "Host: localhost\r\nHost: localhost\r\n"),
              StartsWith("HTTP/1.1 421 "));
}

TEST(HttpServer, ATokenIsTheWholeOne) {
  const std::string token = "0123456789abcdef";
  EXPECT_TRUE(IsSameToken(token, token));
  for (const std::string other : {"", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0"}) {
    EXPECT_FALSE(IsSameToken(other, token)) << other;
  }
  EXPECT_FALSE(IsSameToken(std::string(600, 'x'), std::string(512, 'x')));
  const RunningServer server({}, token);
  const auto get = [&](const std::string& headers) {
    return RawHttp::Get(server.port(), "/", headers);
  };
  EXPECT_THAT(get("Authorization: Bearer " + token + "\r\n"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(get("Authorization: bearer " + token + "\r\nHost: any.example\r\n"),
              StartsWith("HTTP/1.1 200 "));
  for (const std::string& headers : std::vector<std::string>{
           "Host: localhost\r\n", "Authorization: Basic " + token + "\r\n",
           "Authorization: " + token + "\r\n", "Authorization: Bearer\r\n",
           "Authorization: Bearer " + token + "x\r\n",
           "Authorization: Bearer " + token + "\r\nAuthorization: Bearer x\r\n"}) {
    const std::string answer = get(headers);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 ")) << headers;
    EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer\r\n"));
  }
}

TEST(HttpServer, NonsenseIsRefused) {
  const RunningServer server({});
  RawHttp large(server.port());
  // It may be cut off before it was all sent.
  (void)large.Send("GET / HTTP/1.1\r\nX: " + std::string(std::size_t{1} << 20, 'x'));
  EXPECT_THAT(large.ReadAll(), StartsWith("HTTP/1.1 431 "));
  RawHttp lies(server.port());
  EXPECT_TRUE(lies.Send("\x16\x03\x01 this is no HTTP\r\n\r\n"));
  EXPECT_THAT(lies.ReadAll(), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(RawHttp::Get(server.port(), "/", "Host: localhost\r\nContent-Length: 5\r\n"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(RawHttp::Get(server.port(), "/"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, SlowAskersAndReadersAreDropped) {
  const RunningServer server({.header_time_max = 200ms, .answer_time_max = 1s}, {},
                             std::size_t{16} << 20);
  RawHttp asker(server.port());
  EXPECT_TRUE(asker.Send("GET / HTTP/1.1\r\nHost: loc"));
  EXPECT_EQ(asker.ReadAll(), "");
  EXPECT_TRUE(asker.was_closed());
  RawHttp reader(server.port(), 4096);
  EXPECT_TRUE(reader.Send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  std::this_thread::sleep_for(2500ms);
  EXPECT_LT(reader.ReadAll().size(), std::size_t{16} << 20);
  EXPECT_TRUE(reader.was_closed());
  EXPECT_GT(RawHttp::Get(server.port(), "/").size(), std::size_t{16} << 20);
}

TEST(HttpServer, SilentConnectionsGiveWay) {
  const RunningServer server({.connections_max = 8, .header_time_max = 60s});
  std::list<RawHttp> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(server.port());
    ASSERT_TRUE(silent.back().is_connected());
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(RawHttp::Get(server.port(), "/"), StartsWith("HTTP/1.1 200 "));
  }
  // The oldest were dropped.
  EXPECT_EQ(silent.front().ReadAll(5s), "");
  EXPECT_TRUE(silent.front().was_closed());
}

TEST(HttpServer, AnAddressThatIsTakenIsRefused) {
  const RunningServer server({});
  const Result<std::unique_ptr<HttpServer>> second = HttpServer::Listen(
      *ParseEndpoint("127.0.0.1:" + std::to_string(server.port())), "", {}, nullptr);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
}

}  // namespace
}  // namespace gpushared::web
