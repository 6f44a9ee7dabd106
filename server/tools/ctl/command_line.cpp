// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/command_line.h"

#include <charconv>
#include <cstddef>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "ipc/socket_path.h"
#include "server/telemetry/admin/ask.h"
#include "server/tools/ctl/table.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

Command AddCommand(const Command& parent, const std::string& name, const std::string& help) {
  const Command command = parent.AddCommand(name, help);
  command.FallThrough();
  return command;
}

int Print(const std::string& text) {
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0 ? kDone : kRejected;
}

std::optional<std::string> GetSocket(const CommandLine& line) {
  Result<std::string> path = ipc::ClientSocketPath(line.socket);
  if (path.ok()) return std::move(*path);
  std::fprintf(stderr, "gpusharedctl: no gpushared server answers: %s\n",
               path.status().message().c_str());
  return std::nullopt;
}

int Complain(const std::string& path, const Status& why) {
  const bool nobody = admin::IsUnreachable(why);
  std::fprintf(
      stderr,
      nobody ? "gpusharedctl: no gpushared server answers at %s: %s\n" : "gpusharedctl: %s: %s\n",
      path.c_str(), Printable(why.message()).c_str());
  return nobody ? kNoServer : kRejected;
}

Result<std::uint64_t> ClientNamed(const std::string& socket, const std::string& id_or_name) {
  std::uint64_t id = 0;
  const char* const end = id_or_name.data() + id_or_name.size();
  const auto [stop, error] = std::from_chars(id_or_name.data(), end, id);
  if (error == std::errc() && stop == end && id > 0) return id;
  const Result<nlohmann::json> answer = admin::Ask(socket, {.verb = ipc::AdminVerb::kClients});
  if (!answer.ok()) return answer.status();
  std::vector<std::uint64_t> found;
  std::string known, ids;
  std::size_t clients = 0;
  constexpr std::size_t kNamedMax = 8;
  for (const nlohmann::json& row : answer->value("clients", nlohmann::json::array())) {
    if (!row.is_object()) continue;
    const std::string name = row.value("name", "");
    const auto number = row.value("client", std::uint64_t{0});
    if (++clients <= kNamedMax) {
      known += (known.empty() ? "" : ", ") + std::to_string(number) + " '" + Printable(name) + "'";
    }
    if (name != id_or_name) continue;
    found.push_back(number);
    ids += (ids.empty() ? "" : ", ") + std::to_string(number);
  }
  if (found.size() == 1) return found.front();
  const std::string asked = "'" + Printable(id_or_name) + "'";
  if (!found.empty()) {
    return Status(StatusCode::kInvalidArgument, std::to_string(found.size()) +
                                                    " clients are called " + asked + ": " + ids +
                                                    "; name one by its ID");
  }
  if (clients > kNamedMax) known += ", ...";
  return Status(StatusCode::kNotFound,
                "there is no client " + asked + "; " +
                    (known.empty() ? "none is connected" : "connected are " + known));
}

int AskAndPrint(const CommandLine& line, const ipc::Admin& question, const Report& report) {
  const std::optional<std::string> path = GetSocket(line);
  if (!path) return kNoServer;
  const Result<nlohmann::json> answer = admin::Ask(*path, question);
  if (!answer.ok()) return Complain(*path, answer.status());
  return Print(line.as_json ? answer->dump(2) + "\n" : report(*answer));
}

}  // namespace gpushared::server
