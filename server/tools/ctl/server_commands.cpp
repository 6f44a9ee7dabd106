// SPDX-License-Identifier: Apache-2.0
// Commands for the server as a whole.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "server/telemetry/admin/ask.h"
#include "server/tools/ctl/command_line.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

// Maximum duration of an upgrade, in which the server finishes open connections and restores its
// registries.
constexpr std::chrono::seconds kUpgradeTimeMax{20};
constexpr std::chrono::milliseconds kPollInterval{20};

// The server answers before it executes the new program, so the upgrade is known to have succeeded
// only when the counter of upgrades in the server's status has grown.
int Upgrade(const CommandLine& line) {
  const std::optional<std::string> path = GetSocket(line);
  if (!path) return kNoServer;
  const Result<nlohmann::json> begun = admin::Ask(*path, {.verb = ipc::AdminVerb::kUpgrade});
  if (!begun.ok()) return Complain(*path, begun.status());
  const auto before = begun->value("upgrades", std::uint64_t{0});
  const auto deadline = std::chrono::steady_clock::now() + kUpgradeTimeMax;
  while (std::chrono::steady_clock::now() < deadline) {
    const Result<nlohmann::json> status = admin::Ask(*path, {.verb = ipc::AdminVerb::kStatus});
    const nlohmann::json server =
        status.ok() ? status->value("server", nlohmann::json::object()) : nlohmann::json::object();
    if (server.value("upgrades", std::uint64_t{0}) > before) {
      if (line.as_json) return Print(server.dump(2) + "\n");
      return Print("version " + begun->value("from", "?") + " was replaced by " +
                   server.value("version", "?") + "; " +
                   std::to_string(server.value("sessions", std::size_t{0})) +
                   " sessions continue\n");
    }
    const std::string failure = server.value("upgrade_failure", "");
    if (!failure.empty()) {
      return Complain(*path, {StatusCode::kCancelled,
                              "upgrade abandoned, the server continues unchanged: " + failure});
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return Complain(*path, {StatusCode::kInternal,
                          "upgrade: the server did not report within 20 s whether it succeeded"});
}

// Formats the answer about a single device.
std::string DescribeDevice(const nlohmann::json& answer) {
  const std::size_t sessions = answer.value("sessions", std::size_t{0});
  std::string text = "device " + answer.value("device", "?") + " is " + answer.value("state", "?");
  if (sessions > 0 && answer.value("state", "") == "draining") {
    text += ": it has " + std::to_string(sessions) + " sessions, and no new ones";
  }
  return text + "\n";
}

void AddDrain(CommandLine& line) {
  const auto device = std::make_shared<std::string>();
  const Command drain = AddCommand(
      line.app, "drain",
      "graceful shutdown of the server, or of one device's worker, after the last session");
  drain.AddOption("DEVICE", *device,
                  "device to drain until `resume`; named as by clients (default: the server)");
  drain.OnUse([&line, device] {
    line.action = [&line, device] {
      return AskAndPrint(
          line, {.verb = ipc::AdminVerb::kDrain, .terms = *device}, [](const auto& answer) {
            if (answer.contains("device")) return DescribeDevice(answer);
            return "the server drains: no new clients; it ends with the last of " +
                   std::to_string(answer.value("sessions", std::size_t{0})) + " sessions\n";
          });
    };
  });
}

void AddResume(CommandLine& line) {
  const auto device = std::make_shared<std::string>();
  const Command resume = AddCommand(
      line.app, "resume", "end of a drain: the server or the device admits clients again");
  resume.AddOption("DEVICE", *device, "device to resume, as in `drain`");
  resume.OnUse([&line, device] {
    line.action = [&line, device] {
      return AskAndPrint(
          line, {.verb = ipc::AdminVerb::kResume, .terms = *device}, [](const auto& answer) {
            if (answer.contains("device")) return DescribeDevice(answer);
            return "the server admits clients again, in addition to " +
                   std::to_string(answer.value("sessions", std::size_t{0})) + " sessions\n";
          });
    };
  });
}

}  // namespace

void AddServerCommands(CommandLine& line) {
  AddDrain(line);
  AddResume(line);
  AddCommand(line.app, "reload",
             "reload of access rules, endpoints and rights from the configuration file")
      .OnUse([&line] {
        line.action = [&line] {
          return AskAndPrint(line, {.verb = ipc::AdminVerb::kReload}, [](const auto& answer) {
            std::string later;
            for (const nlohmann::json& name :
                 answer.value("need_restart", nlohmann::json::array())) {
              later +=
                  (later.empty() ? "" : ", ") + (name.is_string() ? name.get<std::string>() : "?");
            }
            return "the configuration is read again" +
                   (later.empty() ? "" : "; a restart is needed for " + later) + "\n";
          });
        };
      });
  AddCommand(line.app, "upgrade",
             "hot upgrade: execution of the current server binary in place, keeping sessions")
      .OnUse([&line] { line.action = [&line] { return Upgrade(line); }; });
}

}  // namespace gpushared::server
