// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/cdi.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ipc/socket_path.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;

struct Way {
  std::string name;
  std::filesystem::path socket;
  bool is_lasting = false;  // It is neither the server's own nor a lease.
};

Status Refused(const Way& way, const std::string& why) {
  return {StatusCode::kUnsupported, "entrance '" + way.name + "' refused for containers: " + why};
}

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool LiesIn(const std::filesystem::path& folder, const std::filesystem::path& file) {
  return file.string().starts_with(folder.string() + "/");
}

Result<std::vector<Way>> WaysOf(const json& answer) {
  const Status nonsense(StatusCode::kProtocolViolation, "the server's answer has no entrances");
  const auto rows = answer.find("entrances");
  if (rows == answer.end() || !rows->is_array()) return nonsense;
  std::vector<Way> ways;
  for (const json& row : *rows) {
    if (!row.is_object()) return nonsense;
    const auto name = row.find("entrance"), socket = row.find("socket");
    const bool are_texts =
        name != row.end() && name->is_string() && socket != row.end() && socket->is_string();
    if (!are_texts) return nonsense;
    ways.push_back({.name = *name,
                    .socket = std::filesystem::path(socket->get<std::string>()).lexically_normal(),
                    .is_lasting = row.contains("class") && !row.contains("lessee")});
  }
  return ways;
}

json DeviceOf(const Way& way) {
  const std::string inside = ipc::kSystemSocketFolder;
  return {{"name", way.name},
          {"containerEdits",
           {{"env", {"GPUSHARED_SOCKET=" + inside + "/" + way.socket.filename().string()}},
            {"mounts",
             {{{"hostPath", way.socket.parent_path().string()},
               {"containerPath", inside},
               {"options", {"ro", "nosuid", "nodev", "noexec", "bind"}}}}}}}};
}

}  // namespace

Result<json> CdiFile(const json& answer) {
  const Result<std::vector<Way>> ways = WaysOf(answer);
  if (!ways.ok()) return ways.status();
  json devices = json::array();
  for (const Way& way : *ways) {
    if (!way.is_lasting) continue;
    if (way.name.empty() || !IsLetterOrDigit(way.name.front()) ||
        !IsLetterOrDigit(way.name.back())) {
      return Refused(way, "a device's name begins and ends with a letter or digit");
    }
    for (const Way& other : *ways) {
      if (&other != &way && LiesIn(way.socket.parent_path(), other.socket)) {
        return Refused(way, "its folder " + way.socket.parent_path().string() +
                                " holds the socket of '" + other.name + "', too");
      }
    }
    devices.push_back(DeviceOf(way));
  }
  if (devices.empty()) {
    return Status(StatusCode::kNotFound,
                  "no entrance is for containers: the configuration has none");
  }
  return json{{"cdiVersion", "0.5.0"}, {"kind", "gpushared.io/entrance"}, {"devices", devices}};
}

}  // namespace gpushared::server
