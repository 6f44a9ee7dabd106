// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/trace/chrome.h"

#include <chrono>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace gpushared::server {

namespace {

using nlohmann::json;

// The format's unit. A double keeps nanoseconds for the first 50 days after a machine's start.
double Us(scheduler::Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

ChromeEncoder::ChromeEncoder() { bytes_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":["; }

void ChromeEncoder::Add(std::uint64_t track, json event) {
  event["pid"] = places_.at(track).process;
  event["tid"] = track;
  bytes_ += std::exchange(is_first_, false) ? "\n" : ",\n";
  bytes_ += event.dump(-1, ' ', false, json::error_handler_t::replace);
}

void ChromeEncoder::AddName(std::uint64_t track, const char* of, const std::string& name) {
  Add(track, {{"ph", "M"}, {"name", of}, {"args", {{"name", name}}}});
}

void ChromeEncoder::AddTrack(const Track& track) {
  Place place{.process = track.id, .name = {}};
  if (track.parent != 0) {
    const Place& parent = places_.at(track.parent);
    place.process = parent.process;
    place.name = parent.name.empty() ? track.name : parent.name + ", " + track.name;
  }
  const Place& added = places_.insert_or_assign(track.id, std::move(place)).first->second;
  if (track.parent == 0) AddName(track.id, "process_name", track.name);
  if (track.kind == Track::Kind::kSlices) {
    AddName(track.id, "thread_name", track.parent == 0 ? track.name : added.name);
    Add(track.id,
        {{"ph", "M"}, {"name", "thread_sort_index"}, {"args", {{"sort_index", track.id}}}});
  }
}

void ChromeEncoder::AddSlice(std::uint64_t track, const TimeSpan& when, std::string_view name,
                             std::uint64_t flow, std::span<const Argument> arguments) {
  json slice = {{"ph", "X"},
                {"name", name},
                {"ts", Us(when.begin.time_since_epoch())},
                {"dur", Us(when.end - when.begin)}};
  for (const Argument& each : arguments) {
    std::visit([&](const auto& value) { slice["args"][std::string(each.name)] = value; },
               each.value);
  }
  if (flow != 0) {
    // Both in and out: viewers draw an arrow to the next one.
    slice["bind_id"] = std::to_string(flow);
    slice["flow_in"] = slice["flow_out"] = true;
  }
  Add(track, std::move(slice));
}

void ChromeEncoder::AddInstant(std::uint64_t track, scheduler::TimePoint at,
                               std::string_view name) {
  Add(track, {{"ph", "i"}, {"s", "t"}, {"name", name}, {"ts", Us(at.time_since_epoch())}});
}

void ChromeEncoder::AddCount(std::uint64_t track, scheduler::TimePoint at, std::uint64_t value) {
  Add(track, {{"ph", "C"},
              {"name", places_.at(track).name},
              {"ts", Us(at.time_since_epoch())},
              {"args", {{"commands", value}}}});
}

void ChromeEncoder::Finish() { bytes_ += "\n]}\n"; }

}  // namespace gpushared::server
