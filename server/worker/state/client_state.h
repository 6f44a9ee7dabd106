// SPDX-License-Identifier: Apache-2.0
// One session as seen by all parts of the device thread. State that only one part needs is kept in
// that part, in a PerClient.

#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_STATE_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ipc/tag_ring.h"
#include "ipc/wire/layout.h"
#include "ipc/wire/validate.h"
#include "scheduler/residency.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/telemetry/totals/device_totals.h"
#include "server/worker/state/client_buffers.h"
#include "server/worker/state/client_caps.h"
#include "server/worker/state/client_gate.h"
#include "server/worker/state/client_graphs.h"
#include "server/worker/state/client_output.h"
#include "server/worker/state/client_streams.h"
#include "server/worker/state/command_scope.h"
#include "server/worker/state/counters.h"
#include "server/worker/state/running_work.h"
#include "server/worker/state/saved_client.h"
#include "server/worker/state/session_limits.h"

namespace gpushared::server {

// Source of the client's command records.
class ClientIntake {
 public:
  ClientIntake(const ipc::CommandSegment& commands, ipc::CompletionSegment& completions)
      : ring_(commands.granules, completions.granules_taken) {}

  bool HasRecord() { return ring_.HasRecord(); }
  ipc::ReadResult TryRead(ipc::RecordCopy& record) { return ring_.TryRead(record); }
  std::uint64_t position() const { return ring_.position(); }
  std::uint64_t published() const { return ring_.published(); }
  // Validates the order of streams, their commands and requests.
  ipc::Violation Accept(const ipc::Command& command) { return stream_log_.Accept(command); }
  bool in_request(std::uint32_t stream) const { return stream_log_.in_request(stream); }
  bool has_request() const { return stream_log_.has_request(); }
  bool is_live(std::uint32_t stream) const { return stream_log_.live(stream); }
  // Both continue the intake of another worker.
  bool Resume(std::uint64_t position, std::uint64_t published) {
    return ring_.Resume(position, published);
  }
  void ResumeStream(std::uint32_t stream, std::uint64_t last, bool is_live) {
    stream_log_.Resume(stream, last, is_live);
  }

 private:
  ipc::TagRingReader ring_;
  ipc::StreamLog stream_log_;
};

// Number of the client's commands in the lane and on the device. Counted by Submitter.
class ClientLoad {
 public:
  std::uint32_t queued() const { return queued_; }  // Commands in the lane.
  std::uint32_t on_device() const { return on_device_; }

  void Queue() { ++queued_; }
  void TakeBack(std::uint32_t commands) { queued_ -= commands; }
  // Returns whether the submitted command is now the client's only command on the device.
  bool Submit() {
    --queued_;
    return ++on_device_ == 1;
  }
  // Returns whether the command that left was the client's only one on the device.
  bool Leave() { return --on_device_ == 0; }

 private:
  std::uint32_t queued_ = 0;
  std::uint32_t on_device_ = 0;
};

// Swap state of a client: whether parts of its memory are swapped out, how long it has waited for
// them, the bytes swapped in for it and evicted from others, and its parking. Maintained by
// MemoryManager.
class ClientMemory {
 public:
  // Whether parts of the client's memory are swapped out. If so, a command starts once its own
  // access set is resident.
  bool is_by_page() const { return is_by_page_; }
  // If is_by_page: the most bytes that can be resident at the same time.
  std::uint64_t most_bytes() const { return most_bytes_; }
  // True if the client has commands that are not queued in the lane, because the memory that these
  // commands touch is not yet resident.
  bool lacks_pages() const { return lacks_since_.has_value(); }
  scheduler::Duration LackedFor(scheduler::TimePoint now) const {
    return lacked_ + (lacks_since_ ? now - *lacks_since_ : scheduler::Duration::zero());
  }
  std::uint64_t swapped_in_bytes() const { return swapped_in_bytes_; }
  std::uint64_t evicted_bytes() const { return evicted_bytes_; }
  const scheduler::ParkingState& parking() const { return parking_; }
  // Session whose memory was last evicted for this client.
  std::uint64_t evicted_from() const { return evicted_from_; }

  void SetByPage(bool is_by_page, std::uint64_t most_bytes) {
    is_by_page_ = is_by_page;
    most_bytes_ = most_bytes;
  }
  void SetLack(bool lacks_pages, scheduler::TimePoint now) {
    lacked_ = LackedFor(now);
    lacks_since_ = lacks_pages ? std::optional(now) : std::nullopt;
  }
  void SetSwappedIn(std::uint64_t bytes) { swapped_in_bytes_ = bytes; }
  void SetParking(const scheduler::ParkingState& parking) { parking_ = parking; }
  void AddEvicted(std::uint64_t bytes, std::uint64_t of_session) {
    evicted_bytes_ += bytes;
    evicted_from_ = of_session;
  }

 private:
  bool is_by_page_ = false;
  std::uint64_t most_bytes_ = 0;
  std::optional<scheduler::TimePoint> lacks_since_;
  scheduler::Duration lacked_{};  // Total until lacks_since_.
  std::uint64_t swapped_in_bytes_ = 0;
  std::uint64_t evicted_bytes_ = 0;
  std::uint64_t evicted_from_ = 0;
  scheduler::ParkingState parking_;
};

// State of the client's departure. Changed only by Dispatcher, except for the pause.
class ClientLife {
 public:
  // Returns whether no further commands are taken, because the client is about to be moved. The
  // rest of a marked request is still taken, because a request cannot be moved.
  bool is_paused() const { return is_paused_; }
  void SetPaused(bool is_paused) { is_paused_ = is_paused; }

  // Returns whether the client's records were invalid, so that its session is about to end.
  bool is_broken() const { return is_broken_; }
  // Returns whether the client is detached and waits only for its commands on the device.
  bool is_leaving() const { return is_leaving_; }
  // Time at which the leaving client's remaining commands are killed; empty once they have been.
  const std::optional<scheduler::TimePoint>& kill_at() const { return kill_at_; }

  // Returns true on the first call.
  bool Break() { return !std::exchange(is_broken_, true); }
  bool Leave(scheduler::TimePoint kill_at) {
    if (std::exchange(is_leaving_, true)) return false;
    kill_at_ = kill_at;
    return true;
  }
  void RecordKilled() { kill_at_.reset(); }

 private:
  bool is_paused_ = false;
  bool is_broken_ = false;
  bool is_leaving_ = false;
  std::optional<scheduler::TimePoint> kill_at_;
};

// State of one client. Set up by the control thread, then confined to the device thread until the
// device thread hands it back. Only `running` may be read by the control thread at any time.
//
// The objects that its pointers refer to belong to the session, which outlives this.
class ClientState {
 public:
  struct Setup {
    std::uint64_t session = 0;
    std::string who;  // For messages: "client 7 'train' pid 4121".
    scheduler::ClientSpec spec;
    ClientCaps caps;
    const ipc::CommandSegment* commands = nullptr;
    ipc::CompletionSegment* completions = nullptr;
    int doorbell = -1;  // Borrowed.
    // Page on which the client reads whether to ring the doorbell, and the number of the last sleep
    // that another worker announced there. Null if the client reads the page of DeviceSignal.
    ipc::WorkerPage* page = nullptr;
    std::uint64_t rung_max = 0;
    device::Space* space = nullptr;
    // Device memory that the client can have at any time (guaranteed_bytes), and that it must leave
    // free for other clients (left_free_bytes).
    std::uint64_t guaranteed_bytes = 0;
    std::uint64_t left_free_bytes = 0;
    // See scheduler::MemoryGrant. Zero if the client cannot be parked.
    scheduler::Duration idle_after{};
    SessionLimits limits;
    std::shared_ptr<GraphBudget> graphs;  // Budget of all sessions; never null.
    // Null if the client does not read printed text.
    std::shared_ptr<const PrintedText> printed = nullptr;
    std::string endpoint, owner;  // For DeviceTotals.
    // The name that the client gave itself, and its process.
    std::string name;
    std::int32_t pid = 0;
    // The client submits its work to the driver itself; its only commands are turns.
    bool is_gated = false;
  };
  explicit ClientState(const Setup& setup);
  ClientState(const ClientState&) = delete;
  ClientState& operator=(const ClientState&) = delete;

  scheduler::ClientId id() const { return {setup.session}; }
  device::StreamKey GetKey(std::uint32_t stream) const {
    return setup.session * ipc::kStreamsMax + stream;
  }
  static std::uint64_t GetSession(device::StreamKey key) { return key / ipc::kStreamsMax; }
  // Current values; an administrator may change them.
  const scheduler::ClientSpec& spec() const { return spec_; }
  const ClientCaps& caps() const { return caps_; }
  void Change(const scheduler::ClientSpec& spec, const ClientCaps& caps) {
    spec_ = spec;
    caps_ = caps;
  }
  // Index in the registry, which assigns it; part of the names of the client's commands.
  std::uint32_t index() const { return index_; }
  void set_index(std::uint32_t index) { index_ = index; }

  // Whether the next record may be taken, provided that its completion records fit.
  bool MayTake() const {
    const bool is_paused = life.is_paused() && !intake.has_request();
    return !life.is_broken() && !life.is_leaving() && !is_paused && !streams.slab().full() &&
           graphs.MayTake();
  }
  // "[client 7 'train' pid 4121 stream 2 command 1841]"
  std::string Who(std::uint32_t stream, std::uint64_t sequence) const;

  const Setup setup;
  ClientIntake intake;
  CommandScope scope;
  ClientGraphs graphs;
  ClientBuffers buffers;
  ClientStreams streams;
  ClientOutput output;
  ClientGate gate;
  ClientLoad load;
  RunningWork running;
  ClientMemory memory;
  ClientLife life;
  // A figure that is in `counters` and in `totals` is always updated in both by the same function.
  ClientCounters counters;
  ClientTotals totals;
  // Whether Restore set this up. If so: number of the last request of the saved client, and whether
  // it had marked one.
  bool was_saved = false;
  std::uint64_t requests_before = 0;
  bool has_marked_requests = false;
  // Set when the client is detached to be moved.
  std::unique_ptr<SavedClient> saved;

 private:
  scheduler::ClientSpec spec_;
  ClientCaps caps_;
  std::uint32_t index_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_STATE_H_
