// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_REQUESTS_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_REQUESTS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "gpushared/status.h"

#include "scheduler/device_lane.h"
#include "scheduler/types.h"
#include "server/worker/output/execution_log.h"
#include "server/worker/output/open_requests.h"
#include "server/worker/output/request_history.h"
#include "server/worker/output/request_report.h"
#include "server/worker/output/tracer.h"
#include "server/worker/state/activity_meter.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/session_limits.h"

namespace gpushared::server {

// Tracks the requests of clients, whether marked by the client or inferred from its pauses: their
// beginnings and ends, notifications to the policy, and the causes of their waits.
//
// Confined to the device thread.
class Requests {
 public:
  // All references must outlive this.
  Requests(const ClientRegistry& registry, scheduler::DeviceLane& lane, Tracer& tracer)
      : registry_(registry), lane_(lane), tracer_(tracer), meter_(lane.rules().classes_matter) {}

  void OnClientAdded(ClientState& client, scheduler::TimePoint now);
  void OnClientChanged(ClientState& client, scheduler::TimePoint now);
  void OnClientLeaving(ClientState& client, scheduler::TimePoint now);
  // Must be the last call for this client, after all of its work has ended.
  void OnClientGone(const ClientState& client) { of_client_[client.index()].reset(); }

  // Number of the request begun last, and whether the client has marked one.
  std::uint64_t last_number(const ClientState& client) const { return Of(client).last_number; }
  bool marks(const ClientState& client) const { return Of(client).marks; }
  // Begins a request that the client has marked on this stream. Earlier requests of the stream may
  // still be open, until their commands have finished. Rejected as a violation if the client has
  // the maximum number open.
  Status Begin(ClientState& client, std::uint32_t stream, scheduler::Duration age,
               scheduler::TimePoint now);
  // Reports that the client expects its next request in `in`.
  void Expect(ClientState& client, scheduler::Duration in, scheduler::TimePoint now);
  // Ends the oldest request of that stream, if there is one.
  void End(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  // Called when the client has work for the device, and when it has none left. If the client does
  // not mark requests, these two events delimit an inferred request.
  void OnWork(ClientState& client, scheduler::TimePoint now);
  void OnNothingLeft(ClientState& client, scheduler::TimePoint now) {
    End(client, OpenRequest::kAllStreams, now);
  }

  // Must be called whenever the client may have begun or ceased to have commands in the lane or on
  // the device.
  void OnOffersChanged(ClientState& client, scheduler::TimePoint now) {
    if (GetPhase(client) != Of(client).activity.phase) ChangePhase(client, now);
  }
  // Called after a command of the client has left the device: adds the result of `make()` to the
  // log, and its charge to the client's activity. Must be called before OnOffersChanged.
  template <typename Make>
  const trace::ExecutionRecord& OnExecuted(ClientState& client, Make make) {
    const trace::ExecutionRecord& record = log_.Add(make);
    if (!client.life.is_leaving()) {
      meter_.OnCharged(Of(client).activity, record.charged, record.ended);
    }
    return record;
  }

  // Returns the report of an open request up to now. If `number` is 0, returns the report of the
  // oldest one. Empty if no such request is open.
  std::optional<RequestReport> ReportOfOpen(const ClientState& client, std::uint64_t number,
                                            scheduler::TimePoint now);

  // Sets `name`, as in "kernel 'gemm'". Leaves it unchanged if the name is no longer known.
  void NameExecution(const trace::ExecutionRecord& record, ShortText& name) const;

  const RequestHistory& GetHistory(const ClientState& client) const { return Of(client).history; }
  const ClientActivity& GetActivity(const ClientState& client) const { return Of(client).activity; }
  // Returns the number of the open request to which a command that ends on that stream belongs; 0
  // if none.
  std::uint64_t OpenNumber(const ClientState& client, std::uint32_t stream) const {
    return Of(client).open.NumberFor(stream);
  }
  bool has_urgent() const { return clients_with_urgent_ > 0; }
  const ActivityMeter::Gaps& gaps() const { return meter_.gaps(); }
  // Updates the share errors.
  void RefreshShares(scheduler::TimePoint now);

 private:
  struct OfClient {
    OpenRequests open;
    std::uint64_t last_number = 0;  // Number of the request begun last.
    bool has_urgent = false;        // A request is open, and the client is urgent.
    // The client has marked a request, so from now on only marked requests count.
    bool marks = false;
    RequestHistory history;
    ClientActivity activity;
  };
  OfClient& Of(const ClientState& client) { return *of_client_[client.index()]; }
  const OfClient& Of(const ClientState& client) const { return *of_client_[client.index()]; }

  static ClientActivity::Phase GetPhase(const ClientState& client) {
    using Phase = ClientActivity::Phase;
    if (client.load.on_device() > 0) return Phase::kOnDevice;
    const bool waits = client.load.queued() > 0 || client.memory.lacks_pages();
    return waits ? Phase::kWaiting : Phase::kAway;
  }
  void ChangePhase(ClientState& client, scheduler::TimePoint now);
  // Appends the longest launch of a turn to its name.
  template <typename Add>
  void NameLongest(const trace::ExecutionRecord& turn, Add add) const;
  // Total time for which the client's memory was not resident.
  scheduler::Duration SuspendedFor(const ClientState& client, scheduler::TimePoint now) const;
  OpenRequest OpenNow(const ClientState& client, std::uint32_t stream, scheduler::TimePoint arrived,
                      scheduler::TimePoint now);
  // Must be called after every change of the client or of its open requests.
  void CountUrgent(ClientState& client);
  void RecordWait(ClientState& client, scheduler::TimePoint from, scheduler::TimePoint now);
  void RecordWaitOf(OpenRequest& request, std::uint64_t session, scheduler::TimePoint from,
                    scheduler::TimePoint now) const;
  // Replaces `blocker` if a command of another session occupied the device for longer during the
  // wait.
  void FindBlocker(std::uint64_t session, const Wait& wait, Blocker& blocker) const;
  RequestReport GetReport(const ClientState& client, const OpenRequest& request, bool has_failed,
                          scheduler::TimePoint now);
  static void Count(ClientState& client, const OpenRequest& request, bool has_failed,
                    scheduler::TimePoint now);

  const ClientRegistry& registry_;
  scheduler::DeviceLane& lane_;
  Tracer& tracer_;
  ActivityMeter meter_;
  ExecutionLog log_;
  // By ClientState::index. Allocated separately, because each takes tens of kilobytes.
  std::array<std::unique_ptr<OfClient>, kSessionsLimit> of_client_;
  std::uint32_t clients_with_urgent_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_REQUESTS_H_
