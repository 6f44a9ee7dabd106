// SPDX-License-Identifier: Apache-2.0
// Commands that set or show bounds. Arguments are checked first, and the server is asked for the
// device or server that they name: a script with a mistake learns of it in any case.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "ipc/share.h"
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

constexpr const char* kForNewClients =
    ": for clients that connect from now on and ask for nothing themselves, until the server ends; "
    "gpushared.toml has what stays";

Status Unsupported(const std::string& sentence) { return {StatusCode::kUnsupported, sentence}; }

std::string PercentText(double percent) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f\n", percent);
  return text.data();
}

// In the form that MPS takes: "2G", "512M". It has no smaller unit.
std::string LimitText(std::uint64_t bytes) {
  constexpr std::uint64_t kMebi = std::uint64_t{1} << 20, kGibi = std::uint64_t{1} << 30;
  return bytes % kGibi == 0 ? std::to_string(bytes / kGibi) + "G\n"
                            : std::to_string(bytes / kMebi) + "M\n";
}

double NumberIn(const json& row, const char* field, double otherwise) {
  const auto found = row.is_object() ? row.find(field) : row.end();
  return row.is_object() && found != row.end() && found->is_number() ? found->get<double>()
                                                                     : otherwise;
}

}  // namespace

Result<json> Control::NewClients() const {
  const Result<json> status = Ask({.verb = ipc::AdminVerb::kStatus});
  if (!status.ok()) return status.status();
  const json server = status->value("server", json::object());
  return server.is_object() ? server.value("new_clients", json::object()) : json::object();
}

Result<Answer> Control::SetNewClients(const std::string& command, const std::string& terms) const {
  const Result<json> set = Ask({.verb = ipc::AdminVerb::kSet, .terms = terms});
  if (!set.ok()) return set.status();
  return Answer{.note = command + kForNewClients};
}

Result<json> Control::ClientsAt(const json& server) const {
  const Result<json> clients = Clients();
  if (!clients.ok()) return clients.status();
  json here = json::array();
  for (const json& client : *clients) {
    if (client.value("worker_pid", json()) == server.value("worker_pid", json(-1))) {
      here.push_back(client);
    }
  }
  return here;
}

// ---- percentages: of device time

Result<Answer> Control::SetDefaultShare(const Arguments& arguments) const {
  const Result<double> percentage = Percentage(arguments[0]);
  if (!percentage.ok()) return percentage.status();
  return SetNewClients("set_default_active_thread_percentage",
                       "client_max_share = \"" + arguments[0] + "%\"");
}

Result<Answer> Control::GetDefaultShare(const Arguments&) const {
  const Result<json> bounds = NewClients();
  if (!bounds.ok()) return bounds.status();
  return Answer{.text = PercentText(NumberIn(*bounds, "max_share_percent", 100))};
}

// MPS has a percentage of each server for clients that come. The clients that are there have one
// here.
Result<Answer> Control::SetShare(const Arguments& arguments) const {
  const Result<double> percentage = Percentage(arguments[1]);
  if (!percentage.ok()) return percentage.status();
  const Result<std::uint32_t> share = ipc::ParseShare(arguments[1] + "%");
  if (!share.ok()) return share.status();
  const Result<json> server = ServerOf(arguments[0]);
  if (!server.ok()) return server.status();
  const Result<json> clients = ClientsAt(*server);
  if (!clients.ok()) return clients.status();
  std::size_t changed = 0;
  for (const json& client : *clients) {
    const Result<json> set = Ask({.verb = ipc::AdminVerb::kSet,
                                  .client = client.value("client", std::uint64_t{0}),
                                  .max_share = *share});
    // It may leave by itself meanwhile.
    if (!set.ok() && set.status().code() != StatusCode::kNotFound) return set.status();
    changed += set.ok() ? 1 : 0;
  }
  return Answer{.note = "set_active_thread_percentage: for the " + std::to_string(changed) +
                        " clients that server " + arguments[0] +
                        " has now; set_default_active_thread_percentage is for new ones"};
}

Result<Answer> Control::GetShare(const Arguments& arguments) const {
  const Result<json> server = ServerOf(arguments[0]);
  if (!server.ok()) return server.status();
  const Result<json> clients = ClientsAt(*server);
  if (!clients.ok()) return clients.status();
  if (clients->empty()) return GetDefaultShare({});
  double least = 100;
  for (const json& client : *clients) {
    least = std::min(least, NumberIn(client, "max_share_percent", 100));
  }
  return Answer{.text = PercentText(least)};
}

// ---- memory

Result<Answer> Control::SetDefaultMemory(const Arguments& arguments) const {
  const Result<std::uint64_t> limit = MemoryLimit(arguments[1]);
  if (!limit.ok()) return limit.status();
  const Result<json> device = DeviceNamed(arguments[0]);
  if (!device.ok()) return device.status();
  return SetNewClients("set_default_device_pinned_mem_limit",
                       "client_memory = \"" + std::to_string(*limit >> 20U) + "MiB\"\ndevices = [" +
                           device->value("device", json("")).dump() + "]");
}

Result<Answer> Control::GetDefaultMemory(const Arguments& arguments) const {
  const Result<json> device = DeviceNamed(arguments[0]);
  if (!device.ok()) return device.status();
  const Result<json> bounds = NewClients();
  if (!bounds.ok()) return bounds.status();
  const std::string id = device->value("device", "");
  // Without a limit a client may have what the device has.
  const double most = NumberIn(*device, "memory_bytes", 0);
  const json limits = bounds->value("memory_bytes", json::object());
  return Answer{.text = LimitText(static_cast<std::uint64_t>(NumberIn(limits, id.c_str(), most)))};
}

// What a client has is its own for as long as it lives: no limit takes it away.
Result<Answer> Control::SetMemory(const Arguments& arguments) const {
  const Result<std::uint64_t> limit = MemoryLimit(arguments[2]);
  if (!limit.ok()) return limit.status();
  const Result<json> server = ServerOf(arguments[0]);
  if (!server.ok()) return server.status();
  return SetDefaultMemory({arguments[1], arguments[2]});
}

Result<Answer> Control::GetMemory(const Arguments& arguments) const {
  const Result<json> server = ServerOf(arguments[0]);
  if (!server.ok()) return server.status();
  return GetDefaultMemory({arguments[1]});
}

// ---- classes

Result<Answer> Control::SetPriority(const Arguments& arguments) const {
  const Result<std::uint64_t> level = Number(arguments[0], "client priority", 0, 1);
  if (!level.ok()) return level.status();
  return SetNewClients("set_default_client_priority",
                       *level == 0 ? "class = \"normal\"" : "class = \"low\"");
}

Result<Answer> Control::GetPriority(const Arguments&) const {
  const Result<json> bounds = NewClients();
  if (!bounds.ok()) return bounds.status();
  return Answer{.text = bounds->value("class", json()) == "low" ? "1\n" : "0\n"};
}

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
