// SPDX-License-Identifier: Apache-2.0
// The server as a whole.
#include "server/ctl/command_line.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

void AddServerCommands(CommandLine& line) {
  AddCommand(line.app, "drain", "take no new clients; the server ends with its last session")
      ->callback([&line] {
        line.action = [&line] {
          return AskAndPrint(line, {.verb = ipc::AdminVerb::kDrain}, [](const auto& answer) {
            return "the server drains: no new clients; it ends with the last of " +
                   std::to_string(answer.value("sessions", std::size_t{0})) + " sessions\n";
          });
        };
      });
  AddCommand(line.app, "reload", "take over rules and entrances as the configuration has them now")
      ->callback([&line] {
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
}

}  // namespace gpushared::server
