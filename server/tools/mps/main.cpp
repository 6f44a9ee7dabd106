// SPDX-License-Identifier: Apache-2.0
// gpushared-mps-control: executes commands of nvidia-cuda-mps-control on a gpushared server, from
// its arguments or, one per line, from stdin. nvidia-cuda-mps-control may be a link to it.

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/socket_path.h"
#include "ipc/wire/bytes.h"
#include "server/telemetry/admin/ask.h"
#include "server/tools/mps/commands.h"
#include "server/tools/mps/input.h"

namespace gpushared::server::mps {
namespace {

constexpr const char* kName = "gpushared-mps-control";
// Set by Slurm in jobs, prologs and epilogs.
constexpr const char* kJobVariable = "SLURM_JOB_ID";

enum ExitCode : int { kDone = 0, kRejected = 1, kUsage = 2, kNoServer = 3 };

void PrintError(const std::string& what) { std::fprintf(stderr, "%s: %s\n", kName, what.c_str()); }

int Complain(const Status& why) {
  const bool nobody = admin::IsUnreachable(why);
  // The server's message may quote a client's text, so it is made printable.
  PrintError((nobody ? "no gpushared server answers: " : "") + ipc::PrintableText(why.message()));
  return nobody ? kNoServer : kRejected;
}

int Usage() {
  std::printf(
      "Usage: %s [--socket PATH] [COMMAND ...]\n"
      "Commands of nvidia-cuda-mps-control for a gpushared server. Without a command, reads one "
      "per\n"
      "line from stdin. A server's PID is that of a device's worker. Percentages are of device "
      "time.\n"
      "\n%s\n"
      "  -d, -f      check whether a server is running\n"
      "  -v          version of the program\n"
      "  --socket    path of the server's socket (default: the standard locations)\n"
      "\n"
      "Exit codes: 0 done; 1 a command was rejected; 2 usage error; 3 no server is running.\n",
      kName, Help().c_str());
  return kDone;
}

// Result of one line.
struct Outcome {
  int code = kDone;
  bool is_end = false;
};

Outcome DoLine(const std::string& socket, std::string_view line) {
  const Result<std::vector<std::string>> words = Words(line);
  if (!words.ok()) return {Complain(words.status())};
  if (words->empty()) return {};
  // getenv is safe here, because this program does not modify the environment.
  const Result<Answer> answer = Do(socket, *words, std::getenv(kJobVariable) != nullptr);
  if (!answer.ok()) return {Complain(answer.status())};
  if (!answer->note.empty()) PrintError(answer->note);
  const bool written = std::fputs(answer->text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return {written ? kDone : kRejected, answer->is_end};
}

int DoLines(const std::string& socket) {
  int worst = kDone;
  while (const std::optional<std::string> line = NextLine(std::cin)) {
    const Outcome outcome = DoLine(socket, *line);
    worst = std::max(worst, outcome.code);
    if (outcome.is_end) break;
  }
  return worst;
}

// Handles -d and -f, with which scripts start MPS: only checks that a server answers, because the
// system starts the gpushared server.
int SeeWhetherItRuns(const std::string& option, const std::string& socket) {
  const Result<Answer> servers = Do(socket, {"get_server_list"}, false);
  // A server that rejects the request, because the user may not list servers, is running as well.
  if (servers.ok() || !admin::IsUnreachable(servers.status())) {
    PrintError(option + ": nothing to do, a server answers at " + socket);
    return kDone;
  }
  const int code = Complain(servers.status());
  PrintError(
      option +
      " rejected: this program starts no server; use systemctl start gpushared, or gpushared");
  return code;
}

int Main(std::span<char* const> given) {
  std::vector<std::string> arguments(given.begin(), given.end());
  if (!arguments.empty()) arguments.erase(arguments.begin());
  std::string asked;
  if (arguments.size() >= 2 && arguments[0] == "--socket") {
    asked = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  const std::string first = arguments.empty() ? "" : arguments[0];
  if (arguments.size() == 1) {
    if (first == "-h" || first == "--help") return Usage();
    if (first == "-v" || first == "--version") {
      std::printf("%s %s\n", kName, GPUSHARED_VERSION);
      return kDone;
    }
  }
  // The options that start MPS. They have no effect here, because one gpushared server serves all
  // users.
  const auto starts = [](const std::string& each) {
    return each == "-d" || each == "-f" || each == "-multiuser-server";
  };
  const auto wrong = std::ranges::find_if_not(arguments, starts);
  const auto start = std::ranges::find_if(
      arguments, [](const std::string& each) { return each == "-d" || each == "-f"; });
  const bool is_start = wrong == arguments.end() && start != arguments.end();
  if (first.starts_with('-') && !is_start) {
    PrintError("option '" + (wrong == arguments.end() ? first : *wrong) +
               "' rejected; allowed: --socket PATH, -d or -f with -multiuser-server, and -h or -v "
               "alone");
    return kUsage;
  }
  const Result<std::string> socket = ipc::ClientSocketPath(asked);
  if (!socket.ok()) {
    PrintError("no gpushared server answers: " + socket.status().message());
    return kNoServer;
  }
  if (is_start) return SeeWhetherItRuns(*start, *socket);
  if (arguments.empty()) return DoLines(*socket);
  std::string line;
  for (const std::string& argument : arguments) line += (line.empty() ? "" : " ") + argument;
  return DoLine(*socket, line).code;
}

}  // namespace
}  // namespace gpushared::server::mps

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return gpushared::server::mps::Main({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpushared-mps-control: %s\n", error.what());
    return 1;
  }
}
