// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/trace/timeline.h"

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

// Sessions and requests count from 1, so a flow is 0 for what belongs to no request. `request`: as
// slices have it.
std::uint64_t FlowOf(std::uint64_t session, std::uint32_t request) {
  if (request == 0) return 0;
  return (session * 0x9e37'79b9'7f4a'7c15U) ^ request;
}

}  // namespace

std::uint64_t Timeline::AddTrack(std::uint64_t parent, Track::Kind kind, const std::string& name) {
  encoder_.AddTrack({.id = ++last_track_, .parent = parent, .kind = kind, .name = name});
  return last_track_;
}

std::size_t Timeline::AddDevice(const std::string& name) {
  const std::size_t number = devices_.size();
  devices_[number].line.track = AddTrack(0, Track::Kind::kSlices, name);
  return number;
}

Timeline::Client& Timeline::ClientOf(Device& device, const trace::Reader& names,
                                     std::uint64_t session) {
  const auto found = device.clients.find(session);
  if (found != device.clients.end()) return found->second;
  ++counts_.clients;
  Client& client = device.clients[session];
  const trace::Name* const known = names.ClientOf(session);
  client.name = known != nullptr && !known->text.empty() ? known->text : "?";
  client.track =
      AddTrack(device.line.track, Track::Kind::kSlices,
               client.name + " (client " + std::to_string(session) +
                   (known != nullptr ? ", pid " + std::to_string(known->pid) : "") + ")");
  client.queued = AddTrack(client.track, Track::Kind::kCounter, "queued");
  return client;
}

Timeline::Line& Timeline::LineOf(std::map<std::uint8_t, Line>& lines, std::uint8_t index,
                                 std::uint64_t parent, const std::string& name) {
  Line& line = lines[index];
  if (line.track == 0) line.track = AddTrack(parent, Track::Kind::kSlices, name);
  return line;
}

// Clocks of devices are not exact to the nanosecond, and slices of a track must not overlap.
void Timeline::AddSlice(Line& line, TimeSpan when, std::string_view name, std::uint64_t flow,
                        std::span<const Argument> arguments) {
  when.begin = std::max(when.begin, line.until);
  line.until = when.end = std::max(when.end, when.begin);
  encoder_.AddSlice(line.track, when, name, flow, arguments);
}

void Timeline::TellDepths(Client& client, scheduler::TimePoint at, const trace::Depths& depths) {
  if (std::exchange(client.told, depths).queued == depths.queued) return;
  encoder_.AddCount(client.queued, at, depths.queued);
}

void Timeline::Add(std::size_t device, const trace::Reader& names, const trace::Event& event) {
  std::visit([&](const auto& each) { Add(devices_.at(device), names, each); }, event);
}

void Timeline::Add(Device& device, const trace::Reader& names, const trace::Slice& slice) {
  ++counts_.slices;
  Client& client = ClientOf(device, names, slice.session);
  const std::string_view of_class = scheduler::ClassName(slice.of_class);
  const std::string what = names.WhatOf(slice);
  const std::vector<Argument> charged = {
      {"client", slice.session}, {"class", of_class}, {"what", std::string_view(what)}};
  AddSlice(device.line, {slice.charged_from, slice.charged_from + slice.charged}, client.name, 0,
           charged);
  std::vector<Argument> arguments = {{"class", of_class},
                                     {"device_time_us", Microseconds(slice.charged)},
                                     {"queue_wait_us", Microseconds(slice.waited)},
                                     {"cut", trace::TextOf(slice.cut).in_slice}};
  if (slice.request != 0) arguments.push_back({"request", slice.request});
  if (slice.is_part) arguments.push_back({"left", std::string_view("unfinished")});
  if (slice.has_failed) arguments.push_back({"failed", std::string_view("yes")});
  Line& stream =
      LineOf(client.streams, slice.stream, client.track, "stream " + std::to_string(slice.stream));
  AddSlice(stream, {slice.started, slice.ended}, what, FlowOf(slice.session, slice.request),
           arguments);
  if (slice.cut == trace::Cut::kStopped) {
    ++counts_.stops;
    encoder_.AddInstant(stream.track, slice.stop_asked, "asked to stop");
  }
  TellDepths(client, slice.ended, slice.left);
}

void Timeline::Add(Device& device, const trace::Reader& names, const trace::Request& request) {
  ++counts_.requests;
  Client& client = ClientOf(device, names, request.session);
  std::vector<Argument> arguments = {
      {"request", request.number},
      {"class", scheduler::ClassName(request.of_class)},
      {"marked", std::string_view(request.stream ? "by the client" : "by its pauses")},
      {"latency_us", Microseconds(request.ended - request.arrived)}};
  if (request.promise > Duration::zero()) {
    arguments.push_back({"promise_us", Microseconds(request.promise)});
    arguments.push_back({"promise", std::string_view(request.is_kept() ? "kept" : "broken")});
  }
  if (request.has_failed) arguments.push_back({"failed", std::string_view("yes")});
  Line& row = LineOf(client.request_rows, request.row, client.track,
                     request.row == 0 ? "requests" : "requests " + std::to_string(request.row + 1));
  AddSlice(row, {request.begun, request.ended}, "request",
           FlowOf(request.session, static_cast<std::uint32_t>(request.number)), arguments);
}

void Timeline::Add(Device& device, const trace::Reader& names, const trace::Depth& depth) {
  TellDepths(ClientOf(device, names, depth.session), depth.at, depth.depths);
}

}  // namespace gpushared::server
