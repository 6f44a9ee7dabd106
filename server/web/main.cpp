// SPDX-License-Identifier: Apache-2.0
// gpushared-web: a gpushared server's metrics for Prometheus. It asks the server's socket, with the
// right to observe, and listens on TCP, which the server itself never does.

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "ipc/socket_path.h"
#include "server/admin/ask.h"
#include "server/web/answers.h"
#include "server/web/http_server.h"
#include "server/web/options.h"

namespace gpushared::web {
namespace {

constexpr int kDone = 0, kCannotListen = 1;

std::string HostName() {
  std::array<char, 256> name{};
  // May be cut off, then without a terminator.
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// The server may come later than this program, and elsewhere.
Result<nlohmann::json> AskServer(const std::string& socket, ipc::AdminVerb verb) {
  const Result<std::string> path = ipc::ClientSocketPath(socket);
  if (!path.ok()) return path.status();
  ipc::Admin question;
  question.verb = verb;
  return admin::Ask(*path, question);
}

int Main(std::span<const char* const> arguments) {
  auto parsed = ParseOptions(arguments);
  if (const auto* stop = std::get_if<ExitNow>(&parsed)) {
    std::fputs(stop->text.c_str(), stop->code == 0 ? stdout : stderr);
    return stop->code;
  }
  const Options options = std::get<Options>(std::move(parsed));
  Answers answers([&options](ipc::AdminVerb verb) { return AskServer(options.socket, verb); },
                  HostName());
  const Result<std::unique_ptr<HttpServer>> server =
      HttpServer::Listen(options.listen, options.token, {},
                         [&answers](const HttpServer::Request& request, HttpServer::Reply reply) {
                           answers.Handle(request, std::move(reply));
                         });
  if (!server.ok()) {
    std::fprintf(stderr, "gpushared-web: %s\n", server.status().message().c_str());
    return kCannotListen;
  }
  std::fprintf(stderr, "gpushared-web: serves http://%s/metrics\n", (*server)->address().c_str());
  (*server)->Run();
  answers.Stop();
  return kDone;
}

}  // namespace
}  // namespace gpushared::web

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return gpushared::web::Main({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpushared-web: %s\n", error.what());
    return 1;
  }
}
