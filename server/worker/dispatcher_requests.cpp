// SPDX-License-Identifier: Apache-2.0
// Dispatcher: the requests of clients, marked by them or told from their pauses.
#include <fmt/format.h>

#include "server/worker/dispatcher.h"

namespace gpushared::server {

void Dispatcher::BeginRequest(ClientState& client, std::uint32_t stream, scheduler::Duration age,
                              scheduler::TimePoint now) {
  client.marks_requests = true;
  // What it has done so far, which is seldom a request, counts as none.
  if (OpenRequest* const guess = client.requests.Find(OpenRequest::kAllStreams)) {
    lane_.EndRequest(client.id(), guess->mark.number, now);
    client.requests.Remove(guess);
  }
  if (client.requests.full()) {
    Break(client, Status(StatusCode::kProtocolViolation,
                         fmt::format("session ended: {} requests are open, allowed are {} [{}]",
                                     client.requests.all().size(), ipc::kOpenRequestsMax,
                                     client.setup.who)));
    return;
  }
  const OpenRequest& request = client.requests.Add(
      {.mark = {.number = ++client.last_request, .arrived = now - age}, .stream = stream});
  lane_.BeginRequest(client.id(), request.mark, now);
}

void Dispatcher::ExpectRequest(ClientState& client, scheduler::Duration in,
                               scheduler::TimePoint now) {
  lane_.ExpectRequest(client.id(), now + in, now);
}

void Dispatcher::EndRequest(ClientState& client, std::uint32_t stream, scheduler::TimePoint now) {
  OpenRequest* const request = client.requests.Find(stream);
  if (request == nullptr) return;  // Its begin broke the session.
  lane_.EndRequest(client.id(), request->mark.number, now);
  const bool has_failed = stream != OpenRequest::kAllStreams && client.streams[stream].has_failed;
  CountRequest(client, *request, has_failed, now);
  client.requests.Remove(request);
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
