// SPDX-License-Identifier: Apache-2.0
// The server as a whole.
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

// Connections, clients and operators that are being served are waited for, and then registries.
constexpr std::chrono::seconds kUpgradeTimeMax{20};
constexpr std::chrono::milliseconds kLookInterval{20};

// The server answers before it gives way. Whether it did is seen by its count.
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
      return Print("version " + begun->value("from", "?") + " gave way to " +
                   server.value("version", "?") + "; " +
                   std::to_string(server.value("sessions", std::size_t{0})) + " sessions go on\n");
    }
    const std::string failure = server.value("upgrade_failure", "");
    if (!failure.empty()) {
      return Complain(*path, {StatusCode::kCancelled,
                              "upgrade given up, the server goes on as it was: " + failure});
    }
    std::this_thread::sleep_for(kLookInterval);
  }
  return Complain(*path, {StatusCode::kInternal,
                          "upgrade: the server has not said within 20 s whether it went on"});
}

// The server's answer, of one device alone.
std::string DeviceSentence(const nlohmann::json& answer) {
  const std::size_t sessions = answer.value("sessions", std::size_t{0});
  std::string text = "device " + answer.value("device", "?") + " is " + answer.value("state", "?");
  if (sessions > 0 && answer.value("state", "") == "draining") {
    text += ": it has " + std::to_string(sessions) + " sessions, and no new ones";
  }
  return text + "\n";
}

void AddDrain(CommandLine& line) {
  const auto device = std::make_shared<std::string>();
  const Command drain =
      AddCommand(line.app, "drain",
                 "take no new clients; the server, or the worker of one device, ends with its last "
                 "session");
  drain.AddOption("DEVICE", *device, "this one alone, until `resume`; a name as clients use it");
  drain.OnUse([&line, device] {
    line.action = [&line, device] {
      return AskAndPrint(
          line, {.verb = ipc::AdminVerb::kDrain, .terms = *device}, [](const auto& answer) {
            if (answer.contains("device")) return DeviceSentence(answer);
            return "the server drains: no new clients; it ends with the last of " +
                   std::to_string(answer.value("sessions", std::size_t{0})) + " sessions\n";
          });
    };
  });
}

void AddResume(CommandLine& line) {
  const auto device = std::make_shared<std::string>();
  const Command resume = AddCommand(line.app, "resume",
                                    "have the server, or a device, that drains or is drained take "
                                    "clients again");
  resume.AddOption("DEVICE", *device, "this one alone, as in `drain`");
  resume.OnUse([&line, device] {
    line.action = [&line, device] {
      return AskAndPrint(
          line, {.verb = ipc::AdminVerb::kResume, .terms = *device}, [](const auto& answer) {
            if (answer.contains("device")) return DeviceSentence(answer);
            return "the server takes clients again, beside " +
                   std::to_string(answer.value("sessions", std::size_t{0})) + " sessions\n";
          });
    };
  });
}

}  // namespace

void AddServerCommands(CommandLine& line) {
  AddDrain(line);
  AddResume(line);
  AddCommand(line.app, "reload", "take over rules and endpoints as the configuration has them now")
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
  AddCommand(line.app, "upgrade", "have the server go on with its program's file as it is now")
      .OnUse([&line] { line.action = [&line] { return Upgrade(line); }; });
}

}  // namespace gpushared::server
