// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/trace_timelines.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace gpushared::web {
namespace {

using nlohmann::json;
using std::chrono::nanoseconds;

std::set<std::string> ReadyDevices(const json& status) {
  std::set<std::string> ready;
  const auto devices = status.is_object() ? status.find("devices") : status.end();
  if (devices == status.end()) return ready;
  for (const json& device : *devices) {
    if (!device.is_object()) continue;
    const auto state = device.find("state"), id = device.find("device");
    if (state != device.end() && *state == "ready" && id != device.end() && id->is_string()) {
      ready.insert(id->get<std::string>());
    }
  }
  return ready;
}

}  // namespace

void SliceBins::Add(const trace::Slice& slice) {
  const auto end = slice.ended.time_since_epoch();
  const auto begin = std::max(slice.started.time_since_epoch(), end - nanoseconds(kPast));
  if (begin.count() < 0 || begin >= end) return;
  if (clients_.size() >= kClientsMax && !clients_.contains(slice.session)) return;
  Bins& bins = clients_[slice.session];
  for (std::int64_t bin = begin / kBin; bin * nanoseconds(kBin) < end; ++bin) {
    const nanoseconds bin_begin = bin * nanoseconds(kBin);
    bins[bin] +=
        std::min<nanoseconds>(end, bin_begin + kBin) - std::max<nanoseconds>(begin, bin_begin);
  }
}

json SliceBins::Take() {
  json ran = json::array();
  for (const auto& [client, bins] : clients_) {
    const std::int64_t first = bins.begin()->first;
    // The number of bins is bounded, because a worker with an incorrect clock must not exhaust our
    // memory.
    const std::int64_t last = std::min(bins.rbegin()->first, first + kPast / kBin * 2);
    std::vector<double> us(static_cast<std::size_t>(last - first + 1));
    for (const auto& [bin, time] : bins) {
      if (bin <= last)
        us[static_cast<std::size_t>(bin - first)] = static_cast<double>(time.count() / 1000);
    }
    ran.push_back({{"client", client}, {"from_ms", first * kBin.count()}, {"us", std::move(us)}});
  }
  clients_.clear();
  if (ran.empty()) return nullptr;
  return {{"bin_ms", kBin.count()}, {"ran", std::move(ran)}};
}

void TraceTimelines::Follow(const json& status, MonotonicTime now) {
  const std::set<std::string> ready = ReadyDevices(status);
  std::erase_if(devices_, [&](const auto& each) { return !ready.contains(each.first); });
  for (const std::string& id : ready) {
    Device& device = devices_[id];
    if (device.watch && device.watch->HasEnded()) {
      Read(device);
      device.watch.reset();
      device.tried_at = {};
    }
    if (device.watch ||
        (device.tried_at != MonotonicTime{} && now - device.tried_at < kRetryAfter)) {
      continue;
    }
    device.tried_at = now;
    Result<admin::TraceWatch> watch = begin_(id);
    device.why_not = watch.status();
    if (watch.ok()) device.watch.emplace(*std::move(watch));
  }
}

void TraceTimelines::Read() {
  for (auto& [id, device] : devices_) Read(device);
}

void TraceTimelines::Read(Device& device) {
  if (!device.watch) return;
  const trace::Reader::Progress progress =
      device.watch->reader().Poll([&](const trace::Event& event) {
        if (const auto* slice = std::get_if<trace::Slice>(&event)) device.bins.Add(*slice);
      });
  device.lost += progress.lost;
}

Timelines TraceTimelines::Take(Timelines coarse) {
  Timelines timelines;
  for (auto& [id, device] : devices_) {
    json timeline = device.watch ? device.bins.Take() : std::move(coarse[id]);
    if (timeline.is_null())
      timeline = {{"bin_ms", SliceBins::kBin.count()}, {"ran", json::array()}};
    if (!device.watch) timeline["coarse"] = device.why_not.message();
    if (device.lost > 0) timeline["lost"] = std::exchange(device.lost, 0);
    timelines[id] = std::move(timeline);
  }
  return timelines;
}

}  // namespace gpushared::web
