// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/update.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "server/telemetry/admin/json_fields.h"

namespace gpushared::web {
namespace {

using admin::Member;
using nlohmann::json;

constexpr const char* kOfServer[] = {"version", "policy", "state", "uptime_s", "sessions"};
constexpr const char* kOfDevice[] = {
    "device",     "name",         "kind",         "state",         "generation", "sessions",
    "up_s",       "memory_bytes", "mapped_bytes", "device_time_s", "gap_s",      "gap_used_percent",
    "overloaded", "missing",      "last_death",   "host_steal_s"};
constexpr const char* kOfClient[] = {"client",
                                     "name",
                                     "class",
                                     "device",
                                     "device_time_s",
                                     "memory_bytes",
                                     "quota_bytes",
                                     "commands",
                                     "starved_for_s",
                                     "requests",
                                     "requests_target_met",
                                     "stops",
                                     "request_p50_us",
                                     "request_p99_us",
                                     "latency_target_us",
                                     "target_met_percent",
                                     "queue_wait_p99_us"};

double Milliseconds(MonotonicTime time) {
  return std::chrono::duration<double, std::milli>(time.time_since_epoch()).count();
}

template <std::size_t kSize>
json Picked(const json& object, const char* const (&keys)[kSize]) {
  json picked = json::object();
  for (const char* const key : keys) {
    if (const json& value = Member(object, key); !value.is_null()) picked[key] = value;
  }
  return picked;
}

int GetRank(const json& client) {
  const json& name = Member(client, "class");
  return name == "high" ? 0 : name == "normal" ? 1 : 2;
}

// Returns the rows of the clients of all devices. Ignores entries that are not objects.
std::vector<const json*> ClientRows(const json& clients) {
  std::vector<const json*> rows;
  for (const json& row : Member(clients, "clients")) {
    if (row.is_object()) rows.push_back(&row);
  }
  return rows;
}

std::string TextOfUpdate(const json& update) {
  // Invalid UTF-8 is replaced, because names come from clients.
  return update.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string UpdateText(const json& status, const json& clients, const Timelines& timelines,
                       const std::string& host, MonotonicTime now) {
  json update = {{"at_ms", Milliseconds(now)},
                 {"host", host},
                 {"server", Picked(Member(status, "server"), kOfServer)},
                 {"devices", json::array()},
                 {"clients", json::array()}};
  for (const json& row : Member(status, "devices")) {
    json device = Picked(row, kOfDevice);
    const json& id = Member(device, "device");
    if (!id.is_string()) continue;
    const auto timeline = timelines.find(id.get_ref<const std::string&>());
    if (timeline != timelines.end()) device["timeline"] = timeline->second;
    update["devices"].push_back(std::move(device));
  }
  std::vector<const json*> rows = ClientRows(clients);
  std::ranges::stable_sort(rows, {}, [](const json* row) { return GetRank(*row); });
  const std::size_t shown = std::min(rows.size(), kClientsShownMax);
  for (std::size_t each = 0; each < shown; ++each) {
    update["clients"].push_back(Picked(*rows[each], kOfClient));
  }
  if (rows.size() > shown) update["clients_left_out"] = rows.size() - shown;
  return TextOfUpdate(update);
}

std::string FailureText(const std::string& why, const std::string& host, MonotonicTime now) {
  return TextOfUpdate({{"at_ms", Milliseconds(now)},
                       {"host", host},
                       {"failure", "the server does not answer: " + why}});
}

Timelines GrowthTimelines::Take(const json& clients, MonotonicTime now) {
  Timelines timelines;
  std::map<std::uint64_t, Seen> seen;
  const double from_ms = Milliseconds(at_), bin_ms = Milliseconds(now) - from_ms;
  for (const json* const row : ClientRows(clients)) {
    const json &id = Member(*row, "client"), &device = Member(*row, "device"),
               &time = Member(*row, "device_time_s");
    if (!id.is_number_unsigned() || !device.is_string() || !time.is_number()) continue;
    const Seen now_seen = {device.get<std::string>(), time.get<double>()};
    const auto before = before_.find(id.get<std::uint64_t>());
    seen[id.get<std::uint64_t>()] = now_seen;
    if (before == before_.end() || before->second.device != now_seen.device) continue;
    const double grown_us = (now_seen.device_time_s - before->second.device_time_s) * 1e6;
    if (grown_us <= 0) continue;
    json& timeline = timelines[now_seen.device];
    if (timeline.is_null()) timeline = {{"bin_ms", bin_ms}};
    timeline["ran"].push_back({{"client", id}, {"from_ms", from_ms}, {"us", {grown_us}}});
  }
  before_ = std::move(seen);
  at_ = now;
  return timelines;
}

}  // namespace gpushared::web
