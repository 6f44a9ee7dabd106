// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/mutex.h"

#include "tests/web/raw_http.h"

namespace gpushared::web {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawHttp;
using ::testing::StartsWith;

std::string AddressOfPeer(int socket) {
  sockaddr_in at{};
  socklen_t bytes = sizeof at;
  EXPECT_EQ(::getpeername(socket, reinterpret_cast<sockaddr*>(&at), &bytes), 0);
  std::array<char, INET_ADDRSTRLEN> text{};
  return ::inet_ntop(AF_INET, &at.sin_addr, text.data(), text.size());
}

// A server that runs during the object's lifetime. Its peers are distinguished by their loopback
// addresses.
class RunningServer {
 public:
  explicit RunningServer(HttpLimits limits, std::size_t answer_bytes = 3) {
    Result<std::unique_ptr<HttpServer>> server =
        HttpServer::Listen(*ParseEndpoint("127.0.0.1:0"), limits,
                           {.on_request =
                                [this, answer_bytes](const HttpServer::Request& request,
                                                     const HttpServer::Reply& reply) {
                                  if (request.path == "/hold") {
                                    const MutexLock lock(mutex_);
                                    held_.push_back(reply);
                                  } else if (request.path == "/later") {
                                    std::thread([reply] {
                                      std::this_thread::sleep_for(20ms);
                                      reply({.body = "later"});
                                    }).detach();
                                  } else if (request.path == "/stream") {
                                    reply({.body = "begin\n", .is_stream = true});
                                  } else if (request.path == "/echo") {
                                    reply({.body = request.query + "|" + request.host + "|" +
                                                   request.cookie + "|" + request.body});
                                  } else {
                                    reply({.body = std::string(answer_bytes, 'x')});
                                  }
                                },
                            .on_streams = [this](std::size_t streams) { streams_ = streams; },
                            .peer_of = AddressOfPeer});
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    const std::string address = server_->address();
    port_ = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    thread_ = std::thread([this] { server_->Run(); });
  }
  ~RunningServer() {
    server_->Stop();
    thread_.join();
    held_.clear();  // Held requests keep their connections open.
  }
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  std::uint16_t port() const { return port_; }
  void Publish(std::string text) { server_->Publish(std::move(text)); }
  // Waits until this many requests for /hold wait for their answers.
  bool AwaitHeld(std::size_t wanted) {
    const auto held = [this] {
      const MutexLock lock(mutex_);
      return held_.size();
    };
    for (int i = 0; i < 2000 && held() != wanted; ++i) std::this_thread::sleep_for(10ms);
    return held() == wanted;
  }
  // Waits until this many clients read the stream.
  bool AwaitStreams(std::size_t wanted) const {
    for (int i = 0; i < 2000 && streams_ != wanted; ++i) std::this_thread::sleep_for(10ms);
    return streams_ == wanted;
  }

 private:
  std::atomic<std::size_t> streams_{0};
  Mutex mutex_;
  std::vector<HttpServer::Reply> held_ GPUSHARED_GUARDED_BY(mutex_);
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
}

TEST(HttpServer, PassesWholeRequestToHandler) {
  const RunningServer server({});
  EXPECT_THAT(RawHttp::Get(server.port(), "/echo?a=1?b", "Host: one\r\nCookie: c=d\r\n"),
              HasSubstr("\r\n\r\na=1?b|one|c=d|"));
  // Two Host headers would be ambiguous.
  EXPECT_THAT(RawHttp::Get(server.port(), "/echo", "Host: one\r\nHost: two\r\n"),
              HasSubstr("\r\n\r\n|||"));
  RawHttp form(server.port());
  EXPECT_TRUE(form.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\ntoken"));
  EXPECT_TRUE(form.Send("=abc"));
  EXPECT_THAT(form.ReadAll(), HasSubstr("|h||token=abc"));
}

TEST(HttpServer, ForbidsForeignContentInBrowsers) {
  const RunningServer server({});
  const std::string answer = RawHttp::Get(server.port(), "/");
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
  EXPECT_THAT(answer, Not(HasSubstr("unsafe")));
  EXPECT_THAT(answer, HasSubstr("frame-ancestors 'none'\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, HasSubstr("Cross-Origin-Resource-Policy: same-origin\r\n"));
}

TEST(HttpServer, StreamsGetWhatIsPublished) {
  RunningServer server({});
  RawHttp reader(server.port());
  EXPECT_TRUE(reader.Send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  ASSERT_TRUE(server.AwaitStreams(1));
  for (int i = 0; i < 10; ++i) server.Publish("event " + std::to_string(i) + "\n");
  const std::string all = reader.ReadUntil("event 9\n");
  EXPECT_THAT(all, HasSubstr("\r\n\r\nbegin\nevent 0\nevent 1\n"));
  EXPECT_THAT(all, Not(HasSubstr("Content-Length")));
  // Only a GET opens a stream.
  EXPECT_THAT(RawHttp::Get(server.port(), "/stream", "Host: localhost\r\n", "HEAD"),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(server.AwaitStreams(1));
}

TEST(HttpServer, StreamsEndWithTheirReadersAndAreLimited) {
  RunningServer server({.streams_max = 2});
  std::list<RawHttp> readers;
  for (std::size_t i = 1; i <= 2; ++i) {
    readers.emplace_back(server.port());
    EXPECT_TRUE(readers.back().Send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    ASSERT_TRUE(server.AwaitStreams(i));
  }
  EXPECT_THAT(RawHttp::Get(server.port(), "/stream"), StartsWith("HTTP/1.1 503 "));
  readers.pop_front();
  EXPECT_TRUE(server.AwaitStreams(1));
  // A client that keeps sending is dropped.
  EXPECT_TRUE(readers.front().Send("more"));
  EXPECT_TRUE(server.AwaitStreams(0));
}

TEST(HttpServer, AStreamThatDoesNotReadIsDropped) {
  // answer_time_max is so long that the stream can only be dropped because of events_behind_max.
  RunningServer server({.events_behind_max = 4, .answer_time_max = 60s});
  RawHttp hungry(server.port(), 4096), good(server.port());
  for (RawHttp* each : {&hungry, &good}) {
    EXPECT_TRUE(each->Send("GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
  ASSERT_TRUE(server.AwaitStreams(2));
  // Publishes more than the kernel buffers for a client that does not read.
  for (int i = 0; i < 10; ++i) {
    const std::string end = "end " + std::to_string(i) + "\n";
    server.Publish(std::string(std::size_t{1} << 20, 'x') + end);
    EXPECT_THAT(good.ReadUntil(end), HasSubstr(end));
  }
  EXPECT_TRUE(server.AwaitStreams(1));
}

TEST(HttpServer, RejectsInvalidRequests) {
  const RunningServer server({});
  RawHttp large(server.port());
  // The connection may be closed before everything has been sent.
  (void)large.Send("GET / HTTP/1.1\r\nX: " + std::string(std::size_t{1} << 20, 'x'));
  EXPECT_THAT(large.ReadAll(), StartsWith("HTTP/1.1 431 "));
  RawHttp lies(server.port());
  EXPECT_TRUE(lies.Send("\x16\x03\x01 this is no HTTP\r\n\r\n"));
  EXPECT_THAT(lies.ReadAll(), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(RawHttp::Get(server.port(), "/", "Host: localhost\r\nContent-Length: 5\r\n"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(RawHttp::Get(server.port(), "/", "Host: h\r\nContent-Length: 4096\r\n", "POST"),
              StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(RawHttp::Get(server.port(), "/", "Host: localhost\r\n", "DELETE"),
              HasSubstr("Allow: GET, HEAD, POST\r\n"));
  EXPECT_THAT(RawHttp::Get(server.port(), "/"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, DropsSlowSendersAndReaders) {
  const RunningServer server({.header_time_max = 200ms, .answer_time_max = 1s},
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

TEST(HttpServer, ClosesSilentConnectionsForNewOnes) {
  const RunningServer server({.connections_max = 8, .header_time_max = 60s});
  std::list<RawHttp> silent;
  for (int i = 0; i < 200; ++i) {
    silent.emplace_back(server.port());
    ASSERT_TRUE(silent.back().is_connected());
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(RawHttp::Get(server.port(), "/"), StartsWith("HTTP/1.1 200 "));
  }
  // The oldest connections were dropped.
  EXPECT_EQ(silent.front().ReadAll(5s), "");
  EXPECT_TRUE(silent.front().was_closed());
}

constexpr char kAsk[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr char kAskForStream[] = "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr char kAskAndWait[] = "GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST(HttpServer, ClosesAnsweredConnectionsForNewOnes) {
  const RunningServer server({.connections_max = 8, .header_time_max = 60s});
  RawHttp slow(server.port());
  ASSERT_TRUE(slow.is_connected());
  std::list<RawHttp> staying;
  for (int i = 0; i < 200; ++i) {
    staying.emplace_back(server.port());
    EXPECT_TRUE(staying.back().Send(kAsk));
    ASSERT_THAT(staying.back().ReadUntil("\r\n\r\nxxx"), StartsWith("HTTP/1.1 200 ")) << i;
  }
  // `slow` is the oldest connection of its peer, but is kept because its request has not been
  // answered.
  EXPECT_TRUE(slow.Send(kAsk));
  EXPECT_THAT(slow.ReadAll(), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, ClosesNonReadingConnectionsForNewOnes) {
  const RunningServer server({.connections_max = 8, .answer_time_max = 60s}, std::size_t{16} << 20);
  std::list<RawHttp> hungry;
  for (int i = 0; i < 50; ++i) {
    hungry.emplace_back(server.port(), 4096);
    EXPECT_TRUE(hungry.back().Send(kAsk));
    if (i % 10 != 9) continue;
    EXPECT_GT(RawHttp::Get(server.port(), "/").size(), std::size_t{16} << 20);
  }
}

TEST(HttpServer, ClosesConnectionOfThePeerWithMost) {
  const RunningServer server({.connections_max = 8, .header_time_max = 60s});
  RawHttp oldest(server.port(), 0, "127.0.0.2");
  ASSERT_TRUE(oldest.is_connected());
  std::list<RawHttp> many;
  for (int i = 0; i < 200; ++i) {
    many.emplace_back(server.port(), 0, "127.0.0.3");
    ASSERT_TRUE(many.back().is_connected());
  }
  EXPECT_THAT(RawHttp::Get(server.port(), "/"), StartsWith("HTTP/1.1 200 "));
  EXPECT_TRUE(oldest.Send(kAsk));
  EXPECT_THAT(oldest.ReadAll(), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, ClosesAStreamForAPeerWithFewer) {
  const RunningServer server({.streams_max = 4});
  std::list<RawHttp> first, second;
  for (std::size_t i = 1; i <= 4; ++i) {
    first.emplace_back(server.port(), 0, "127.0.0.2");
    EXPECT_TRUE(first.back().Send(kAskForStream));
    ASSERT_TRUE(server.AwaitStreams(i));
  }
  for (int i = 0; i < 2; ++i) {
    second.emplace_back(server.port(), 0, "127.0.0.3");
    EXPECT_TRUE(second.back().Send(kAskForStream));
    EXPECT_THAT(second.back().ReadUntil("begin\n"), StartsWith("HTTP/1.1 200 "));
    // The oldest stream of the first peer is closed.
    EXPECT_THAT(first.front().ReadAll(), HasSubstr("begin\n"));
    EXPECT_TRUE(first.front().was_closed());
    first.pop_front();
  }
  // Now both peers have two streams.
  RawHttp third(server.port(), 0, "127.0.0.3");
  EXPECT_TRUE(third.Send(kAskForStream));
  EXPECT_THAT(third.ReadAll(), StartsWith("HTTP/1.1 503 "));
  EXPECT_TRUE(server.AwaitStreams(4));
}

TEST(HttpServer, LimitsWaitingRequestsPerPeerWithReserve) {
  RunningServer server({.requests_max = 3,
                        .requests_per_peer_max = 2,
                        .reserved_max = 1,
                        .reserved_path = "/reserved"});
  std::list<RawHttp> waiting;
  const auto ask = [&](const char* from, std::size_t held) {
    waiting.emplace_back(server.port(), 0, from);
    EXPECT_TRUE(waiting.back().Send(kAskAndWait));
    return server.AwaitHeld(held);
  };
  const auto rejected = [&](const char* from) {
    RawHttp http(server.port(), 0, from);
    EXPECT_TRUE(http.Send(kAskAndWait));
    return http.ReadAll();
  };
  ASSERT_TRUE(ask("127.0.0.2", 1) && ask("127.0.0.2", 2));
  EXPECT_THAT(rejected("127.0.0.2"), StartsWith("HTTP/1.1 503 "));
  ASSERT_TRUE(ask("127.0.0.3", 3));
  EXPECT_THAT(rejected("127.0.0.4"), HasSubstr("too many requests wait for their answers"));
  EXPECT_THAT(RawHttp::Get(server.port(), "/"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(RawHttp::Get(server.port(), "/reserved"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, AnAddressThatIsTakenIsRejected) {
  const RunningServer server({});
  const Result<std::unique_ptr<HttpServer>> second =
      HttpServer::Listen(*ParseEndpoint("127.0.0.1:" + std::to_string(server.port())), {}, {});
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("Address already in use"));
}

}  // namespace
}  // namespace gpushared::web
