// SPDX-License-Identifier: Apache-2.0
// gpushared-web with a real server.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <list>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"
#include "tests/web/raw_http.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class WebProcess {
 public:
  WebProcess(const std::string& socket, const std::vector<std::string>& more = {}) {
    std::vector<std::string> command = {GPUSHARED_BIN_DIR "/gpushared-web", "--socket", socket,
                                        "--listen", "127.0.0.1:0"};
    command.insert(command.end(), more.begin(), more.end());
    pid_ = StartProgram(command, directory_ / "log");
    const std::string before = "http://127.0.0.1:";
    EXPECT_TRUE(Eventually([&] { return Log().find("/\n") != std::string::npos; })) << Log();
    const std::size_t at = Log().find(before);
    if (at == std::string::npos) return;
    port_ = static_cast<std::uint16_t>(std::stoi(Log().substr(at + before.size())));
  }
  ~WebProcess() {
    if (pid_ > 0) (void)End();
  }
  WebProcess(const WebProcess&) = delete;
  WebProcess& operator=(const WebProcess&) = delete;

  // Ends the program with SIGTERM, and returns the exit status.
  int End() {
    ::kill(pid_, SIGTERM);
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }
  std::string Log() const { return Slurp(directory_ / "log"); }
  std::uint16_t port() const { return port_; }
  std::string Get(const std::string& path, const std::string& headers = "Host: localhost\r\n") {
    return RawHttp::Get(port_, path, headers);
  }

 private:
  ScratchDirectory directory_;
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

// Returns the values by the written form of the sample, "name{labels}".
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream lines(text.substr(std::min(text.find("\r\n\r\n"), text.size())));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.rfind(' ');
    if (line.starts_with("gpushared_") && space != std::string::npos) {
      samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
    }
  }
  return samples;
}

double SumOf(const std::map<std::string, double>& samples, const std::string& name) {
  double sum = 0;
  for (const auto& [sample, value] : samples) {
    if (sample.starts_with(name + "{")) sum += value;
  }
  return sum;
}

void ComeFillAndLeave(const ServerProcess& server, int times) {
  Result<Client> client = Client::Connect({.name = "x\"} 1 \\", .socket = server.socket()});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  Result<DeviceBuffer> memory = client->AllocateDevice(4096);
  ASSERT_TRUE(memory.ok()) << memory.status().ToString();
  const Stream stream = client->default_stream();
  for (int i = 0; i < times; ++i) {
    ASSERT_TRUE(stream.Fill(*memory, FillElement::U8(1), 4096).ok());
  }
  ASSERT_TRUE(stream.Synchronize().ok());
}

TEST(Web, CountersDoNotFallWhileClientsComeAndGo) {
  const ServerProcess server({"--device", "cpu:0", "--memory", "64MiB"});
  WebProcess web(server.socket());
  std::map<std::string, double> before;
  for (int round = 1; round <= 5; ++round) {
    ComeFillAndLeave(server, 10);
    // Answers are shared for a second, so this answer may be older than the fills.
    ASSERT_TRUE(Eventually([&] {
      return SumOf(Samples(web.Get("/metrics")), "gpushared_fills_total") == 10 * round;
    }));
    const std::map<std::string, double> now = Samples(web.Get("/metrics"));
    for (const auto& [sample, value] : before) {
      if (sample.find("_total{") == std::string::npos &&
          sample.find("_bucket{") == std::string::npos) {
        continue;
      }
      const auto found = now.find(sample);
      ASSERT_NE(found, now.end()) << sample;
      EXPECT_GE(found->second, value) << sample;
    }
    before = now;
  }
  EXPECT_GT(SumOf(before, "gpushared_device_busy_seconds_total"), 0);
  EXPECT_EQ(SumOf(before, "gpushared_sessions_started_total"), 5);
  EXPECT_EQ(SumOf(before, "gpushared_endpoint_sessions_started_total"), 5);
  // The broker counts admitted clients, and may have been queried a moment earlier than the worker.
  EXPECT_TRUE(Eventually([&] {
    return SumOf(Samples(web.Get("/metrics")), "gpushared_endpoint_admitted_total") == 5;
  }));
  const std::string open = web.Get(
      "/metrics", "Host: localhost\r\nAccept: application/openmetrics-text;version=1.0.0\r\n");
  EXPECT_THAT(open, HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0"));
  EXPECT_THAT(open, ::testing::EndsWith("# EOF\n"));
}

TEST(Web, IsHealthyWhileTheServerIs) {
  auto server = std::make_unique<ServerProcess>(std::vector<std::string>{"--device", "cpu:0"});
  WebProcess web(server->socket());
  EXPECT_THAT(web.Get("/healthz"), HasSubstr("\r\n\r\nok\n"));
  EXPECT_THAT(web.Get("/elsewhere"), StartsWith("HTTP/1.1 404 "));
  server.reset();
  EXPECT_TRUE(Eventually([&] { return web.Get("/healthz").starts_with("HTTP/1.1 503 "); }));
  EXPECT_THAT(web.Get("/metrics"), HasSubstr("the server does not answer"));
  const int status = web.End();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Web, HostileConnectionsDoNotLockOutOthers) {
  const ServerProcess server({"--device", "cpu:0", "--memory", "64MiB"});
  WebProcess web(server.socket());
  std::list<RawHttp> silent, hungry;
  for (int i = 0; i < 200; ++i) silent.emplace_back(web.port());
  for (int i = 0; i < 20; ++i) {
    hungry.emplace_back(web.port(), 4096);
    (void)hungry.back().Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  EXPECT_THAT(web.Get("/metrics"), StartsWith("HTTP/1.1 200 "));
  RawHttp large(web.port());
  (void)large.Send("GET / HTTP/1.1\r\nX: " + std::string(std::size_t{1} << 20, 'x'));
  EXPECT_THAT(large.ReadAll(), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(web.Get("/metrics", "Host: evil.example\r\n"), StartsWith("HTTP/1.1 421 "));
  EXPECT_THAT(web.Get("/metrics"), StartsWith("HTTP/1.1 200 "));
}

TEST(Web, ATokenIsAskedFor) {
  const ServerProcess server({"--device", "cpu:0", "--memory", "64MiB"});
  const ScratchDirectory directory;
  std::ofstream(directory / "token") << "a-token-of-some-length\n";
  ::chmod((directory / "token").c_str(), 0600);
  WebProcess web(server.socket(), {"--token-file", directory / "token"});
  EXPECT_THAT(web.Get("/metrics"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(web.Get("/healthz"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(web.Get("/events"), StartsWith("HTTP/1.1 401 "));
  const std::string bearer = "Authorization: Bearer a-token-of-some-length\r\n";
  EXPECT_THAT(web.Get("/metrics", "Host: 192.0.2.1\r\n" + bearer), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(web.Get("/metrics", "Host: evil.example\r\n" + bearer), StartsWith("HTTP/1.1 421 "));
  RawHttp form(web.port());
  form.Send(
      "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 28\r\n\r\n"
      "token=a-token-of-some-length");
  const std::string answer = form.ReadAll();
  const std::size_t cookie = answer.find("Set-Cookie: ");
  ASSERT_NE(cookie, std::string::npos) << answer;
  const std::string given = answer.substr(cookie + 12, answer.find(';', cookie) - cookie - 12);
  EXPECT_THAT(web.Get("/", "Host: localhost\r\nCookie: " + given + "\r\n"),
              HasSubstr("<!doctype html>"));
}

json GetBody(const std::string& answer) {
  const std::size_t at = answer.find("\r\n\r\n");
  return at == std::string::npos
             ? json()
             : json::parse(answer.substr(at + 4), nullptr, /*allow_exceptions=*/false);
}

TEST(Web, ApiMatchesGpusharedctl) {
  const ServerProcess server({"--device", "cpu:0", "--memory", "64MiB"});
  WebProcess web(server.socket());
  Result<Client> client = Client::Connect({.name = "<b>\u65e5", .socket = server.socket()});
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  ASSERT_TRUE(Eventually([&] { return GetBody(web.Get("/api/ps"))["clients"].size() == 1; }));
  const json ps = GetBody(web.Get("/api/ps"));
  EXPECT_EQ(ps["clients"][0]["name"], "<b>\u65e5");
  for (const std::string command : {"status", "devices", "endpoints"}) {
    const json told = json::parse(server.Ctl({command, "--json"}).output);
    const json shown = GetBody(web.Get("/api/" + command));
    EXPECT_TRUE(shown.is_object() && !shown.empty()) << command;
    for (const auto& [key, value] : told.items())
      EXPECT_TRUE(shown.contains(key)) << command << key;
  }
  const std::string id = ps["clients"][0]["client"].dump();
  EXPECT_THAT(web.Get("/api/explain?client=" + id),
              StartsWith("HTTP/1.1 404 "));  // No request yet.
  EXPECT_THAT(web.Get("/api/explain?client=9999"), HasSubstr("client 9999 is not connected"));
  for (const std::string query : {"", "?client=", "?client=-1", "?client=1x", "?client=1&x=2"}) {
    EXPECT_THAT(web.Get("/api/explain" + query), StartsWith("HTTP/1.1 400 ")) << query;
  }
  EXPECT_THAT(web.Get("/api/drain"), StartsWith("HTTP/1.1 404 "));
}

TEST(Web, EventsContinueWhileServerRestarts) {
  auto server = std::make_unique<ServerProcess>(std::vector<std::string>{"--device", "cpu:0"});
  WebProcess web(server->socket());
  RawHttp page(web.port());
  ASSERT_TRUE(page.Send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  const std::string begin = page.ReadUntil("\n\n");
  EXPECT_THAT(begin, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(begin, HasSubstr("data: {"));
  EXPECT_THAT(page.ReadUntil("\n\n"), HasSubstr("\"device\":\"cpu:0\""));
  server.reset();
  EXPECT_TRUE(Eventually([&] {
    return page.ReadUntil("\n\n").find("\"failure\":\"the server does not answer") !=
           std::string::npos;
  }));
}

TEST(Web, EventsShowExecutionTimesOfClients) {
  const ServerProcess server({"--device", "cpu:0", "--memory", "64MiB"});
  WebProcess web(server.socket());
  RawHttp page(web.port());
  ASSERT_TRUE(page.Send("GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  // The device is traced once it is ready and a client watches.
  ASSERT_TRUE(Eventually([&] {
    return page.ReadUntil("\n\n").find("\"timeline\":{\"bin_ms\":10,\"ran\":[]") !=
           std::string::npos;
  }));
  ComeFillAndLeave(server, 100);
  EXPECT_TRUE(Eventually(
      [&] { return page.ReadUntil("\n\n").find("\"ran\":[{\"client\":") != std::string::npos; }));
}

TEST(Web, RejectsInvalidOptions) {
  const ProgramOutcome open =
      RunProgram({GPUSHARED_BIN_DIR "/gpushared-web", "--listen", "[::]:0"});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.output, HasSubstr("allowed: loopback addresses, or others with --token-file"));
}

}  // namespace
}  // namespace gpushared::testing
