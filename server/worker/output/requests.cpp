// SPDX-License-Identifier: Apache-2.0
#include "server/worker/output/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "ipc/wire/bytes.h"

namespace gpushared::server {

void Requests::OnClientAdded(ClientState& client, scheduler::TimePoint now) {
  of_client_[client.index()] = std::make_unique<OfClient>();
  Of(client).last_number = client.requests_before;
  Of(client).marks = client.has_marked_requests;
  meter_.Begin(Of(client).activity, client.spec(), now);
}

void Requests::OnClientChanged(ClientState& client, scheduler::TimePoint now) {
  meter_.OnChanged(Of(client).activity, client.spec(), now);
  CountUrgent(client);
}

void Requests::OnClientLeaving(ClientState& client, scheduler::TimePoint now) {
  meter_.End(Of(client).activity, now);
  CountUrgent(client);
}

void Requests::RefreshShares(scheduler::TimePoint now) {
  for (ClientState* const client : registry_.present()) {
    meter_.Refresh(Of(*client).activity, now);
  }
}

// ---- waits

void Requests::ChangePhase(ClientState& client, scheduler::TimePoint now) {
  if (client.life.is_leaving()) return;
  ClientActivity& activity = Of(client).activity;
  if (activity.phase == ClientActivity::Phase::kWaiting) RecordWait(client, activity.since, now);
  meter_.Set(activity, GetPhase(client), now);
}

void Requests::RecordWait(ClientState& client, scheduler::TimePoint from,
                          scheduler::TimePoint now) {
  for (OpenRequest& request : Of(client).open.all()) {
    RecordWaitOf(request, client.setup.session, from, now);
  }
}

void Requests::RecordWaitOf(OpenRequest& request, std::uint64_t session, scheduler::TimePoint from,
                            scheduler::TimePoint now) const {
  const scheduler::TimePoint begin = std::max(from, request.begun);
  if (now > begin) request.waits.Add({begin, now}, now - begin);
  if (now - begin <= request.longest_wait.length()) return;
  request.longest_wait = {begin, now};
  request.blocker = {};
  FindBlocker(session, request.longest_wait, request.blocker);
}

void Requests::FindBlocker(std::uint64_t session, const Wait& wait, Blocker& blocker) const {
  const trace::ExecutionRecord* const record = log_.LongestOfOthers(session, wait.from, wait.to);
  if (record == nullptr) return;
  const scheduler::Duration together =
      std::min(record->ended, wait.to) - std::max(record->submitted, wait.from);
  if (together <= blocker.together) return;
  blocker = {.session = record->session,
             .what = {},
             .on_device = record->ended - record->submitted,
             .together = together,
             .predicted = record->predicted,
             .cut = record->cut};
  if (record->cut == Blocker::Cut::kStopped) blocker.stop_took = record->ended - record->stop_asked;
  NameExecution(*record, blocker.what);
}

template <typename Add>
void Requests::NameLongest(const trace::ExecutionRecord& turn, Add add) const {
  // The client resets its figures when it requests its next turn. They therefore describe this
  // turn, or a later turn that has already begun.
  const ClientState* const client = registry_.Find(turn.session);
  if (client == nullptr || client->gate.longest() == std::chrono::nanoseconds::zero()) return;
  constexpr std::size_t kNameBytes = 40;
  const std::string longest = client->gate.LongestName();
  if (longest.empty()) return;
  add(", longest '{}{}' {:.3g} ms", ipc::CutText(longest, kNameBytes),
      longest.size() > kNameBytes ? "..." : "",
      std::chrono::duration<double, std::milli>(client->gate.longest()).count());
}

void Requests::NameExecution(const trace::ExecutionRecord& record, ShortText& name) const {
  constexpr std::size_t kKernelBytes = 80;
  std::array<char, kKernelBytes + 16> text;
  std::size_t size = 0;
  const auto add = [&](fmt::string_view format, const auto&... values) {
    const auto end =
        fmt::format_to_n(text.data() + size, text.size() - size, fmt::runtime(format), values...);
    size = std::min(size + end.size, text.size());
  };
  if (record.work == trace::Work::kGraph) {
    add("graph {} nodes {} to {}", record.graph, record.first_node, record.end_node - 1);
    name = std::string_view(text.data(), size);
    return;
  }
  if (record.work == trace::Work::kTurn) {
    add("turn of {} launches", record.kernel);
    NameLongest(record, add);
    name = std::string_view(text.data(), size);
    return;
  }
  const bool is_node = record.end_node > record.first_node;
  if (record.work == trace::Work::kLaunch) {
    // The session may have ended and the module may have been unloaded since.
    const ClientState* const client = registry_.Find(record.session);
    if (client == nullptr) return;
    const ModuleEntry& entry = client->scope.module(record.module);
    if (entry.module == nullptr || entry.serial != record.module_serial) return;
    const std::string_view kernel = entry.module->kernels()[record.kernel].name;
    constexpr std::size_t kGraphBytes = 24;
    const std::size_t room = is_node ? kKernelBytes - kGraphBytes : kKernelBytes;
    add("kernel '{}{}'", kernel.substr(0, room), kernel.size() > room ? "..." : "");
  } else {
    add("{}", trace::WorkText(record.work));
  }
  if (is_node) add(" of graph {} node {}", record.graph, record.first_node);
  name = std::string_view(text.data(), size);
}

// ---- begin and end

scheduler::Duration Requests::SuspendedFor(const ClientState& client,
                                           scheduler::TimePoint now) const {
  return lane_.SuspendedFor(client.id(), now) + client.memory.LackedFor(now);
}

OpenRequest Requests::OpenNow(const ClientState& client, std::uint32_t stream,
                              scheduler::TimePoint arrived, scheduler::TimePoint now) {
  const ClientActivity& activity = Of(client).activity;
  return {.mark = {.number = ++Of(client).last_number, .arrived = arrived},
          .stream = stream,
          .begun = now,
          .waited_before = activity.WaitedUntil(now),
          .on_device_before = activity.OnDeviceUntil(now),
          .charged_before = client.counters.device_time,
          .throttled_before = lane_.ThrottledFor(client.id(), now),
          .held_before = SuspendedFor(client, now),
          .host_steal_before = lane_.host_steal(),
          .evicted_before = client.memory.evicted_bytes(),
          .swapped_in_before = client.memory.swapped_in_bytes(),
          .wakes_before = client.memory.parking().wakes,
          .wakes_in_time_before = client.memory.parking().wakes_in_time,
          .blocker = {}};
}

void Requests::CountUrgent(ClientState& client) {
  OfClient& requests = Of(client);
  const bool has_urgent =
      !client.life.is_leaving() && !requests.open.empty() && lane_.rules().IsUrgent(client.spec());
  if (std::exchange(requests.has_urgent, has_urgent) == has_urgent) return;
  if (has_urgent) {
    ++clients_with_urgent_;
  } else {
    --clients_with_urgent_;
  }
}

void Requests::OnWork(ClientState& client, scheduler::TimePoint now) {
  OfClient& requests = Of(client);
  if (!requests.open.empty() || requests.marks) return;
  OpenRequest& request = requests.open.Add(OpenNow(client, OpenRequest::kAllStreams, now, now));
  request.is_reported = client.spec().latency_target.has_value();
  if (request.is_reported) lane_.BeginRequest(client.id(), request.mark, now);
  CountUrgent(client);
}

Status Requests::Begin(ClientState& client, std::uint32_t stream, scheduler::Duration age,
                       scheduler::TimePoint now) {
  OfClient& requests = Of(client);
  requests.marks = true;
  // Work before the first marked request is rarely a request, so the inferred one is discarded.
  if (OpenRequest* const guess = requests.open.Find(OpenRequest::kAllStreams)) {
    if (guess->is_reported) lane_.EndRequest(client.id(), guess->mark.number, now);
    requests.open.Remove(guess);
  }
  if (requests.open.full()) {
    return Status(StatusCode::kProtocolViolation,
                  fmt::format("session ended: {} requests are open, allowed: {} [{}]",
                              requests.open.all().size(), kOpenRequestsMax, client.setup.who));
  }
  OpenRequest& request = requests.open.Add(OpenNow(client, stream, now - age, now));
  request.is_reported = true;
  lane_.BeginRequest(client.id(), request.mark, now);
  CountUrgent(client);
  return Status::Ok();
}

void Requests::Expect(ClientState& client, scheduler::Duration in, scheduler::TimePoint now) {
  lane_.ExpectRequest(client.id(), now + in, now);
}

void Requests::End(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  OpenRequest* const request = Of(client).open.Find(stream);
  // No request was inferred, or its begin was rejected, which ended the session.
  if (request == nullptr) return;
  if (request->is_reported) lane_.EndRequest(client.id(), request->mark.number, now);
  const bool has_failed = stream != OpenRequest::kAllStreams && client.streams[stream].has_failed;
  Count(client, *request, has_failed, now);
  Of(client).history.Add(GetReport(client, *request, has_failed, now));
  if (tracer_.is_on()) [[unlikely]]
    tracer_.OnRequestEnded(client, *request, has_failed, now);
  Of(client).open.Remove(request);
  CountUrgent(client);
}

std::optional<RequestReport> Requests::ReportOfOpen(const ClientState& client, std::uint64_t number,
                                                    scheduler::TimePoint now) {
  const OpenRequest* const found = Of(client).open.FindNumber(number);
  if (found == nullptr) return std::nullopt;
  OpenRequest request = *found;
  const ClientActivity& activity = Of(client).activity;
  if (activity.phase == ClientActivity::Phase::kWaiting) {
    RecordWaitOf(request, client.setup.session, activity.since, now);
  }
  RequestReport report = GetReport(client, request, false, now);
  report.is_open = true;
  return report;
}

RequestReport Requests::GetReport(const ClientState& client, const OpenRequest& request,
                                  bool has_failed, scheduler::TimePoint now) {
  const ClientActivity& activity = Of(client).activity;
  RequestReport report;
  report.number = request.mark.number;
  report.is_marked = request.stream != OpenRequest::kAllStreams;
  report.has_failed = has_failed;
  report.arrived = request.mark.arrived;
  report.begun = request.begun;
  report.ended = now;
  report.target = client.spec().latency_target.value_or(scheduler::Duration::zero());
  report.waited = activity.WaitedUntil(now) - request.waited_before;
  report.on_device = activity.OnDeviceUntil(now) - request.on_device_before;
  report.charged = client.counters.device_time - request.charged_before;
  report.throttled = lane_.ThrottledFor(client.id(), now) - request.throttled_before;
  report.host_steal = lane_.host_steal() - request.host_steal_before;
  report.held = SuspendedFor(client, now) - request.held_before;
  report.evicted_bytes = client.memory.evicted_bytes() - request.evicted_before;
  report.evicted_from = client.memory.evicted_from();
  report.swapped_in_bytes = client.memory.swapped_in_bytes() - request.swapped_in_before;
  report.wakes = client.memory.parking().wakes - request.wakes_before;
  report.wakes_in_time = client.memory.parking().wakes_in_time - request.wakes_in_time_before;
  report.max_share = client.caps().Least();
  report.longest_wait = request.longest_wait.length();
  report.blocker = request.blocker;
  // The blocker is determined again, because a non-preemptible command that outlasted the wait may
  // have left the device by now.
  if (report.longest_wait > scheduler::Duration::zero()) {
    FindBlocker(client.setup.session, request.longest_wait, report.blocker);
  }
  report.waterfall.waits = request.waits;
  if (const trace::ExecutionRecord* const longest = log_.Summarise(client.setup.session, report)) {
    NameExecution(*longest, report.longest_what);
  }
  return report;
}

void Requests::Count(ClientState& client, const OpenRequest& request, bool has_failed,
                     scheduler::TimePoint now) {
  const scheduler::Duration latency = now - request.mark.arrived;
  const std::optional<scheduler::Duration>& target = client.spec().latency_target;
  // Inferred requests count only under a latency target, which may have been removed since.
  if (!target && request.stream == OpenRequest::kAllStreams) return;
  ClientCounters& count = client.counters;
  ++count.requests;
  const bool is_target_met = target && latency <= *target && !has_failed;
  count.requests_target_met += is_target_met;
  client.totals.AddRequest(latency, target.has_value(), is_target_met);
  count.request_latency.Add(static_cast<std::uint64_t>(latency.count()));
}

}  // namespace gpushared::server
