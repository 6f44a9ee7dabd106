// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/figures.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace gpushared::server::top {
namespace {

// Returns the growth between two samples. Unknown if the counter fell, because then it belongs to
// another client.
Figure Added(const Figure& before, const Figure& now) {
  if (!before || !now || *now < *before) return std::nullopt;
  return *now - *before;
}

Figure Rate(const Figure& before, const Figure& now, double elapsed_s) {
  const Figure added = Added(before, now);
  if (!added || elapsed_s <= 0) return std::nullopt;
  return *added / elapsed_s;
}

Figure Part(const Figure& part, const Figure& whole) {
  if (!part || !whole || *whole <= 0) return std::nullopt;
  return std::min(1.0, *part / *whole);
}

DeviceFigures DeviceBetween(const DeviceSample* before, const DeviceSample& now, double elapsed_s) {
  DeviceFigures figures{.now = now,
                        .busy = {},
                        .gap_used = {},
                        .host_steal = {},
                        .launches_per_s = {},
                        .stops_per_s = {}};
  if (before == nullptr) return figures;
  for (std::size_t each = 0; each < figures.busy.size(); ++each) {
    figures.busy[each] = Rate(before->device_s[each], now.device_s[each], elapsed_s);
  }
  figures.gap_used =
      Part(Added(before->gap_used_s, now.gap_used_s), Added(before->gap_s, now.gap_s));
  figures.host_steal = Part(Added(before->host_steal_s, now.host_steal_s), elapsed_s);
  figures.launches_per_s = Rate(before->launches, now.launches, elapsed_s);
  figures.stops_per_s = Rate(before->stops, now.stops, elapsed_s);
  return figures;
}

ClientFigures ClientBetween(const ClientSample* before, const ClientSample& now, double elapsed_s) {
  ClientFigures figures;
  figures.now = now;
  const bool has_target = now["latency_target_us"].has_value();
  if (has_target) figures.met = Part(now["requests_target_met"], now["requests"]);
  if (before == nullptr) return figures;
  for (std::size_t each = 0; each < figures.per_s.size(); ++each) {
    figures.per_s[each] = Rate(before->numbers[each], now.numbers[each], elapsed_s);
  }
  const auto added = [&](ClientKey key) { return Added((*before)[key], now[key]); };
  // Approximate, because the server's counter does not end exactly at the time of the answer.
  figures.waits = Part(added("waited_s"), elapsed_s);
  const Figure requests = added("requests"), met = added("requests_target_met");
  figures.missed_target = has_target && requests && met && *met < *requests;
  return figures;
}

Figure Watts(const std::vector<DeviceFigures>& devices, const ClientFigures& client) {
  const Figure& busy = client.PerSecond("device_time_s");
  const auto device = std::ranges::find(devices, client.now.device,
                                        [](const DeviceFigures& each) { return each.now.id; });
  if (!busy || device == devices.end() || !device->now.power_w) return std::nullopt;
  // The sum exceeds 1 if commands run concurrently.
  return *device->now.power_w * *busy / std::max(1.0, Sum(device->busy).value_or(0));
}

}  // namespace

Figure Sum(const Busy& busy) {
  Figure sum;
  for (const Figure& each : busy) {
    if (each) sum = sum.value_or(0) + *each;
  }
  return sum;
}

bool Figures::HasEnergy() const {
  return std::ranges::any_of(devices,
                             [](const auto& each) { return each.now.power_w.has_value(); }) ||
         std::ranges::any_of(clients,
                             [](const auto& each) { return each.now["energy_j"].has_value(); });
}

Figures Between(const Sample* before, const Sample& now) {
  Figures figures{.server = now.server, .devices = {}, .clients = {}};
  const double devices_s = before == nullptr ? 0 : now.devices_at_s - before->devices_at_s;
  const double clients_s = before == nullptr ? 0 : now.clients_at_s - before->clients_at_s;
  std::unordered_map<std::string, const DeviceSample*> devices;
  std::unordered_map<std::uint64_t, const ClientSample*> clients;
  if (before != nullptr) {
    for (const DeviceSample& device : before->devices) devices[device.id] = &device;
    for (const ClientSample& client : before->clients) clients[client.id] = &client;
  }
  for (const DeviceSample& device : now.devices) {
    const auto known = devices.find(device.id);
    figures.devices.push_back(
        DeviceBetween(known == devices.end() ? nullptr : known->second, device, devices_s));
  }
  for (const ClientSample& client : now.clients) {
    const auto known = clients.find(client.id);
    // A restarted server assigns the same ids to other processes.
    const bool is_same = known != clients.end() && (*known->second)["pid"] == client["pid"];
    figures.clients.push_back(ClientBetween(is_same ? known->second : nullptr, client, clients_s));
    figures.clients.back().watts = Watts(figures.devices, figures.clients.back());
  }
  return figures;
}

void History::Add(const Figures& figures) {
  std::map<std::string, std::deque<Busy>> kept;
  for (const DeviceFigures& device : figures.devices) {
    std::deque<Busy> moments = std::move(moments_[device.now.id]);
    moments.push_back(device.busy);
    if (moments.size() > kMomentsMax) moments.pop_front();
    kept[device.now.id] = std::move(moments);
  }
  moments_ = std::move(kept);
}

void History::AddHole() {
  for (auto& [device, moments] : moments_) {
    moments.push_back({});
    if (moments.size() > kMomentsMax) moments.pop_front();
  }
}

const std::deque<Busy>& History::Of(const std::string& device) const {
  static const std::deque<Busy> kNone;
  const auto found = moments_.find(device);
  return found == moments_.end() ? kNone : found->second;
}

}  // namespace gpushared::server::top
