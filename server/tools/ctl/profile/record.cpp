// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/profile/record.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>

#include "ipc/wire/control.h"
#include "scheduler/class_name.h"
#include "server/telemetry/admin/ask.h"
#include "server/telemetry/admin/trace_watch.h"
#include "server/tools/ctl/profile/recorder.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
using simulation::Node;
using simulation::Profile;

// As in `gpusharedctl trace`: well below the 40 ms of events that a worker's ring holds at the
// highest load.
constexpr std::chrono::milliseconds kPollEvery{5};
constexpr double kMiB = 1 << 20;

scheduler::TimePoint Now() { return scheduler::TimePoint(Clock::now().time_since_epoch()); }

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

Result<json> GetRows(const std::string& socket, ipc::AdminVerb verb, const char* list) {
  Result<json> answer = admin::Ask(socket, {.verb = verb});
  if (!answer.ok()) return answer.status();
  return answer->value(list, json::array());
}

const json* Find(const json& rows, const char* name, const json& value) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const json& row) {
    return row.is_object() && row.contains(name) && row[name] == value;
  });
  return found == rows.end() ? nullptr : &*found;
}

// Selects the device to record.
Result<std::string> Choose(const RecordOptions& options, const json& devices, const json& clients) {
  if (options.client != 0) {
    const json* const client = Find(clients, "client", options.client);
    if (client != nullptr) return client->value("device", "");
    return Status(StatusCode::kNotFound,
                  "there is no client " + std::to_string(options.client) + "; see gpusharedctl ps");
  }
  if (!options.device.empty() || devices.size() == 1)
    return options.device.empty() ? devices[0].value("device", "") : options.device;
  return Status(StatusCode::kInvalidArgument,
                "which device? The server has " + std::to_string(devices.size()) +
                    ": name one with --device; see gpusharedctl devices");
}

// Adds facts about a client that its trace does not contain.
void Describe(const json& row, Profile& profile) {
  profile.name = row.value("name", "client").substr(0, simulation::kProfileNameBytesMax);
  const std::string of_class = row.value("class", "normal");
  const auto found =
      std::find(scheduler::kClassNames.begin(), scheduler::kClassNames.end(), of_class);
  if (found != scheduler::kClassNames.end()) {
    profile.spec.scheduling_class =
        static_cast<scheduler::SchedulingClass>(found - scheduler::kClassNames.begin());
  }
  profile.spec.weight = row.value("weight", 1U);
  if (row.contains("share_group")) profile.spec.group = row["share_group"].get<std::uint64_t>();
  profile.max_share_percent = row.value("max_share_percent", 100.0);
  profile.memory_mib = row.value("memory_bytes", 0.0) / kMiB;
  if (const double latency_target_us = row.value("latency_target_us", 0.0); latency_target_us > 0)
    profile.spec.latency_target =
        scheduler::Duration(static_cast<std::int64_t>(1e3 * latency_target_us));
}

Node GetNode(const json& device, const json& status) {
  Node node;
  const std::string id = device.value("device", "");
  node.name = (HostName() + " " + id).substr(0, simulation::kProfileNameBytesMax);
  node.kind = device.value("kind", "cpu");
  node.multiprocessors = std::max(device.value("multiprocessors", 1U), 1U);
  node.stops_within_commands = device.value("preemption", "") == "within commands";
  node.memory_mib = device.value("memory_bytes", 0.0) / kMiB;
  node.policy = status.value("policy", node.policy);
  const double slice_ms = status.value("slice_ms", 2.0);
  node.options.slice = scheduler::Duration(static_cast<std::int64_t>(1e6 * slice_ms));
  node.options.low_floor = status.value("low_floor", 0.0);
  return node;
}

// If nothing was preempted during the recording, uses the mean stop time that the server has
// counted for the present clients of the device.
void AddKeptStops(const json& clients, const std::string& device, Node::Costs& costs) {
  double stops = 0, seconds = 0;
  for (const json& client : clients) {
    if (client.value("device", "") != device) continue;
    stops += client.value("stops", 0.0);
    seconds += client.value("stop_time_s", 0.0);
  }
  if (costs.stops > 0 || stops == 0) return;
  costs.stops = static_cast<std::uint64_t>(stops);
  costs.stop_us = 1e6 * seconds / stops;
}

}  // namespace

Result<RecordedDevice> RecordDevice(const RecordOptions& options) {
  const std::string& socket = options.socket;
  const Result<json> devices = GetRows(socket, ipc::AdminVerb::kDevices, "devices");
  if (!devices.ok()) return devices.status();
  const Result<json> before = GetRows(socket, ipc::AdminVerb::kClients, "clients");
  if (!before.ok()) return before.status();
  const Result<std::string> chosen = Choose(options, *devices, *before);
  if (!chosen.ok()) return chosen.status();
  Result<admin::TraceWatch> watch = admin::TraceWatch::Begin(socket, *chosen);
  if (!watch.ok()) return watch.status();
  const json* const device = Find(*devices, "device", *chosen);

  RecordedDevice recorded{
      .node = GetNode(device == nullptr ? json::object() : *device, json::object()),
      .sessions = {}};
  ProfileRecorder recorder(recorded.node.multiprocessors, Now());
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(options.time);
  trace::Reader& reader = watch->reader();
  const auto poll = [&] {
    recorder.AddLost(
        reader.Poll([&](const trace::Event& event) { recorder.Add(reader, event); }).lost);
  };
  while (Clock::now() < end && !watch->HasEnded() && !recorder.IsFull()) {
    std::this_thread::sleep_for(kPollEvery);
    poll();
  }
  poll();
  recorder.Finish(Now());

  // Queried after the recording, when the server has measured the launch bubble and the stop times.
  const Result<json> clients = GetRows(socket, ipc::AdminVerb::kClients, "clients");
  if (!clients.ok()) return clients.status();
  const Result<json> states = GetRows(socket, ipc::AdminVerb::kStatus, "devices");
  if (!states.ok()) return states.status();
  const json* const state = Find(*states, "device", *chosen);
  if (device != nullptr && state != nullptr) recorded.node = GetNode(*device, *state);
  recorded.node.costs = recorder.costs();
  if (state != nullptr && state->contains("launch_bubble_us"))
    recorded.node.costs.launch_bubble_us =
        std::max((*state)["launch_bubble_us"].get<double>(), 0.001);
  AddKeptStops(*clients, *chosen, recorded.node.costs);
  for (const json& row : *clients) {
    const std::uint64_t session = row.value("client", std::uint64_t{0});
    if (row.value("device", "") != *chosen) continue;
    if (options.client != 0 && options.client != session) continue;
    Result<Profile> profile = recorder.GetProfile(session);
    if (!profile.ok() && options.client != 0) return profile.status();
    if (!profile.ok() || recorded.sessions.size() == simulation::kNodeClientsMax) continue;
    Describe(row, *profile);
    recorded.node.clients.push_back(std::move(*profile));
    recorded.sessions.push_back(session);
  }
  if (options.client != 0 && recorded.sessions.empty()) {
    return Status(StatusCode::kNotFound, "client " + std::to_string(options.client) +
                                             " disconnected during the recording");
  }
  return recorded;
}

}  // namespace gpushared::server
