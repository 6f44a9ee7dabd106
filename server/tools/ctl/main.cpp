// SPDX-License-Identifier: Apache-2.0
// gpusharedctl: what an operator asks a running server, and tells it; and what the server
// could do with a file of kernels.

#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/ctl/command_line.h"
#include "server/tools/ctl/doctor/doctor.h"
#include "server/tools/run/run.h"

namespace gpushared::server {
namespace {

// For commands that a build does without: they say so.
[[maybe_unused]] void NameLeftOut(CommandLine& line, const char* name, const char* option) {
  const Command command = line.app.AddCommand(name, "");
  command.HideAndTakeAll();
  command.OnUse([&line, name, option] {
    line.action = [name, option] {
      std::fprintf(
          stderr,
          "gpusharedctl: this build does without %s; packages have it, as has a build with "
          "-D%s=ON\n",
          name, option);
      return kUsage;
    };
  });
}

int Main(std::span<char* const> arguments) {
  const command_line::Program app("Asks and tells a running gpushared server.", "gpusharedctl");
  app.RequireCommand();
  app.FallThrough();  // --json and --socket may stand after the command too.
  app.SetFooter(
      "Exit codes: 0 done; 1 the server, driver or file rejected; 2 the command line makes no "
      "sense; "
      "3 no server answers; 4 the job that advise was asked about does not fit.");
  app.SetVersion(std::string("gpusharedctl ") + GPUSHARED_VERSION);
  CommandLine line{.app = app, .socket = {}, .as_json = false, .action = {}};
  app.AddOption("--socket", line.socket, "the server's socket (default: the usual places)")
      .TypeName("PATH");
  app.AddFlag("--json", line.as_json, "print the server's answer as JSON");
  AddViews(line);
  AddClientCommands(line);
  AddEndpointCommands(line);
  AddServerCommands(line);
  AddTraceCommands(line);
#ifdef GPUSHARED_HAS_ADVICE
  AddAdviseCommands(line);
#else
  NameLeftOut(line, "profile", "GPUSHARED_BUILD_ADVICE");
  NameLeftOut(line, "advise", "GPUSHARED_BUILD_ADVICE");
#endif
  AddPtxCommands(line);
#ifdef GPUSHARED_HAS_MIG
  AddMigCommands(line);
#else
  NameLeftOut(line, "mig", "GPUSHARED_BUILD_MIG");
#endif
  app.AddCommand("run", "start a program with this server as its CUDA driver; see run --help");
  app.AddCommand("doctor", "what will work here, and what to do about the rest; see doctor --help");
  if (const auto stop = app.Parse(arguments); stop) return stop->Print() == 0 ? kDone : kUsage;
  return line.action();
}

// `run` and `doctor` read their own command lines. What stands before them is theirs, too. With a
// null behind the last argument, which `run` hands on.
std::vector<char*> WithCommandFirst(std::span<char* const> arguments) {
  std::vector<char*> ordered(arguments.begin(), arguments.end());
  ordered.push_back(nullptr);
  std::size_t at = 1;
  while (at < arguments.size()) {
    const std::string_view argument = arguments[at];
    if (argument == "--socket") {
      at += 2;
    } else if (argument == "--json" || argument.starts_with("--socket=")) {
      ++at;
    } else {
      break;
    }
  }
  if (at >= arguments.size()) return ordered;
  const std::string_view command = arguments[at];
  if (command != "run" && command != "doctor") return ordered;
  std::rotate(ordered.begin() + 1, ordered.begin() + static_cast<std::ptrdiff_t>(at),
              ordered.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  return ordered;
}

}  // namespace
}  // namespace gpushared::server

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  try {
    const std::vector<char*> ordered =
        gpushared::server::WithCommandFirst({argv, static_cast<std::size_t>(argc)});
    const std::span<char* const> arguments(ordered.data(), static_cast<std::size_t>(argc));
    if (gpushared::server::IsRunCommand(arguments)) return gpushared::server::RunCommand(arguments);
    if (gpushared::server::IsDoctorCommand(arguments)) {
      return gpushared::server::DoctorCommand(arguments);
    }
    return gpushared::server::Main(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpusharedctl: %s\n", error.what());
    return gpushared::server::kRejected;
  }
}
