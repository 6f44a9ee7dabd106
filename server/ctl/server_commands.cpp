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
}

}  // namespace gpushared::server
