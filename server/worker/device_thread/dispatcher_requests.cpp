// SPDX-License-Identifier: Apache-2.0
// Dispatcher: the requests of clients, marked by them or told from their pauses.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "server/worker/device_thread/dispatcher.h"

namespace gpushared::server {

// ---- what clients wait for

void Dispatcher::NotePhase(ClientState& client, scheduler::TimePoint now) {
  using Phase = ClientActivity::Phase;
  if (client.is_leaving) return;
  const Phase phase = client.in_flight > 0 ? Phase::kOnDevice
                      : client.offered > 0 ? Phase::kWaiting
                                           : Phase::kAway;
  ClientActivity& activity = client.activity;
  if (phase == activity.phase) return;
  if (activity.phase == Phase::kWaiting) NoteWait(client, activity.since, now);
  meter_.Set(activity, phase, now);
}

void Dispatcher::NoteWait(ClientState& client, scheduler::TimePoint from,
                          scheduler::TimePoint now) {
  for (OpenRequest& request : client.requests.all()) {
    const scheduler::TimePoint begin = std::max(from, request.begun);
    if (now - begin <= request.longest_wait) continue;
    request.longest_wait = now - begin;
    Blocker& blocker = request.blocker;
    blocker = {};
    const Stay* const stay = stays_.LongestOfOthers(client.setup.session, begin, now);
    if (stay == nullptr) continue;
    blocker.session = stay->session;
    blocker.on_device = stay->ended - stay->submitted;
    blocker.predicted = stay->predicted;
    blocker.cut = stay->cut;
    if (stay->cut == Blocker::Cut::kStopped) blocker.stop_took = stay->ended - stay->stop_asked;
    NameStay(*stay, blocker.what);
  }
}

void Dispatcher::NoteStop(device::WorkId id, scheduler::TimePoint now) {
  ClientState* const client = ClientOf(id);
  if (client == nullptr) return;
  CommandSlot& command = client->slab[WorkName::Slot(id)];
  command.stop_asked = now;
  command.is_alone_at_stop = command.is_alone && command.overlap == overlaps_;
}

void Dispatcher::NoteStay(ClientState& client, const CommandSlot& command,
                          scheduler::Duration charged, bool was_stopped, scheduler::TimePoint now) {
  const bool is_launch = command.kind == CommandKind::kLaunch;
  Stay stay{.session = client.setup.session,
            .kind = command.kind,
            .was_stopped = was_stopped,
            .submitted = command.submitted,
            .ended = now,
            .charged = charged,
            .predicted = command.predicted};
  if (is_launch) {
    stay.module = command.module;
    stay.module_serial = client.modules[command.module].serial;
    stay.kernel = std::get<device::LaunchWork>(command.work).kernel;
  }
  if (command.stop_asked) {
    stay.cut = Blocker::Cut::kStopped;
    stay.stop_asked = *command.stop_asked;
    client.counters.stop_time += now - *command.stop_asked;
  } else if (command.counts_as_high) {
    stay.cut = Blocker::Cut::kHighClass;
  } else if (is_launch ? !can_stop_launches_ : !can_stop_copies_) {
    stay.cut = Blocker::Cut::kDeviceCannot;
  } else if (!command.is_stoppable) {
    stay.cut =
        command.predicted < kWorthStopping ? Blocker::Cut::kTooShort : Blocker::Cut::kRanAsItIs;
  }
  stays_.Add(stay);
  if (!client.is_leaving) meter_.OnCharged(client.activity, charged, now);
}

void Dispatcher::NameStay(const Stay& stay, ShortText& name) const {
  switch (stay.kind) {
    case CommandKind::kCopyToDevice:
      name = "copy to device";
      return;
    case CommandKind::kCopyToHost:
      name = "copy to host";
      return;
    case CommandKind::kCopyOnDevice:
      name = "copy on device";
      return;
    case CommandKind::kFill:
      name = "fill";
      return;
    default:
      break;
  }
  // The session or the module may have gone since.
  const ClientState* const client = Find(stay.session);
  if (client == nullptr) return;
  const ModuleEntry& entry = client->modules[stay.module];
  if (entry.module == nullptr || entry.serial != stay.module_serial) return;
  constexpr std::size_t kNameBytes = 80;
  std::array<char, kNameBytes + 16> text;
  const std::string_view kernel = entry.module->kernels()[stay.kernel].name;
  const auto end =
      fmt::format_to_n(text.data(), text.size(), "kernel '{}{}'", kernel.substr(0, kNameBytes),
                       kernel.size() > kNameBytes ? "..." : "");
  name = std::string_view(text.data(), std::min(end.size, text.size()));
}

// ---- requests

OpenRequest Dispatcher::OpenNow(ClientState& client, std::uint32_t stream,
                                scheduler::TimePoint arrived, scheduler::TimePoint now) {
  return {.mark = {.number = ++client.last_request, .arrived = arrived},
          .stream = stream,
          .begun = now,
          .waited_before = client.activity.WaitedUntil(now),
          .on_device_before = client.activity.OnDeviceUntil(now),
          .charged_before = client.counters.device_time,
          .blocker = {}};
}

void Dispatcher::NoteRequests(ClientState& client) {
  const bool has_urgent =
      !client.is_leaving && !client.requests.empty() && lane_.rules().IsUrgent(client.spec);
  if (std::exchange(client.has_urgent_request, has_urgent) == has_urgent) return;
  if (has_urgent) {
    ++clients_with_urgent_request_;
  } else {
    --clients_with_urgent_request_;
  }
}

void Dispatcher::BeginRequest(ClientState& client, std::uint32_t stream, scheduler::Duration age,
                              scheduler::TimePoint now) {
  client.marks_requests = true;
  // Its work so far is seldom a request, and counts as none.
  if (OpenRequest* const guess = client.requests.Find(OpenRequest::kAllStreams)) {
    if (guess->is_told) lane_.EndRequest(client.id(), guess->mark.number, now);
    client.requests.Remove(guess);
  }
  if (client.requests.full()) {
    Break(client, Status(StatusCode::kProtocolViolation,
                         fmt::format("session ended: {} requests are open, allowed are {} [{}]",
                                     client.requests.all().size(), ipc::kOpenRequestsMax,
                                     client.setup.who)));
    return;
  }
  OpenRequest& request = client.requests.Add(OpenNow(client, stream, now - age, now));
  request.is_told = true;
  lane_.BeginRequest(client.id(), request.mark, now);
  NoteRequests(client);
}

void Dispatcher::ExpectRequest(ClientState& client, scheduler::Duration in,
                               scheduler::TimePoint now) {
  lane_.ExpectRequest(client.id(), now + in, now);
}

void Dispatcher::EndRequest(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  OpenRequest* const request = client.requests.Find(stream);
  if (request == nullptr) return;  // Its begin broke the session.
  if (request->is_told) lane_.EndRequest(client.id(), request->mark.number, now);
  const bool has_failed = stream != OpenRequest::kAllStreams && client.streams[stream].has_failed;
  CountRequest(client, *request, has_failed, now);
  Report(client, *request, has_failed, now);
  client.requests.Remove(request);
  NoteRequests(client);
}

void Dispatcher::Report(ClientState& client, const OpenRequest& request, bool has_failed,
                        scheduler::TimePoint now) {
  RequestReport report;
  report.number = request.mark.number;
  report.is_marked = request.stream != OpenRequest::kAllStreams;
  report.has_failed = has_failed;
  report.arrived = request.mark.arrived;
  report.begun = request.begun;
  report.ended = now;
  report.promise = client.spec.latency_promise.value_or(scheduler::Duration::zero());
  report.waited = client.activity.WaitedUntil(now) - request.waited_before;
  report.on_device = client.activity.OnDeviceUntil(now) - request.on_device_before;
  report.charged = client.counters.device_time - request.charged_before;
  report.longest_wait = request.longest_wait;
  report.blocker = request.blocker;
  if (const Stay* const longest = stays_.Summarise(client.setup.session, report)) {
    NameStay(*longest, report.longest_what);
  }
  client.history.Add(report);
}

void Dispatcher::CountRequest(ClientState& client, const OpenRequest& request, bool has_failed,
                              scheduler::TimePoint now) {
  const scheduler::Duration latency = now - request.mark.arrived;
  const std::optional<scheduler::Duration>& promise = client.spec.latency_promise;
  // The promise behind what was not marked may have been taken back meanwhile.
  if (!promise && request.stream == OpenRequest::kAllStreams) return;
  ClientCounters& count = client.counters;
  ++count.requests;
  if (promise && latency <= *promise && !has_failed) ++count.requests_kept;
  count.request_latency.Add(static_cast<std::uint64_t>(latency.count()));
}

}  // namespace gpushared::server
