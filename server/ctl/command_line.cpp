// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/command_line.h"

#include <cstdio>

#include "ipc/socket_path.h"
#include "server/admin/ask.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

Command AddCommand(const Command& parent, const std::string& name, const std::string& help) {
  const Command command = parent.AddCommand(name, help);
  command.FallThrough();
  return command;
}

int Print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? kDone : kRefused;
}

std::optional<std::string> SocketOf(const CommandLine& line) {
  Result<std::string> path = ipc::ClientSocketPath(line.socket);
  if (path.ok()) return std::move(*path);
  std::fprintf(stderr, "gpusharedctl: no gpushared server answers: %s\n",
               path.status().message().c_str());
  return std::nullopt;
}

int Complain(const std::string& path, const Status& why) {
  const bool nobody = admin::NobodyAnswers(why);
  std::fprintf(
      stderr,
      nobody ? "gpusharedctl: no gpushared server answers at %s: %s\n" : "gpusharedctl: %s: %s\n",
      path.c_str(), why.message().c_str());
  return nobody ? kNoServer : kRefused;
}

int AskAndPrint(const CommandLine& line, const ipc::Admin& question, const Report& report) {
  const std::optional<std::string> path = SocketOf(line);
  if (!path) return kNoServer;
  const Result<nlohmann::json> answer = admin::Ask(*path, question);
  if (!answer.ok()) return Complain(*path, answer.status());
  return Print(line.as_json ? answer->dump(2) + "\n" : report(*answer));
}

}  // namespace gpushared::server
