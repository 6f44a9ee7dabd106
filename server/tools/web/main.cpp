// SPDX-License-Identifier: Apache-2.0
// gpushared-web: a web page for a gpushared server, and its metrics for Prometheus. It queries the
// server's socket, which requires the right to observe, and listens on TCP, which the server itself
// never does.

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ipc/socket_path.h"
#include "server/telemetry/admin/ask.h"
#include "server/telemetry/admin/trace_watch.h"
#include "server/tools/web/answers.h"
#include "server/tools/web/gate.h"
#include "server/tools/web/http_server.h"
#include "server/tools/web/options.h"
#include "server/tools/web/site.h"
#include "server/tools/web/watch.h"

namespace gpushared::web {
namespace {

constexpr int kDone = 0, kCannotListen = 1;
// Increase of the nice level, because threads of clients on shared cores must not be delayed by an
// observer.
constexpr int kNicer = 10;

std::string HostName() {
  std::array<char, 256> name{};
  // Leaves the last byte zero, because gethostname may truncate the name without a terminator.
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Looks up the path for each query, because the server may start later than this program and its
// socket may then be in another default location.
Result<nlohmann::json> AskServer(const std::string& socket, const ipc::Admin& question) {
  const Result<std::string> path = ipc::ClientSocketPath(socket);
  if (!path.ok()) return path.status();
  return admin::Ask(*path, question);
}

int Serve(const Options& options) {
  const std::string host = HostName();
  const auto ask = [&](const ipc::Admin& question) { return AskServer(options.socket, question); };
  std::vector<std::string> hosts = options.hosts;
  if (!host.empty()) hosts.push_back(host);
  const Gate gate(options.token, std::move(hosts));
  // The HTTP server below is destroyed before `watch` and `answers`, because its callbacks use both
  // objects.
  const auto begin_trace = [&](const std::string& device) -> Result<admin::TraceWatch> {
    const Result<std::string> path = ipc::ClientSocketPath(options.socket);
    if (!path.ok()) return path.status();
    return admin::TraceWatch::Begin(*path, device);
  };
  Watch watch(ask, begin_trace, host);
  Answers answers(ask, host);
  const Site site(gate, [&](const HttpServer::Request& request, HttpServer::Reply reply) {
    if (request.path == "/events") {
      return reply({.content_type = "text/event-stream", .is_stream = true});
    }
    answers.Handle(request, std::move(reply));
  });
  const Result<std::unique_ptr<HttpServer>> server = HttpServer::Listen(
      options.listen, {.reserved_path = "/metrics"},
      {.on_request = [&](const HttpServer::Request& request,
                         HttpServer::Reply reply) { site.Handle(request, std::move(reply)); },
       .on_streams = [&](std::size_t streams) { watch.SetWatchers(streams); }});
  if (!server.ok()) {
    std::fprintf(stderr, "gpushared-web: %s\n", server.status().message().c_str());
    return kCannotListen;
  }
  std::fprintf(stderr, "gpushared-web: serves http://%s/\n", (*server)->address().c_str());
  watch.Start([&](std::string event) { (*server)->Publish(std::move(event)); });
  (*server)->Run();
  watch.Stop();
  answers.Stop();
  return kDone;
}

int Main(std::span<const char* const> arguments) {
  auto parsed = ParseOptions(arguments);
  if (const auto* stop = std::get_if<ExitNow>(&parsed)) {
    std::fputs(stop->text.c_str(), stop->code == 0 ? stdout : stderr);
    return stop->code;
  }
  return Serve(std::get<Options>(parsed));
}

}  // namespace
}  // namespace gpushared::web

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  // Failure is ignored: systemd's system call filter forbids this call, and the unit sets Nice=
  // instead.
  (void)::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + gpushared::web::kNicer);
  try {
    return gpushared::web::Main({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpushared-web: %s\n", error.what());
    return 1;
  }
}
