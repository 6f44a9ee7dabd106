// SPDX-License-Identifier: Apache-2.0
// One session as the device thread sees it.

#ifndef GPUSHARED_SERVER_WORKER_DEVICE_THREAD_CLIENT_STATE_H_
#define GPUSHARED_SERVER_WORKER_DEVICE_THREAD_CLIENT_STATE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpushared/status.h"

#include "ipc/doorbell.h"
#include "ipc/tag_ring.h"
#include "ipc/wire/completion.h"
#include "ipc/wire/layout.h"
#include "ipc/wire/validate.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/device_thread/activity_meter.h"
#include "server/worker/device_thread/command_slab.h"
#include "server/worker/device_thread/counters.h"
#include "server/worker/device_thread/open_requests.h"
#include "server/worker/device_thread/refusal.h"
#include "server/worker/device_thread/request_history.h"
#include "server/worker/device_thread/session_limits.h"

namespace gpushared::server {

inline constexpr std::uint32_t kNoStream = 0xffffffff;

// A failed command, and all of its stream up to `last`.
struct FailedRange {
  std::uint64_t first = 0;  // 0: none.
  std::uint64_t last = 0;
  bool Contains(std::uint64_t sequence) const {
    return first != 0 && sequence >= first && sequence <= last;
  }
};

// The commands of one stream, in order: [front .. next) were offered to the lane or need not
// be, [next .. back] wait.
struct StreamState {
  std::uint32_t front = kNoSlot;
  std::uint32_t back = kNoSlot;
  std::uint32_t next = kNoSlot;  // First not offered yet.
  // An offered command that may be stopped. What follows it must not be on the device before
  // it has ended, or it would run between the two halves.
  std::uint32_t holding = kNoSlot;
  std::uint32_t in_flight = 0;
  std::uint64_t finished = 0;      // The timeline's value, now or soon.
  std::uint64_t last_time_ns = 0;  // When the last finished command ended.
  // Set while the stream skips everything because a command failed.
  bool has_failed = false;
  bool is_to_settle = false;
  bool is_to_publish = false;
  FailedRange failed;         // Of the present incarnation; `last` counts as endless.
  FailedRange failed_before;  // The latest earlier incarnation's.
  std::uint64_t error_sequence = 0;
  std::unique_ptr<CommandFailure> error;  // Until the stream number is created again.
  // Streams whose next command waits for one of this stream, linked by next_waiter.
  std::uint32_t first_waiter = kNoStream;
  std::uint32_t next_waiter = kNoStream;
  std::uint32_t waits_on = kNoStream;  // In whose list it is.

  // Whether command `sequence`, which has finished, did so without having run.
  bool HasFailed(std::uint64_t sequence) const {
    return failed.Contains(sequence) || failed_before.Contains(sequence);
  }
};

struct ModuleEntry {
  const device::Module* module = nullptr;
  std::uint64_t serial = 0;    // Over all sessions.
  std::uint64_t identity = 0;  // See CostModel.
  std::uint32_t in_use = 0;    // Commands taken and not finished that name it.
  bool is_leaving = false;     // No new commands; released when in_use is 0.
};

// Takes effect when everything was taken that the client submitted before it asked.
struct Barrier {
  enum class Kind : std::uint8_t { kUnloadModule, kShrink };
  Kind kind = Kind::kUnloadModule;
  std::uint32_t module = 0;
  std::uint64_t mapped_bytes = 0;
  std::uint64_t position = 0;  // Ring position at which it is reached, or at an empty ring.
  bool is_reached = false;
};

// Set up by the control thread, then confined to the device thread until that hands it back.
//
// What the pointers name belongs to the session, which outlives this.
struct ClientState {
  struct Setup {
    std::uint64_t session = 0;
    std::string who;  // For messages: "client 7 pid 4121".
    scheduler::ClientSpec spec;
    const ipc::CommandSegment* commands = nullptr;
    ipc::CompletionSegment* completions = nullptr;
    int doorbell = -1;  // Borrowed.
    device::Space* space = nullptr;
    SessionLimits limits;
  };
  explicit ClientState(const Setup& setup);
  ClientState(const ClientState&) = delete;
  ClientState& operator=(const ClientState&) = delete;

  scheduler::ClientId id() const { return {setup.session}; }
  device::StreamKey KeyOf(std::uint32_t stream) const {
    return setup.session * ipc::kStreamsMax + stream;
  }
  static std::uint64_t SessionOf(device::StreamKey key) { return key / ipc::kStreamsMax; }

  // Whether the next record may be taken: its answers have room.
  bool HasCompletionRoom() {
    return completion_writer.HasRoom(completions_reserved * ipc::kContinuationDataBytes);
  }
  bool MayTake() const { return !is_broken && !is_leaving && !slab.full(); }

  void MarkToSettle(std::uint32_t stream) {
    StreamState& state = streams[stream];
    if (state.is_to_settle) return;
    state.is_to_settle = true;
    to_settle[to_settle_count++] = static_cast<std::uint8_t>(stream);
  }
  void MarkToPublish(std::uint32_t stream) {
    StreamState& state = streams[stream];
    if (state.is_to_publish) return;
    state.is_to_publish = true;
    to_publish[to_publish_count++] = static_cast<std::uint8_t>(stream);
  }

  // "[client 7 pid 4121 stream 2 command 1841]"
  std::string Who(std::uint32_t stream, std::uint64_t sequence) const;

  const Setup setup;
  scheduler::ClientSpec spec;  // As it is now; may change while it runs.
  std::uint32_t index = 0;     // Of the device thread's table; part of its commands' names.

  ipc::TagRingReader commands;
  ipc::TagRingWriter completion_writer;
  ipc::CompletionDoorbell doorbell;
  ipc::StreamLedger ledger;
  std::size_t completions_reserved = 1;  // Stream 0 may fail once.

  CommandSlab slab;
  std::vector<StreamState> streams;
  std::vector<ModuleEntry> modules;  // By the client's number.
  std::array<std::span<std::byte>, ipc::kArenasMax> arenas = {};
  std::uint64_t mapped_bytes = 0;  // Commands may touch this, from the space's base.

  std::optional<Barrier> barrier;
  // Commands taken before the barrier was reached and not finished; told by their epoch.
  std::uint32_t barrier_waits_for = 0;
  std::uint32_t epoch = 0;

  // Its launches are better stoppable: somebody is here for whom the policy would stop them.
  bool must_give_way = false;

  std::uint32_t offered = 0;  // In the lane's queue.
  std::uint32_t in_flight = 0;
  bool is_broken = false;   // Its bytes were refused; the session is about to end.
  bool is_leaving = false;  // Detached: waits for what is in flight, nothing else.
  bool was_killed = false;
  std::optional<scheduler::TimePoint> kill_at;
  bool is_dirty = false;  // In the dispatcher's list of clients to publish.
  bool is_hot = false;
  std::uint32_t quiet_visits = 0;  // In a row, while hot.
  bool waits_for_credit = false;   // A record waits that has no room for its answer.

  std::array<std::uint8_t, ipc::kStreamsMax> to_settle;
  std::size_t to_settle_count = 0;
  std::array<std::uint8_t, ipc::kStreamsMax> to_publish;
  std::size_t to_publish_count = 0;

  OpenRequests requests;
  std::uint64_t last_request = 0;   // The number of the one begun last.
  bool has_urgent_request = false;  // Open, and the client is urgent.
  // It has marked a request: from then on all that it asks for are marked.
  bool marks_requests = false;
  RequestHistory history;
  ClientActivity activity;

  ClientCounters counters;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DEVICE_THREAD_CLIENT_STATE_H_
