// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/trace/timeline.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/class_name.h"

namespace gpushared::server {

namespace {

using scheduler::Duration;

double Microseconds(Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Returns a unique id for a request. Sessions and requests count from 1, so 0 means that the slice
// belongs to no request. `request`: as in Slice::request.
std::uint64_t FlowId(std::uint64_t session, std::uint32_t request) {
  if (request == 0) return 0;
  return (session * 0x9e37'79b9'7f4a'7c15U) ^ request;
}

}  // namespace

std::size_t Timeline::AddDevice(const std::string& id, const std::string& name) {
  const std::size_t number = devices_.size();
  Device& device = devices_[number];
  device.id = id;
  device.rank = 2 * number;
  const std::string shown = name.empty() ? id : id + " " + name;
  device.line.thread = trace_.AddThread(trace_.AddProcess(shown, device.rank), shown, 0);
  return number;
}

Timeline::Client& Timeline::GetClient(Device& device, const trace::Reader& names,
                                      std::uint64_t session) {
  const auto found = device.clients.find(session);
  if (found != device.clients.end()) return found->second;
  ++counts_.clients;
  Client& client = device.clients[session];
  const trace::Name* const known = names.GetClient(session);
  client.name = known != nullptr && !known->text.empty() ? known->text : "?";
  client.process = trace_.AddProcess(
      client.name + " (client " + std::to_string(session) +
          (known != nullptr ? ", pid " + std::to_string(known->pid) : "") + ", " + device.id + ")",
      device.rank + 1);
  return client;
}

// Rows of requests come before those of streams.
Timeline::Line& Timeline::GetRow(Client& client, std::uint8_t row) {
  const auto [line, is_new] = client.request_rows.try_emplace(row);
  if (is_new) {
    const std::string name = row == 0 ? "requests" : "requests " + std::to_string(row + 1);
    line->second.thread = trace_.AddThread(client.process, name, row);
  }
  return line->second;
}

Timeline::Line& Timeline::GetStream(Client& client, std::uint8_t stream) {
  constexpr std::uint64_t kRowsMax = 256;
  const auto [line, is_new] = client.streams.try_emplace(stream);
  if (is_new) {
    line->second.thread =
        trace_.AddThread(client.process, "stream " + std::to_string(stream), kRowsMax + stream);
  }
  return line->second;
}

// Adjusts times, because the clocks of devices are not exact to the nanosecond and slices of a
// thread must not overlap.
void Timeline::AddEvent(Line& line, TimeSpan when, std::string_view name, Flow flow,
                        std::span<const Argument> arguments) {
  when.begin = std::max(when.begin, line.until);
  line.until = when.end = std::max(when.end, when.begin);
  trace_.AddEvent(line.thread, when, name, flow, arguments);
}

void Timeline::ReportDepths(Client& client, scheduler::TimePoint at, const trace::Depths& depths) {
  if (std::exchange(client.last_depths, depths).queued == depths.queued) return;
  trace_.AddCount(client.process, at, "queued", depths.queued);
}

void Timeline::Add(std::size_t device, const trace::Reader& names, const trace::Event& event) {
  std::visit([&](const auto& each) { Add(devices_.at(device), names, each); }, event);
}

void Timeline::Add(Device& device, const trace::Reader& names, const trace::Slice& slice) {
  ++counts_.slices;
  Client& client = GetClient(device, names, slice.session);
  const std::string_view of_class = scheduler::ClassName(slice.of_class);
  const std::string what = names.GetWhat(slice);
  const std::vector<Argument> charged = {
      {"client", slice.session}, {"class", of_class}, {"what", std::string_view(what)}};
  AddEvent(device.line, {slice.charged_from, slice.charged_from + slice.charged}, client.name, {},
           charged);
  std::vector<Argument> arguments = {{"class", of_class},
                                     {"device_time_us", Microseconds(slice.charged)},
                                     {"queue_wait_us", Microseconds(slice.waited)},
                                     {"cut", trace::GetText(slice.cut).in_slice}};
  if (slice.request != 0) arguments.push_back({"request", slice.request});
  if (slice.is_part) arguments.push_back({"left", std::string_view("unfinished")});
  if (slice.has_failed) arguments.push_back({"failed", std::string_view("yes")});
  Line& stream = GetStream(client, slice.stream);
  AddEvent(stream, {slice.started, slice.ended}, what,
           {.id = FlowId(slice.session, slice.request), .is_start = false}, arguments);
  if (slice.cut == trace::Cut::kStopped) {
    ++counts_.stops;
    trace_.AddInstant(stream.thread, slice.stop_asked, "asked to stop");
  }
  ReportDepths(client, slice.ended, slice.left);
}

void Timeline::Add(Device& device, const trace::Reader& names, const trace::Request& request) {
  ++counts_.requests;
  Client& client = GetClient(device, names, request.session);
  std::vector<Argument> arguments = {
      {"request", request.number},
      {"class", scheduler::ClassName(request.of_class)},
      {"marked", std::string_view(request.stream ? "by the client" : "by its pauses")},
      {"latency_us", Microseconds(request.ended - request.arrived)}};
  if (request.target > Duration::zero()) {
    arguments.push_back({"latency_target_us", Microseconds(request.target)});
    arguments.push_back({"target", std::string_view(request.is_target_met() ? "met" : "missed")});
  }
  if (request.has_failed) arguments.push_back({"failed", std::string_view("yes")});
  AddEvent(
      GetRow(client, request.row), {request.begun, request.ended}, "request",
      {.id = FlowId(request.session, static_cast<std::uint32_t>(request.number)), .is_start = true},
      arguments);
}

void Timeline::Add(Device& device, const trace::Reader& names, const trace::Depth& depth) {
  ReportDepths(GetClient(device, names, depth.session), depth.at, depth.depths);
}

}  // namespace gpushared::server
