// SPDX-License-Identifier: Apache-2.0
#include "server/telemetry/admin/containers.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

namespace gpushared::admin {
namespace {

using nlohmann::json;

// One endpoint in the server's answer.
struct EndpointRow {
  std::string name;
  std::filesystem::path socket;
  std::vector<std::string> devices;
  bool is_lasting = false;  // Open, and neither the server's own socket nor a lease.
};

Status Rejected(const std::string& endpoint, const std::string& why) {
  return {StatusCode::kUnsupported, "endpoint '" + endpoint + "' rejected for containers: " + why};
}

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool IsInside(const std::filesystem::path& directory, const std::filesystem::path& file) {
  return file.string().starts_with(directory.string() + "/");
}

std::optional<EndpointRow> GetRow(const json& object) {
  if (!object.is_object()) return std::nullopt;
  const auto name = object.find("endpoint"), socket = object.find("socket");
  const bool are_texts =
      name != object.end() && name->is_string() && socket != object.end() && socket->is_string();
  if (!are_texts) return std::nullopt;
  const auto open = object.find("open");
  const bool is_closed = open != object.end() && open->is_boolean() && !open->get<bool>();
  EndpointRow row = {
      .name = *name,
      .socket = std::filesystem::path(socket->get<std::string>()).lexically_normal(),
      .is_lasting = object.contains("class") && !object.contains("lessee") && !is_closed};
  const auto devices = object.find("devices");
  if (devices == object.end()) return row;
  if (!devices->is_array()) return std::nullopt;
  for (const json& device : *devices) {
    if (!device.is_string()) return std::nullopt;
    row.devices.push_back(device);
  }
  return row;
}

Status Fits(const EndpointRow& row, const std::vector<EndpointRow>& rows) {
  if (row.name.empty() || !IsLetterOrDigit(row.name.front()) || !IsLetterOrDigit(row.name.back())) {
    return Rejected(row.name, "a device's name must begin and end with a letter or digit");
  }
  for (const EndpointRow& other : rows) {
    if (&other != &row && IsInside(row.socket.parent_path(), other.socket)) {
      return Rejected(row.name, "its directory " + row.socket.parent_path().string() +
                                    " holds the socket of '" + other.name + "', too");
    }
  }
  return Status::Ok();
}

}  // namespace

json CdiEdits(const std::map<std::string, std::string>& variables,
              std::span<const ContainerMount> mounts) {
  json edits = {{"env", json::array()}, {"mounts", json::array()}};
  for (const auto& [name, value] : variables) {
    std::string setting = name;
    edits["env"].push_back(setting.append("=").append(value));
  }
  for (const ContainerMount& mount : mounts) {
    json options = {"ro", "nosuid", "nodev"};
    if (!mount.has_programs) options.push_back("noexec");
    options.push_back("bind");
    edits["mounts"].push_back({{"hostPath", mount.directory},
                               {"containerPath", mount.directory_inside},
                               {"options", options}});
  }
  return edits;
}

Result<std::vector<ContainerEndpoint>> ReadContainerEndpoints(const json& answer) {
  const Status invalid(StatusCode::kProtocolViolation, "the server's answer has no endpoints");
  const auto list = answer.find("endpoints");
  if (list == answer.end() || !list->is_array()) return invalid;
  std::vector<EndpointRow> rows;
  for (const json& each : *list) {
    std::optional<EndpointRow> row = GetRow(each);
    if (!row) return invalid;
    rows.push_back(*std::move(row));
  }
  std::vector<ContainerEndpoint> endpoints;
  for (const EndpointRow& row : rows) {
    if (!row.is_lasting) continue;
    endpoints.push_back(
        {.name = row.name,
         .directory = row.socket.parent_path().string(),
         .socket_inside = std::string(kContainerDirectory) + "/" + row.socket.filename().string(),
         .devices = row.devices,
         .fits = Fits(row, rows)});
  }
  return endpoints;
}

Result<json> CdiFile(std::span<const ContainerEndpoint> endpoints) {
  json devices = json::array();
  for (const ContainerEndpoint& endpoint : endpoints) {
    if (!endpoint.fits.ok()) return endpoint.fits;
    const ContainerMount mount = {.directory = endpoint.directory,
                                  .directory_inside = kContainerDirectory};
    devices.push_back(
        {{"name", endpoint.name},
         {"containerEdits", CdiEdits({{kSocketVariable, endpoint.socket_inside}}, {&mount, 1})}});
  }
  if (devices.empty()) {
    return Status(StatusCode::kNotFound,
                  "no endpoint for containers: the configuration defines none");
  }
  return json{{"cdiVersion", "0.5.0"}, {"kind", kCdiKind}, {"devices", devices}};
}

Status ReplaceFile(const std::string& file, const std::string& text) {
  const std::string part = file + ".part";
  std::ofstream(part) << text << std::flush;
  std::error_code error;
  if (std::filesystem::file_size(part, error) == text.size() && !error) {
    std::filesystem::rename(part, file, error);
    if (!error) return Status::Ok();
  }
  return {StatusCode::kInternal, "cannot write " + file + (error ? ": " + error.message() : "")};
}

}  // namespace gpushared::admin
