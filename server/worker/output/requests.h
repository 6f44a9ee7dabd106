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
#include "server/worker/output/open_requests.h"
#include "server/worker/output/request_history.h"
#include "server/worker/output/request_report.h"
#include "server/worker/output/stay_log.h"
#include "server/worker/output/tracer.h"
#include "server/worker/state/activity_meter.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/session_limits.h"

namespace gpushared::server {

// The requests of clients, marked by them or told from their pauses: when they begin and end, what
// the policy knows of them, and what each waited for.
//
// Confined to the device thread.
class Requests {
 public:
  // All outlive it.
  Requests(const ClientRegistry& registry, scheduler::DeviceLane& lane, Tracer& tracer)
      : registry_(registry), lane_(lane), tracer_(tracer), meter_(lane.rules().classes_matter) {}

  void OnClientAdded(ClientState& client, scheduler::TimePoint now);
  void OnClientChanged(ClientState& client, scheduler::TimePoint now);
  void OnClientLeaving(ClientState& client, scheduler::TimePoint now);
  // Nothing of it is left: the last call about it.
  void OnClientGone(const ClientState& client) { of_client_[client.index()].reset(); }

  // A request that the client marks begins on this stream, where none is begun and not ended.
  // Rejected, as a violation, when the client has as many open as it may.
  Status Begin(ClientState& client, std::uint32_t stream, scheduler::Duration age,
               scheduler::TimePoint now);
  // The client expects its next request in `in`.
  void Expect(ClientState& client, scheduler::Duration in, scheduler::TimePoint now);
  // The oldest of that stream, when there is one.
  void End(ClientState& client, std::uint32_t stream, scheduler::TimePoint now);
  // The client has work for the device, or nothing any more: where it marks no requests, that is
  // one.
  void OnWork(ClientState& client, scheduler::TimePoint now);
  void OnNothingLeft(ClientState& client, scheduler::TimePoint now) {
    End(client, OpenRequest::kAllStreams, now);
  }

  // After every change of whether the client has commands in the lane or on the device.
  void OnOffersChanged(ClientState& client, scheduler::TimePoint now) {
    if (GetPhase(client) != Of(client).activity.phase) ChangePhase(client, now);
  }
  // A command of the client left the device: keeps the stay that `make()` returns. Before
  // OnOffersChanged.
  template <typename Make>
  const Stay& OnStay(ClientState& client, Make make, scheduler::TimePoint now) {
    const Stay& stay = stays_.Add(make);
    if (!client.life.is_leaving()) meter_.OnCharged(Of(client).activity, stay.charged, now);
    return stay;
  }

  // Of its time so far; the oldest of those that are open for the number 0. Empty where it is not
  // open.
  std::optional<RequestReport> ReportOfOpen(const ClientState& client, std::uint64_t number,
                                            scheduler::TimePoint now);

  // "kernel 'gemm'"; leaves `name` empty when that is not known any more.
  void NameStay(const Stay& stay, ShortText& name) const;

  const RequestHistory& GetHistory(const ClientState& client) const { return Of(client).history; }
  const ClientActivity& GetActivity(const ClientState& client) const { return Of(client).activity; }
  // The number of the open one that a command of that stream belongs to, when it ends; 0: to none.
  std::uint64_t OpenNumber(const ClientState& client, std::uint32_t stream) const {
    return Of(client).open.NumberFor(stream);
  }
  bool has_urgent() const { return clients_with_urgent_ > 0; }
  const ActivityMeter::Gaps& gaps() const { return meter_.gaps(); }
  // Brings share errors up to date.
  void RefreshShares(scheduler::TimePoint now);

 private:
  struct OfClient {
    OpenRequests open;
    std::uint64_t last_number = 0;  // The one begun last has it.
    bool has_urgent = false;        // One is open, and the client is urgent.
    // It has marked a request: from then on all that it asks for are marked.
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
  // For how long its memory was not there, over all.
  scheduler::Duration SuspendedFor(const ClientState& client, scheduler::TimePoint now) const;
  OpenRequest OpenNow(const ClientState& client, std::uint32_t stream, scheduler::TimePoint arrived,
                      scheduler::TimePoint now);
  // After every change of the client's open requests, or of the client.
  void CountUrgent(ClientState& client);
  void RecordWait(ClientState& client, scheduler::TimePoint from, scheduler::TimePoint now);
  void RecordWaitOf(OpenRequest& request, std::uint64_t session, scheduler::TimePoint from,
                    scheduler::TimePoint now) const;
  // Of other sessions, if one was on the device for longer in the wait than what is there.
  void FindBlocker(std::uint64_t session, const Wait& wait, Blocker& blocker) const;
  RequestReport GetReport(const ClientState& client, const OpenRequest& request, bool has_failed,
                          scheduler::TimePoint now);
  static void Count(ClientState& client, const OpenRequest& request, bool has_failed,
                    scheduler::TimePoint now);

  const ClientRegistry& registry_;
  scheduler::DeviceLane& lane_;
  Tracer& tracer_;
  ActivityMeter meter_;
  StayLog stays_;
  // By ClientState::index; of tens of kilobytes each, so null where nobody is.
  std::array<std::unique_ptr<OfClient>, kSessionsLimit> of_client_;
  std::uint32_t clients_with_urgent_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_REQUESTS_H_
