// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_STREAMS_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_STREAMS_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ipc/wire/layout.h"
#include "server/worker/state/command_slab.h"
#include "server/worker/state/rejection.h"

namespace gpushared::server {

inline constexpr std::uint32_t kNoStream = 0xffffffff;

// A failed command and all later commands of its stream up to `last`.
struct FailedRange {
  std::uint64_t first = 0;  // 0: none.
  std::uint64_t last = 0;
  bool Contains(std::uint64_t sequence) const {
    return first != 0 && sequence >= first && sequence <= last;
  }
};

// Commands of one stream, in order: [front .. next) were submitted to the lane or do not have to
// be, [next .. back] are waiting.
struct StreamState {
  std::uint32_t front = kNoSlot;
  std::uint32_t back = kNoSlot;
  std::uint32_t next = kNoSlot;  // First command not yet submitted to the lane.
  // `holding`: a preemptible command in the lane or on the device. Commands after it must not reach
  // the device before it has ended, because after a preemption they would run before its rest. The
  // exception is `chained`, a command that is preempted together with it.
  std::uint32_t holding = kNoSlot;
  std::uint32_t chained = kNoSlot;
  // Number of commands on the device that became preemptible because one of them outlived its
  // prediction.
  std::uint32_t outlived = 0;
  std::uint64_t finished = 0;      // Value of the timeline, published or about to be.
  std::uint64_t last_time_ns = 0;  // End of the last finished command.
  // Set while the stream skips all commands because one has failed.
  bool has_failed = false;
  FailedRange failed;         // Failed commands of the current incarnation; `last` is unbounded.
  FailedRange failed_before;  // Failed commands of the latest earlier incarnation.
  std::uint64_t error_sequence = 0;
  std::unique_ptr<CommandFailure> error;  // Kept until the stream number is created again.

  void Hold(std::uint32_t slot) { (holding == kNoSlot ? holding : chained) = slot; }
  // Called when the command was withdrawn from the lane, was requeued after a preemption, or has
  // ended.
  void Release(std::uint32_t slot) {
    if (chained == slot) chained = kNoSlot;
    if (holding == slot) holding = std::exchange(chained, kNoSlot);
  }

  // Whether the finished command `sequence` failed or was skipped.
  bool HasFailed(std::uint64_t sequence) const {
    return failed.Contains(sequence) || failed_before.Contains(sequence);
  }

 private:
  friend class ClientStreams;
  // Streams whose next command waits for a command of this stream, linked by next_waiter.
  std::uint32_t first_waiter = kNoStream;
  std::uint32_t next_waiter = kNoStream;
  std::uint32_t waits_on = kNoStream;             // The stream whose list contains this one.
  std::uint32_t command_awaiting_slot = kNoSlot;  // Command that needs a slot for its rest.
};

// One client's streams, their commands, and the set of streams to be settled, that is, which may be
// able to make progress.
//
// Confined to the device thread. The pump allocates slots for commands; Dispatcher and Submitter do
// everything else.
class ClientStreams {
 public:
  explicit ClientStreams(std::uint32_t commands_max)
      : slab_(commands_max), streams_(ipc::kStreamsMax) {}

  CommandSlab& slab() { return slab_; }
  const CommandSlab& slab() const { return slab_; }
  StreamState& operator[](std::uint32_t stream) { return streams_[stream]; }
  const StreamState& operator[](std::uint32_t stream) const { return streams_[stream]; }

  void Append(std::uint32_t slot);
  // Unlinks the front command and returns it. Its slot is not freed yet.
  std::uint32_t PopFront(std::uint32_t stream);
  // Splits a command in two; the next slot holds the rest. If no slot is free, returns false, and
  // the stream must be settled once one is free.
  bool Cut(std::uint32_t slot);
  // True if Cut found no free slot for the command and none has become free.
  bool AwaitsSlot(std::uint32_t slot) const {
    return streams_[slab_[slot].stream].command_awaiting_slot == slot && !slab_.has_free();
  }
  // If a slot is free, marks one stream whose command is waiting for a slot. Marks only one,
  // because each of them would examine all nodes of a graph before it takes the slot.
  bool MarkOneAwaitingSlot() {
    return streams_awaiting_slot_ > 0 && slab_.has_free() && MarkNextAwaitingSlot();
  }
  // Called when the next command was submitted to the lane, or needs no submission.
  void PassNext(std::uint32_t stream) {
    StreamState& state = streams_[stream];
    state.next = slab_[state.next].next;
  }

  void MarkToSettle(std::uint32_t stream) {
    if (is_to_settle_.test(stream)) return;
    is_to_settle_.set(stream);
    to_settle_[to_settle_count_++] = static_cast<std::uint8_t>(stream);
  }
  bool is_settled() const { return to_settle_count_ == 0; }
  // Removes and returns a stream to be settled. There must be one.
  std::uint32_t TakeToSettle() {
    const std::uint32_t stream = to_settle_[--to_settle_count_];
    is_to_settle_.reset(stream);
    return stream;
  }

  // Adds `waiter` to the list of streams that `target` wakes when it advances.
  void AddWaiter(std::uint32_t target, std::uint32_t waiter);
  // Empties the list of streams that `target` wakes, and marks these streams to be settled.
  void WakeWaiters(std::uint32_t target) {
    if (streams_[target].first_waiter != kNoStream) WakeThem(target);
  }

 private:
  void WakeThem(std::uint32_t target);
  [[gnu::cold]] bool MarkNextAwaitingSlot();

  CommandSlab slab_;
  std::uint32_t streams_awaiting_slot_ = 0;  // Streams with a command that is waiting for a slot.
  // The stream marked last. The search continues after it, so that the streams take turns.
  std::uint32_t last_marked_ = 0;
  std::vector<StreamState> streams_;
  std::bitset<ipc::kStreamsMax> is_to_settle_;
  std::array<std::uint8_t, ipc::kStreamsMax> to_settle_;
  std::size_t to_settle_count_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_STREAMS_H_
