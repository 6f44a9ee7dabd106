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
  // it has ended, or it would run between the two halves: but for one that is stopped with it.
  std::uint32_t holding = kNoSlot;
  std::uint32_t chained = kNoSlot;
  // Commands on the device that can be stopped together since one of them outlived its prediction.
  std::uint32_t outlived = 0;
  std::uint64_t finished = 0;      // The timeline's value, now or soon.
  std::uint64_t last_time_ns = 0;  // When the last finished command ended.
  // Set while the stream skips everything because a command failed.
  bool has_failed = false;
  FailedRange failed;         // Of the present incarnation; `last` counts as endless.
  FailedRange failed_before;  // The latest earlier incarnation's.
  std::uint64_t error_sequence = 0;
  std::unique_ptr<CommandFailure> error;  // Until the stream number is created again.

  void Hold(std::uint32_t slot) { (holding == kNoSlot ? holding : chained) = slot; }
  // No longer offered, or ended.
  void Release(std::uint32_t slot) {
    if (chained == slot) chained = kNoSlot;
    if (holding == slot) holding = std::exchange(chained, kNoSlot);
  }

  // Whether command `sequence`, which has finished, did so without having run.
  bool HasFailed(std::uint64_t sequence) const {
    return failed.Contains(sequence) || failed_before.Contains(sequence);
  }

 private:
  friend class ClientStreams;
  // Streams whose next command waits for one of this stream, linked by next_waiter.
  std::uint32_t first_waiter = kNoStream;
  std::uint32_t next_waiter = kNoStream;
  std::uint32_t waits_on = kNoStream;  // In whose list it is.
  std::uint32_t uncut = kNoSlot;       // This command awaits a slot for its rest.
};

// One client's streams, their commands, and which of them may have something to do.
//
// Confined to the device thread. The pump takes slots; all else is the dispatcher's.
class ClientStreams {
 public:
  explicit ClientStreams(std::uint32_t commands_max)
      : slab_(commands_max), streams_(ipc::kStreamsMax) {}

  CommandSlab& slab() { return slab_; }
  const CommandSlab& slab() const { return slab_; }
  StreamState& operator[](std::uint32_t stream) { return streams_[stream]; }
  const StreamState& operator[](std::uint32_t stream) const { return streams_[stream]; }

  void Append(std::uint32_t slot);
  // Unlinks the front and returns it; it is no longer in the queue but not yet freed.
  std::uint32_t PopFront(std::uint32_t stream);
  // Cuts a command in two: the slot behind it has the rest. False without a free slot: its stream
  // is to be settled when there is one.
  bool Cut(std::uint32_t slot);
  // Cut has found no free slot for the command, and there is still none.
  bool AwaitsSlot(std::uint32_t slot) const {
    return streams_[slab_[slot].stream].uncut == slot && !slab_.has_free();
  }
  // Marks a stream whose command awaits a slot, if one is free now. One at a time: each looks at
  // all nodes of a graph before it takes the slot.
  bool MarkUncut() { return uncut_ > 0 && slab_.has_free() && MarkNextUncut(); }
  // The next command was offered, or has nothing to offer.
  void PassNext(std::uint32_t stream) {
    StreamState& state = streams_[stream];
    state.next = slab_[state.next].next;
  }

  void MarkToSettle(std::uint32_t stream) {
    if (is_to_settle_.test(stream)) return;
    is_to_settle_.set(stream);
    to_settle_[to_settle_count_++] = static_cast<std::uint8_t>(stream);
  }
  bool is_within_guarantee() const { return to_settle_count_ == 0; }
  // A stream that is to be settled. Not when is_within_guarantee.
  std::uint32_t TakeToSettle() {
    const std::uint32_t stream = to_settle_[--to_settle_count_];
    is_to_settle_.reset(stream);
    return stream;
  }

  // Links `waiter` into the list of streams that `target` wakes when it advances.
  void AddWaiter(std::uint32_t target, std::uint32_t waiter);
  // Empties that list; all in it are to be settled.
  void WakeWaiters(std::uint32_t target) {
    if (streams_[target].first_waiter != kNoStream) WakeThem(target);
  }

 private:
  void WakeThem(std::uint32_t target);
  [[gnu::cold]] bool MarkNextUncut();

  CommandSlab slab_;
  std::uint32_t uncut_ = 0;         // Streams with a command that awaits a slot.
  std::uint32_t uncut_marked_ = 0;  // The last of them that was marked: they take turns.
  std::vector<StreamState> streams_;
  std::bitset<ipc::kStreamsMax> is_to_settle_;
  std::array<std::uint8_t, ipc::kStreamsMax> to_settle_;
  std::size_t to_settle_count_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_STREAMS_H_
