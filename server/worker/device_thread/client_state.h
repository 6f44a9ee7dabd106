// SPDX-License-Identifier: Apache-2.0
// One session as the device thread sees it: a part for each duty, written by that duty's owner.

#ifndef GPUSHARED_SERVER_WORKER_DEVICE_THREAD_CLIENT_STATE_H_
#define GPUSHARED_SERVER_WORKER_DEVICE_THREAD_CLIENT_STATE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ipc/tag_ring.h"
#include "ipc/wire/layout.h"
#include "ipc/wire/validate.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/totals/device_totals.h"
#include "server/trace/event.h"
#include "server/worker/device_thread/activity_meter.h"
#include "server/worker/device_thread/client_buffers.h"
#include "server/worker/device_thread/client_caps.h"
#include "server/worker/device_thread/client_graphs.h"
#include "server/worker/device_thread/client_outlet.h"
#include "server/worker/device_thread/client_streams.h"
#include "server/worker/device_thread/command_scope.h"
#include "server/worker/device_thread/counters.h"
#include "server/worker/device_thread/open_requests.h"
#include "server/worker/device_thread/request_history.h"
#include "server/worker/device_thread/running_work.h"
#include "server/worker/device_thread/session_limits.h"
#include "server/worker/device_thread/step_use.h"

namespace gpushared::server {

// Where its records come from. CommandPump's.
class ClientIntake {
 public:
  ClientIntake(const ipc::CommandSegment& commands, ipc::CompletionSegment& completions)
      : ring_(commands.granules, completions.granules_taken) {}

  bool HasRecord() { return ring_.HasRecord(); }
  std::uint64_t position() const { return ring_.position(); }

 private:
  friend class CommandPump;
  ipc::TagRingReader ring_;
  ipc::StreamLedger ledger_;
};

// What it has in the lane and on the device. Offers' own.
class ClientOffers {
 public:
  std::uint32_t queued() const { return queued_; }  // In the lane.
  std::uint32_t on_device() const { return on_device_; }

 private:
  friend class Offers;
  static constexpr std::uint32_t kDistrustMin = 4096, kDistrustMax = std::uint32_t{1} << 20;
  // Apart from each other: a processor that reads both at once waits for the last store to one.
  std::uint32_t queued_ = 0;
  // Its launches are better stoppable: somebody is here for whom the policy would stop them.
  bool must_give_way_ = false;
  std::uint32_t on_device_ = 0;
  // Of so many further launches no prediction is believed that says they are too short to be worth
  // stopping; and of how many after the next one that is far longer than predicted.
  std::uint32_t distrusted_launches_ = 0;
  std::uint32_t next_distrust_ = kDistrustMin;
  device::WorkId running_ = 0;  // The work that ClientState::running names; 0: none.
  std::array<std::uint32_t, ipc::kStreamsMax> on_device_of_stream_ = {};
};

// What it waits for. Requests' own.
class ClientRequests {
 public:
  const RequestHistory& history() const { return history_; }
  const ClientActivity& activity() const { return activity_; }
  const OpenRequests& open() const { return open_; }

 private:
  friend class Requests;
  OpenRequests open_;
  std::uint64_t last_number_ = 0;  // The one begun last has it.
  bool has_urgent_ = false;        // One is open, and the client is urgent.
  // It has marked a request: from then on all that it asks for are marked.
  bool marks_ = false;
  RequestHistory history_;
  ClientActivity activity_;
};

// Which of its memory is on the device, and memory that others made room with, for it.
// MemoryKeeper's.
class ClientMemory {
 public:
  // A part is moved out: a command starts when all that it may touch is on the device.
  bool is_by_step() const { return is_by_step_; }
  // Where that can be: so much of it can be on the device at one time.
  std::uint64_t most_bytes() const { return most_bytes_; }
  // It has commands and is not held, and what they touch is still to come in.
  bool lacks_steps() const { return lacks_since_.has_value(); }
  scheduler::Duration LackedFor(scheduler::TimePoint now) const {
    return lacked_ + (lacks_since_ ? now - *lacks_since_ : scheduler::Duration::zero());
  }
  std::uint64_t moved_in_bytes() const { return counted_moves_.in_bytes; }
  std::uint64_t made_room_bytes() const { return made_room_bytes_; }
  std::uint64_t made_room_by() const { return made_room_by_; }  // The last one's session.

 private:
  friend class MemoryKeeper;
  bool is_by_step_ = false;
  std::uint64_t most_bytes_ = 0;
  StepUse use_;
  // At the last look at who is busy: launches, copies and fills, and until when they count.
  std::uint64_t work_ended_ = 0;
  scheduler::TimePoint had_work_until_{};
  std::optional<scheduler::TimePoint> lacks_since_;
  scheduler::Duration lacked_{};  // Before that.
  std::uint64_t made_room_bytes_ = 0;
  std::uint64_t made_room_by_ = 0;
  // The totals have so much of it.
  scheduler::MemoryMoves counted_moves_;
  scheduler::Duration counted_wait_{};
};

// When its arenas may be looked at again. ArenaWatch's.
class ClientCopies {
  friend class ArenaWatch;
  device::DeviceClock::time_point look_again_at_{};
};

// How often its ring is looked at. DeviceThread's.
class ClientVisits {
  friend class DeviceThread;
  bool is_hot_ = false;
  std::uint32_t quiet_ = 0;  // In a row, while hot.
};

// Whether its doorbell ends a sleep. Doorbells'.
class ClientDoor {
  friend class Doorbells;
  bool is_heard_ = true;
  bool may_tell_old_ring_ = false;     // It is heard again, and has not rung since.
  std::uint32_t rings_left_ = 16;      // Before it is not heard for a while. Commands add some.
  scheduler::Duration pause_{};        // The last such while,
  scheduler::TimePoint heard_from_{};  // and its end.
};

// What was written of it for those who watch. Tracer's.
class ClientTrace {
  friend class Tracer;
  trace::Depths told_;
};

// How it leaves. Dispatcher's.
class ClientLife {
 public:
  // Its bytes were refused; the session is about to end.
  bool is_broken() const { return is_broken_; }
  // Detached: waits for what is on the device, nothing else.
  bool is_leaving() const { return is_leaving_; }

 private:
  friend class Dispatcher;
  bool is_broken_ = false;
  bool is_leaving_ = false;
  std::optional<scheduler::TimePoint> kill_at_;  // Until it was killed.
};

// Set up by the control thread, then confined to the device thread until that hands it back, except
// `running`, which the control thread may read at any time.
//
// What the pointers name belongs to the session, which outlives this.
class ClientState {
 public:
  struct Setup {
    std::uint64_t session = 0;
    std::string who;  // For messages: "client 7 pid 4121".
    scheduler::ClientSpec spec;
    ClientCaps caps;
    const ipc::CommandSegment* commands = nullptr;
    ipc::CompletionSegment* completions = nullptr;
    int doorbell = -1;  // Borrowed.
    device::Space* space = nullptr;
    // Device memory that is there for it at any time, and that it leaves free for others.
    std::uint64_t guaranteed_bytes = 0;
    std::uint64_t left_free_bytes = 0;
    SessionLimits limits;
    std::shared_ptr<GraphBudget> graphs;                   // Of all sessions; never null.
    std::shared_ptr<const PrintedText> printed = nullptr;  // Null: the client takes none.
    std::string entrance;                                  // For DeviceTotals.
    // Its own name for itself, and its process.
    std::string name;
    std::int32_t pid = 0;
  };
  explicit ClientState(const Setup& setup);
  ClientState(const ClientState&) = delete;
  ClientState& operator=(const ClientState&) = delete;

  scheduler::ClientId id() const { return {setup.session}; }
  device::StreamKey KeyOf(std::uint32_t stream) const {
    return setup.session * ipc::kStreamsMax + stream;
  }
  static std::uint64_t SessionOf(device::StreamKey key) { return key / ipc::kStreamsMax; }
  // As it is now; may change while it runs.
  const scheduler::ClientSpec& spec() const { return spec_; }
  const ClientCaps& caps() const { return caps_; }
  // Of the roster; part of its commands' names.
  std::uint32_t index() const { return index_; }

  // Whether the next record may be taken, if its answers have room.
  bool MayTake() const {
    return !life.is_broken() && !life.is_leaving() && !streams.slab().full() && graphs.MayTake();
  }
  // "[client 7 pid 4121 stream 2 command 1841]"
  std::string Who(std::uint32_t stream, std::uint64_t sequence) const;

  const Setup setup;
  ClientIntake intake;
  CommandScope scope;
  ClientGraphs graphs;
  ClientBuffers buffers;  // CommandPump's.
  ClientStreams streams;
  ClientOutlet outlet;
  ClientOffers offers;
  RunningWork running;  // Offers'.
  ClientRequests requests;
  ClientMemory memory;
  ClientCopies copies;
  ClientVisits visits;
  ClientDoor door;
  ClientLife life;
  ClientTrace trace;
  // Each count here is in the totals, too, and both are made where it happens.
  ClientCounters counters;
  ClientTotals totals;

 private:
  friend class ClientRoster;
  friend class Dispatcher;
  scheduler::ClientSpec spec_;
  ClientCaps caps_;
  std::uint32_t index_ = 0;
  std::size_t totals_row_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DEVICE_THREAD_CLIENT_STATE_H_
