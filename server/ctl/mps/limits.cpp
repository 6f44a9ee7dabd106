// SPDX-License-Identifier: Apache-2.0
// Commands that set or show bounds. Arguments are checked first, and the server is asked for the
// device or server that they name: a script with a mistake learns of it in any case.
#include "server/ctl/mps/control.h"
#include "server/ctl/mps/input.h"
#include "server/ctl/table.h"

#include <nlohmann/json.hpp>

namespace gpushared::server::mps {
namespace {

using nlohmann::json;

constexpr Column kPartitionColumns[] = {
    {.heading = "GPU", .field = "gpu", .is_text = true},
    {.heading = "CLASS", .field = "class", .is_text = true},
    {.heading = "ASKED", .field = "asked"},
    {.heading = "SMS", .field = "granted"},
};

// Default of the server: a client that neither a rule nor it itself caps may use all device time.
constexpr const char* kWholeDevice = "100.0\n";

Status Unsupported(const std::string& sentence) { return {StatusCode::kUnsupported, sentence}; }

Status NoShares() {
  return Unsupported(
      "active thread percentage refused: it is a rule of the configuration, max_share of "
      "[[access]] "
      "or [[entrance]], taken over by gpusharedctl reload; for one client, gpusharedctl client set "
      "ID --max-share PERCENT%");
}

Status NoMemoryLimit() {
  return Unsupported(
      "memory limit refused: it is a rule of the configuration, client_memory of [[access]] or "
      "[[entrance]]; gpusharedctl reload takes it over");
}

Status NoPriority() {
  return Unsupported(
      "default client priority refused: it is a rule of the configuration, highest_class of "
      "[[access]] or class of [[entrance]]; gpusharedctl reload takes it over");
}

}  // namespace

// ---- percentages: of device time

Result<Answer> Control::SetDefaultShare(const Arguments& arguments) const {
  const Result<double> percentage = Percentage(arguments[0]);
  return percentage.ok() ? NoShares() : percentage.status();
}

Result<Answer> Control::GetDefaultShare(const Arguments&) const {
  const Result<json> devices = Devices();  // Scripts ask this to see whether a server is there.
  if (!devices.ok()) return devices.status();
  return Answer{.text = kWholeDevice};
}

Result<Answer> Control::SetShare(const Arguments& arguments) const {
  const Result<double> percentage = Percentage(arguments[1]);
  if (!percentage.ok()) return percentage.status();
  const Result<json> server = ServerOf(arguments[0]);
  return server.ok() ? NoShares() : server.status();
}

Result<Answer> Control::GetShare(const Arguments& arguments) const {
  const Result<json> server = ServerOf(arguments[0]);
  if (!server.ok()) return server.status();
  return Answer{.text = kWholeDevice};
}

// ---- memory

Result<Answer> Control::SetDefaultMemory(const Arguments& arguments) const {
  const Result<std::uint64_t> limit = MemoryLimit(arguments[1]);
  if (!limit.ok()) return limit.status();
  return GetDefaultMemory({arguments[0]});
}

Result<Answer> Control::GetDefaultMemory(const Arguments& arguments) const {
  const Result<json> device = DeviceNamed(arguments[0]);
  return device.ok() ? NoMemoryLimit() : device.status();
}

Result<Answer> Control::SetMemory(const Arguments& arguments) const {
  const Result<std::uint64_t> limit = MemoryLimit(arguments[2]);
  if (!limit.ok()) return limit.status();
  return GetMemory({arguments[0], arguments[1]});
}

Result<Answer> Control::GetMemory(const Arguments& arguments) const {
  const Result<json> server = ServerOf(arguments[0]);
  if (!server.ok()) return server.status();
  return GetDefaultMemory({arguments[1]});
}

// ---- classes

Result<Answer> Control::SetPriority(const Arguments& arguments) const {
  const Result<std::uint64_t> level = Number(arguments[0], "client priority", 0, 1);
  return level.ok() ? NoPriority() : level.status();
}

Result<Answer> Control::GetPriority(const Arguments&) const { return NoPriority(); }

// ---- multiprocessors

Result<Answer> Control::Partition(const Arguments& arguments) const {
  const bool is_add = arguments[0] == "add";
  if (!is_add && arguments[0] != "rm") {
    return Status(StatusCode::kInvalidArgument,
                  "sm_partition refused: asked for '" + arguments[0] + "', allowed are add and rm");
  }
  if (is_add) {
    const Result<std::uint64_t> chunks = Number(arguments[2], "chunks", 1, kChunksMax);
    if (!chunks.ok()) return chunks.status();
  }
  const Result<json> device = DeviceNamed(arguments[1]);
  if (!device.ok()) return device.status();
  return Unsupported("sm_partition " + arguments[0] +
                     " refused: multiprocessors are given to classes, by --sm-limit when the "
                     "server starts; see lspart");
}

Result<Answer> Control::Partitions(const Arguments&) const {
  const Result<json> devices = Devices();
  if (!devices.ok()) return devices.status();
  json rows = json::array();
  for (const json& device : *devices) {
    const auto limits = device.find("sm_limits");
    if (limits == device.end() || !limits->is_array()) continue;
    for (json limit : *limits) {
      if (!limit.is_object()) continue;
      limit["gpu"] = device.contains("uuid") ? device["uuid"] : device.value("device", json());
      rows.push_back(std::move(limit));
    }
  }
  return Answer{.text = Table(rows, kPartitionColumns, {.wide = true})};
}

}  // namespace gpushared::server::mps
