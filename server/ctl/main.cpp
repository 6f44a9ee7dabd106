// SPDX-License-Identifier: Apache-2.0
// gpusharedctl: what an operator asks a running server, and tells it; and what the server
// could do with a file of kernels.

#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "ipc/socket_path.h"
#include "server/ctl/ask.h"
#include "server/ctl/doctor/doctor.h"
#include "server/ctl/module_file.h"
#include "server/ctl/ptx_check.h"
#include "server/ctl/report.h"
#include "server/run/run.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;

enum ExitCode : int { kDone = 0, kRefused = 1, kUsage = 2, kNoServer = 3 };

struct Request {
  ipc::Admin admin;
  std::string socket;
  bool as_json = false;
  std::string module_file;  // For `ptx check`, which asks no server.
};

std::optional<ipc::ClientClass> ClassFrom(const std::string& text) {
  if (text == "high") return ipc::ClientClass::kHigh;
  if (text == "normal") return ipc::ClientClass::kNormal;
  if (text == "low") return ipc::ClientClass::kLow;
  return std::nullopt;
}

// The request, or the code to leave with; help and refusals are printed.
struct Parsed {
  std::optional<Request> request;
  int exit_code = kDone;
};

// Texts that CLI11 fills in.
struct Texts {
  std::string socket, scheduling_class, module_file;
  std::uint64_t id = 0, request = 0;
  std::uint32_t weight = 0;
  bool as_json = false;
};

struct Commands {
  CLI::App *status, *ps, *devices, *client, *terminate, *set, *drain, *explain, *ptx, *check;
};

Commands Declare(CLI::App& app, Texts& texts) {
  app.require_subcommand(1);
  app.fallthrough();  // --json and --socket may stand after the command too.
  app.footer(
      "Exit codes: 0 done; 1 the server or the file refused; 2 the command line makes no sense; "
      "3 no server answers.");
  app.set_version_flag("--version", std::string("gpusharedctl ") + GPUSHARED_VERSION);
  app.add_option("--socket", texts.socket, "the server's socket (default: the usual places)")
      ->type_name("PATH");
  app.add_flag("--json", texts.as_json, "print the server's answer as JSON");
  Commands commands{};
  commands.status = app.add_subcommand("status", "the server and its devices at a glance");
  commands.ps = app.add_subcommand("ps", "clients, with what they have used");
  commands.devices = app.add_subcommand("devices", "devices and their workers");
  commands.client = app.add_subcommand("client", "one client");
  commands.client->require_subcommand(1);
  commands.client->fallthrough();
  commands.terminate = commands.client->add_subcommand("terminate", "end a client's session");
  commands.terminate->add_option("id", texts.id, "ID as ps shows it")->required();
  commands.terminate->fallthrough();
  commands.set = commands.client->add_subcommand("set", "change class or weight of a live client");
  commands.set->add_option("id", texts.id, "ID as ps shows it")->required();
  commands.set->add_option("--class", texts.scheduling_class, "high, normal or low")
      ->check(CLI::IsMember({"high", "normal", "low"}));
  commands.set->add_option("--weight", texts.weight, "share inside the class")
      ->check(CLI::Range(1U, ipc::kWeightMax));
  commands.set->fallthrough();
  commands.drain =
      app.add_subcommand("drain", "take no new clients; the server ends with its last session");
  commands.explain = app.add_subcommand("explain", "why a request of a client took so long");
  commands.explain->add_option("id", texts.id, "ID as ps shows it")
      ->required()
      ->type_name("CLIENT");
  commands.explain->add_option("request", texts.request, "its number (default: the slowest known)")
      ->type_name("REQUEST");
  commands.explain->fallthrough();
  app.add_subcommand("run", "start a program with this server as its CUDA driver; see run --help");
  app.add_subcommand("doctor",
                     "what will work here, and what to do about the rest; see doctor --help");
  commands.ptx = app.add_subcommand("ptx", "files of kernels; needs no server");
  commands.ptx->require_subcommand(1);
  commands.ptx->fallthrough();
  commands.check = commands.ptx->add_subcommand("check", "what the server can do with each kernel");
  commands.check->add_option("file", texts.module_file, "PTX, fatbin, executable or shared object")
      ->required()
      ->type_name("FILE");
  commands.check->fallthrough();
  return commands;
}

Parsed Parse(std::span<const char* const> arguments) {
  CLI::App app("Asks and tells a running gpushared server.", "gpusharedctl");
  Texts texts;
  const Commands commands = Declare(app, texts);
  try {
    app.parse(static_cast<int>(arguments.size()), arguments.data());
    if (commands.set->parsed() && texts.scheduling_class.empty() && texts.weight == 0) {
      throw CLI::RequiredError("client set: --class or --weight");
    }
  } catch (const CLI::ParseError& stop) {
    return {.request = std::nullopt, .exit_code = app.exit(stop) == 0 ? kDone : kUsage};
  }
  Request request;
  request.socket = texts.socket;
  request.as_json = texts.as_json;
  request.admin.client = texts.id;
  if (commands.check->parsed()) request.module_file = texts.module_file;
  if (commands.ps->parsed()) request.admin.verb = ipc::AdminVerb::kClients;
  if (commands.devices->parsed()) request.admin.verb = ipc::AdminVerb::kDevices;
  if (commands.terminate->parsed()) request.admin.verb = ipc::AdminVerb::kTerminate;
  if (commands.explain->parsed()) {
    request.admin.verb = ipc::AdminVerb::kExplain;
    request.admin.request = texts.request;
  }
  if (commands.drain->parsed()) request.admin.verb = ipc::AdminVerb::kDrain;
  if (commands.set->parsed()) {
    request.admin.verb = ipc::AdminVerb::kSet;
    request.admin.client_class = ClassFrom(texts.scheduling_class);
    if (texts.weight > 0) request.admin.weight = texts.weight;
  }
  return {.request = std::move(request)};
}

std::string Sentence(const ipc::Admin& admin, const json& reply) {
  switch (admin.verb) {
    case ipc::AdminVerb::kStatus:
      return StatusReport(reply);
    case ipc::AdminVerb::kClients:
      return ClientsReport(reply);
    case ipc::AdminVerb::kDevices:
      return DevicesReport(reply);
    case ipc::AdminVerb::kTerminate:
      return "client " + std::to_string(admin.client) + " is terminated\n";
    case ipc::AdminVerb::kSet:
      return "client " + std::to_string(admin.client) + " is changed\n";
    case ipc::AdminVerb::kExplain:
      return ExplainReport(reply);
    case ipc::AdminVerb::kDrain: {
      const std::size_t sessions = reply.value("sessions", std::size_t{0});
      return "the server drains: no new clients; it ends with the last of " +
             std::to_string(sessions) + " sessions\n";
    }
  }
  return "";
}

int Print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? kDone : kRefused;
}

int CheckFile(const Request& request) {
  const Result<std::vector<std::byte>> file = ReadWholeFile(request.module_file);
  const Result<json> checked = file ? CheckPtx(*file) : Result<json>(file.status());
  if (!checked) {
    std::fprintf(stderr, "gpusharedctl: %s: %s\n", request.module_file.c_str(),
                 checked.status().message().c_str());
    return kRefused;
  }
  return Print(request.as_json ? checked->dump(2) + "\n" : PtxReport(*checked));
}

int Run(const Request& request) {
  if (!request.module_file.empty()) return CheckFile(request);
  const Result<std::string> path = ipc::ClientSocketPath(request.socket);
  if (!path.ok()) {
    std::fprintf(stderr, "gpusharedctl: no gpushared server answers: %s\n",
                 path.status().message().c_str());
    return kNoServer;
  }
  const Result<ipc::AdminReply> reply = Ask(*path, request.admin);
  if (!reply.ok()) {
    const Status why = reply.status();
    const bool nobody = why.code() == StatusCode::kUnavailable ||
                        why.code() == StatusCode::kDisconnected ||
                        why.code() == StatusCode::kTimedOut;
    std::fprintf(
        stderr,
        nobody ? "gpusharedctl: no gpushared server answers at %s: %s\n" : "gpusharedctl: %s: %s\n",
        path->c_str(), why.message().c_str());
    return nobody ? kNoServer : kRefused;
  }
  if (reply->code != StatusCode::kOk) {
    std::fprintf(stderr, "gpusharedctl: %s\n", reply->text.c_str());
    return kRefused;
  }
  const json parsed = json::parse(reply->text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    std::fprintf(stderr, "gpusharedctl: the server at %s sent no JSON object\n", path->c_str());
    return kRefused;
  }
  const std::string text =
      request.as_json ? parsed.dump(2) + "\n" : Sentence(request.admin, parsed);
  return Print(text);
}

}  // namespace
}  // namespace gpushared::server

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  const std::span<char* const> arguments(argv, static_cast<std::size_t>(argc));
  try {
    if (gpushared::server::IsRunCommand(arguments)) return gpushared::server::RunCommand(arguments);
    if (gpushared::server::IsDoctorCommand(arguments)) {
      return gpushared::server::DoctorCommand(arguments);
    }
    const gpushared::server::Parsed parsed = gpushared::server::Parse({argv, arguments.size()});
    return parsed.request ? gpushared::server::Run(*parsed.request) : parsed.exit_code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpusharedctl: %s\n", error.what());
    return gpushared::server::kRefused;
  }
}
