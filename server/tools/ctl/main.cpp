// SPDX-License-Identifier: Apache-2.0
// gpusharedctl: administers a running server, and checks files of kernels.

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

// Registers a command that this build omits. The command reports which build option enables it.
[[maybe_unused]] void NameLeftOut(CommandLine& line, const char* name, const char* option) {
  const Command command = line.app.AddCommand(name, "");
  command.HideAndTakeAll();
  command.OnUse([&line, name, option] {
    line.action = [name, option] {
      std::fprintf(
          stderr,
          "gpusharedctl: this build does not include %s; use the packages, or build with -D%s=ON\n",
          name, option);
      return kUsage;
    };
  });
}

int Main(std::span<char* const> arguments) {
  const command_line::Program app("Administers a running gpushared server.", "gpusharedctl");
  app.RequireCommand();
  app.FallThrough();  // Accept --json and --socket after the command, too.
  app.SetFooter(
      "Exit codes: 0 done; 1 rejected by the server, driver or file; 2 usage error; 3 no server is "
      "running; 4 the job given to advise does not fit.");
  app.SetVersion(std::string("gpusharedctl ") + GPUSHARED_VERSION);
  CommandLine line{.app = app, .socket = {}, .as_json = false, .action = {}};
  app.AddOption("--socket", line.socket,
                "path of the server's socket (default: the standard locations)")
      .TypeName("PATH");
  app.AddFlag("--json", line.as_json, "output as JSON");
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
  app.AddCommand("run",
                 "execution of a program with this server as its CUDA driver; see run --help");
  app.AddCommand("doctor", "checks of this machine and of programs; see doctor --help");
  if (const auto stop = app.Parse(arguments); stop) return stop->Print() == 0 ? kDone : kUsage;
  return line.action();
}

// Moves the command `run` or `doctor` to the front, because these parse their own arguments,
// including those before the command. Terminates the arguments with a null pointer, which `run`
// passes on.
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
