// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/doctor/doctor.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

#include "common/command_line/command_line.h"
#include "server/device/inventory/read_inventory.h"
#include "server/tools/ctl/doctor/finding.h"
#include "server/tools/ctl/doctor/machine.h"
#include "server/tools/ctl/doctor/program.h"
#include "server/tools/run/drop_in_directory.h"
#include "server/tools/run/environment.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using doctor::Findings;

enum ExitCode : int { kAllWell = 0, kWillNotWork = 1, kUsage = 2 };

struct DoctorOptions {
  std::string socket, scheduling_class = "normal", drop_in, ptxas, mode;
  bool as_json = false;
};

std::string Variable(const char* name) {
  const char* const value = ::getenv(name);
  return value == nullptr ? "" : value;
}

void Declare(const command_line::Command& app, DoctorOptions& options) {
  app.AddOption("--socket", options.socket,
                "path of the server's socket (default: the standard locations)")
      .TypeName("PATH");
  app.AddOption("--class", options.scheduling_class, "class to request: high, normal or low")
      .OneOf({"high", "normal", "low"});
  app.AddOption("--drop-in", options.drop_in, "directory of the drop-in libcuda.so.1")
      .TypeName("DIRECTORY");
  app.AddOption("--ptxas", options.ptxas, "path of ptxas (default: CUDA's standard locations)")
      .TypeName("PATH");
  app.AddOption("--mode", options.mode,
                "mode of `run` to check for: gate or submit (default: that of `run`)")
      .OneOf({"gate", "submit"});
  app.AddFlag("--json", options.as_json, "output as JSON");
  app.SetFooter(
      "A program after -- is inspected statically, with its libraries and Python packages; it is "
      "not run. Exit codes: 0 no problems; 1 something will not work; 2 usage error.");
}

ClientOptions GetAsked(const DoctorOptions& options) {
  ClientOptions asked;
  asked.name = "gpusharedctl doctor";
  asked.socket = options.socket;
  asked.control_timeout = std::chrono::seconds(10);
  asked.scheduling_class = SchedulingClass::kNormal;
  if (options.scheduling_class == "high") asked.scheduling_class = SchedulingClass::kHigh;
  if (options.scheduling_class == "low") asked.scheduling_class = SchedulingClass::kLow;
  return asked;
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

doctor::Finding CheckMode(const std::string& mode, bool is_chosen) {
  const std::string why = is_chosen        ? "it was chosen"
                          : mode == "gate" ? "this machine has an NVIDIA GPU"
                                           : "this machine has no NVIDIA GPU";
  return doctor::Ok("mode", mode == "gate"
                                ? "`run` uses gate mode, because " + why +
                                      ": the installed driver executes the program's work in turns "
                                      "granted by the server"
                                : "`run` uses submit mode, because " + why +
                                      ": the server executes the program's work");
}

Findings CheckAll(const DoctorOptions& options, std::span<char* const> program) {
  Findings findings;
  const auto add = [&](const Findings& more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  const device::Inventory inventory = device::ReadInventory();
  add(doctor::CheckGpus(inventory));
  add(doctor::CheckCompiler(options.ptxas, !inventory.gpus.empty()));
  findings.push_back(doctor::CheckMemory(doctor::AvailableMemory()));
  const doctor::ServerState server = doctor::CheckServer(GetAsked(options));
  add(server.findings);
  const std::string drop_in = options.drop_in.empty() ? FindDropIn() : options.drop_in;
  add(doctor::CheckDropIn(drop_in));
  const std::string mode = options.mode.empty() ? ChooseMode(Exists) : options.mode;
  findings.push_back(CheckMode(mode, !options.mode.empty()));
  if (program.empty()) return findings;
  const std::string library_path = Variable("LD_LIBRARY_PATH");
  add(doctor::CheckProgram(
      program, {.search_path = Variable("PATH"),
                .library_path = library_path.empty() ? drop_in : drop_in + ":" + library_path,
                .takes_ptx_only = server.takes_ptx_only,
                .is_gated = mode == "gate"}));
  return findings;
}

}  // namespace

bool IsDoctorCommand(std::span<char* const> arguments) {
  return arguments.size() > 1 && std::string_view(arguments[1]) == "doctor";
}

int DoctorCommand(std::span<char* const> arguments) {
  const auto mark = std::find_if(arguments.begin(), arguments.end(), [](const char* argument) {
    return std::string_view(argument) == "--";
  });
  const auto own = static_cast<std::size_t>(mark - arguments.begin());
  const command_line::Program app(
      "Checks of what will work on this machine, with advice for the rest.", "gpusharedctl doctor");
  DoctorOptions options;
  Declare(app, options);
  if (const auto stop = app.Parse(arguments.subspan(1, own - 1)); stop) {
    return stop->Print() == 0 ? kAllWell : kUsage;
  }
  const bool has_program = mark != arguments.end() && own + 1 < arguments.size();
  const Findings findings =
      CheckAll(options, has_program ? arguments.subspan(own + 1) : std::span<char* const>());
  const std::string text =
      options.as_json ? doctor::AsJson(findings).dump(2) + "\n" : doctor::Report(findings);
  std::fputs(text.c_str(), stdout);
  return doctor::HasProblem(findings) ? kWillNotWork : kAllWell;
}

}  // namespace gpushared::server
