// SPDX-License-Identifier: Apache-2.0
// Storage of a client's commands from the ring to their end.

#ifndef GPUSHARED_SERVER_WORKER_STATE_COMMAND_SLAB_H_
#define GPUSHARED_SERVER_WORKER_STATE_COMMAND_SLAB_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "gpushared/check.h"

#include "ipc/wire/command.h"
#include "ipc/wire/layout.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/device/reach.h"
#include "server/worker/state/client_graphs.h"
#include "server/worker/state/command_kind.h"
#include "server/worker/state/rejection.h"
#include "server/worker/state/session_limits.h"

namespace gpushared::server {

inline constexpr std::uint32_t kNoSlot = 0xffffffff;

// Name of a command on the device and in the lane. The serial makes it unique, so a completion for
// an earlier use of the slot is recognised.
struct WorkName {
  static constexpr unsigned kSlotBits = 16;
  static constexpr unsigned kSerialBits = 40;
  static_assert(kCommandsTakenLimit < (1u << kSlotBits));
  static_assert(kSessionsLimit < (1u << (64 - kSlotBits - kSerialBits)));

  static device::WorkId Make(std::uint32_t client, std::uint32_t slot, std::uint64_t serial) {
    return std::uint64_t{client} << (kSlotBits + kSerialBits) | std::uint64_t{slot} << kSerialBits |
           (serial & ((std::uint64_t{1} << kSerialBits) - 1));
  }
  static std::uint32_t Client(device::WorkId id) {
    return static_cast<std::uint32_t>(id >> (kSlotBits + kSerialBits));
  }
  static std::uint32_t Slot(device::WorkId id) {
    return static_cast<std::uint32_t>(id >> kSerialBits) & ((1u << kSlotBits) - 1);
  }
};

enum class CommandState : std::uint8_t {
  kQueued,    // Waiting for earlier commands of its stream.
  kOffered,   // In the lane's queue.
  kOnDevice,  // Submitted to the device, and not completed.
  kEnded,     // Has left the device, and waits for earlier commands of its stream.
};

// Converts a time of the device's clock, which is also the scheduler's clock.
inline scheduler::TimePoint ToTimePoint(device::DeviceClock::time_point at) {
  return scheduler::TimePoint(std::chrono::nanoseconds(at.time_since_epoch()));
}

// Current execution of a command, from its submission until it leaves the device. An
// ExecutionRecord describes it afterwards.
struct Submission {
  enum class OtherWork : std::uint8_t { kNone, kOwnStream, kOtherStreams };

  scheduler::TimePoint at{};
  OtherWork other_work = OtherWork::kNone;  // Other work on the device at submission.
  bool shares_device = false;               // Other clients had work on the device at submission.
  bool counts_as_high = false;              // Counted among the high-class work on the device.
  // No other stream had work on the device when the stop was requested.
  bool was_alone_at_stop = false;
  // The device's overlap counts of streams and of clients at submission.
  std::uint64_t overlaps = 0;
  std::uint64_t client_overlaps = 0;
  // This command is preemptible because it, or another command of its stream, has taken longer than
  // predicted.
  bool has_outlived = false;
  std::optional<scheduler::TimePoint> stop_asked;  // When the policy requested preemption.

  bool was_alone() const { return other_work != OtherWork::kOtherStreams; }
};

// Usefulness of a command's time to the cost model. A later submission of the command can only
// reduce it.
enum class Timing : std::uint8_t {
  kSample,   // The time that the command takes alone on the device.
  kBound,    // An upper bound of that time, because other work ran concurrently.
  kUnknown,  // The device did not measure its exact time.
};

class CommandSlot {
 public:
  // Progress over all submissions.
  enum class Past : std::uint8_t { kNew, kSubmitted, kStopped };
  static constexpr std::uint16_t kNoModule = 0xffff;
  static_assert(kNoModule >= ipc::kModulesMax);

  std::uint64_t sequence = 0;
  std::uint32_t next = kNoSlot;  // Next slot of the stream or of the free list.
  std::uint8_t stream = 0;
  CommandKind kind = CommandKind::kMark;
  // Modules counted as in use: that of a launch, or those whose variables a copy or fill touches. A
  // graph launch counts the modules of the graph until its last part has ended.
  std::array<std::uint16_t, 2> modules = {kNoModule, kNoModule};
  std::uint32_t epoch = 0;  // CommandScope::epoch when the command was taken.
  std::uint64_t units = 0;
  std::uint64_t bytes = 0;        // Bytes copied or filled.
  std::uint64_t cost_key = 0;     // Launches only; see CostModel.
  std::uint64_t cost_kernel = 0;  // Launches only; see CostModel.
  // Whether the launch runs as the preemptible form of its kernel. Set only on devices where that
  // form differs from the client's kernel.
  bool runs_stoppable_form = false;
  // The launch would run as the preemptible form if that were not slower.
  bool has_slow_form = false;
  scheduler::TimePoint taken{};
  // Totals over all completed submissions.
  scheduler::Duration measured{};  // From the start of the first unit to the end of the last.
  Timing timing = Timing::kSample;
  bool is_among_own = true;       // No other client had work on the device at the same time.
  scheduler::Duration charged{};  // Device time charged to the client.
  // Device time of the running submission that is already in the counters. See
  // Submitter::CountRunning.
  scheduler::Duration counted{};
  scheduler::Duration ran{};     // Launches only; see KernelWatch.
  std::uint64_t started_ns = 0;  // On the device's clock; 0 until a completion reported it.
  std::uint64_t ended_ns = 0;
  std::uint64_t units_done = 0;
  ipc::CommandId target;  // Only for kWaitFor.
  // Why the command was rejected or how it failed; null if neither.
  std::unique_ptr<CommandFailure> failure;
  std::variant<device::LaunchWork, device::CopyWork, device::FillWork, device::GraphWork> work;
  // Graph whose nodes [first_node, end_node) this command runs: all of them or one part. Null for
  // other commands.
  std::shared_ptr<Graph> graph;
  std::uint32_t first_node = 0;
  std::uint32_t end_node = 0;
  bool is_cut = false;       // The next slot holds the rest of its command.
  bool goes_singly = false;  // Each node becomes a separate part, so that it can be measured.
  scheduler::Duration nodes_predicted{};  // Set if the command covers several nodes.

  CommandState state() const { return state_; }
  Past past() const { return past_; }
  // Name of the command's latest submission to the lane; 0 if it was never submitted.
  device::WorkId name() const { return name_; }
  bool is_stoppable() const { return is_stoppable_; }
  scheduler::Duration predicted() const { return predicted_; }
  // The command's latest submission to the device. Only for commands that were submitted at least
  // once.
  const Submission& submission() const { return submission_; }

  // kQueued -> kOffered.
  void Offer(device::WorkId name, scheduler::Duration predicted, bool is_stoppable) {
    Move(CommandState::kQueued, CommandState::kOffered);
    name_ = name;
    predicted_ = predicted;
    is_stoppable_ = is_stoppable;
  }
  // kOffered -> kQueued.
  void TakeBack() {
    Move(CommandState::kOffered, CommandState::kQueued);
    // The form is chosen again, unless the command has begun.
    if (past_ != Past::kStopped) runs_stoppable_form = false;
  }
  // kOffered -> kOnDevice.
  void Submit(const Submission& submission) {
    Move(CommandState::kOffered, CommandState::kOnDevice);
    submission_ = submission;
    if (past_ == Past::kNew) past_ = Past::kSubmitted;
  }
  // Called for each command on the device of a stream of which one has outlived its prediction.
  void BecomeStoppable() { is_stoppable_ = submission_.has_outlived = true; }
  // Records that the policy requested preemption of the command, which is on the device.
  void AskToStop(bool is_alone, scheduler::TimePoint now) {
    submission_.stop_asked = now;
    submission_.was_alone_at_stop = is_alone;
  }
  // kOnDevice -> kOffered: preempted with units left, which the lane has queued again.
  void OfferRest() {
    Move(CommandState::kOnDevice, CommandState::kOffered);
    past_ = Past::kStopped;
  }
  // kOnDevice -> kQueued: preempted with units left, to be submitted to the lane after another
  // command.
  void QueueRest() {
    Move(CommandState::kOnDevice, CommandState::kQueued);
    past_ = Past::kStopped;
  }
  // kOnDevice -> kEnded.
  void End() { Move(CommandState::kOnDevice, CommandState::kEnded); }

  bool is_device_work() const { return kind <= CommandKind::kTurn; }
  // True if other slots run the rest of the graph.
  bool is_part_of_graph() const { return end_node - first_node != graph->size(); }
  bool destroys_stream() const {
    return kind == CommandKind::kDestroyStream || kind == CommandKind::kDestroyStreamInRequest;
  }

  // Access set of a launch or graph launch; a part of a graph launch has that of the whole. Null if
  // unknown. For other kinds the work itself names the memory.
  const device::Reach* reach() const { return has_reach_ ? reach_.get() : nullptr; }
  // The slot keeps the allocation, so the steady state allocates nothing.
  void SetReach(const device::Reach& reach) {
    has_reach_ = true;
    if (reach_ == nullptr) reach_ = std::make_unique<device::Reach>();
    *reach_ = reach;
  }

  static constexpr std::size_t kSmallBytes = 256;
  static constexpr std::size_t kBlockBytes = ipc::kInlineParameterBytesMax;
  // Returns space for the parameters, valid until the slot is freed. A slot that once needed a
  // block keeps it, so the steady state allocates nothing; a block larger than any inline record is
  // freed when the slot is reused.
  std::span<std::byte> GetParameterSpace(std::size_t wanted) {
    if (wanted <= kSmallBytes) return {small_.data(), wanted};
    if (block_bytes_ < wanted) {
      block_bytes_ = wanted > kBlockBytes ? wanted : kBlockBytes;
      block_ = std::make_unique_for_overwrite<std::byte[]>(block_bytes_);
    }
    return {block_.get(), wanted};
  }

 private:
  friend class CommandSlab;
  void Move(CommandState from, CommandState to) {
    Check(state_ == from, "a command goes from one state to the next");
    state_ = to;
  }
  void Recycle() {
    failure.reset();
    is_cut = goes_singly = false;
    runs_stoppable_form = has_slow_form = false;
    first_node = end_node = 0;
    modules = {kNoModule, kNoModule};
    units = units_done = bytes = cost_key = cost_kernel = 0;
    ran = measured = charged = {};
    timing = Timing::kSample;
    is_among_own = true;
    started_ns = ended_ns = 0;
    next = kNoSlot;
    state_ = CommandState::kQueued;
    past_ = Past::kNew;
    is_stoppable_ = false;
    has_reach_ = false;
    if (block_bytes_ > kBlockBytes) {
      block_.reset();
      block_bytes_ = 0;
    }
  }

  device::WorkId name_ = 0;
  CommandState state_ = CommandState::kQueued;
  Past past_ = Past::kNew;
  bool is_stoppable_ = false;
  bool has_reach_ = false;
  std::unique_ptr<device::Reach> reach_;
  scheduler::Duration predicted_{};
  Submission submission_;
  std::size_t block_bytes_ = 0;
  std::unique_ptr<std::byte[]> block_;
  alignas(16) std::array<std::byte, kSmallBytes> small_;
};

// Fixed number of command slots. The slot freed last is reused first because it is still in the
// cache.
//
// Commands taken from the ring use up to `commands` slots. A few more slots are reserved for the
// parts of commands that are split. Each part goes to the lane as soon as it has its slot, so these
// slots become free again no matter what else is waiting.
//
// Thread-compatible. References remain valid as long as the slab.
class CommandSlab {
 public:
  static constexpr std::uint32_t kPartsMax = 16;

  explicit CommandSlab(std::uint32_t commands)
      : commands_max_(commands), slots_(commands + kPartsMax) {
    Check(slots_.size() <= kCommandsTakenLimit, "command slots fit their name");
    for (std::uint32_t i = size(); i > 0; --i) {
      slots_[i - 1].next = first_free_;
      first_free_ = i - 1;
    }
  }

  bool empty() const { return used_ == 0; }
  // No slot is free for another command.
  bool full() const { return used_ >= commands_max_; }
  // A slot is free for a command or a part.
  bool has_free() const { return first_free_ != kNoSlot; }
  // Number of commands; their further parts do not count.
  std::uint32_t used() const { return used_ - parts_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }

  // Must not be called if full.
  std::uint32_t Allocate() {
    Check(!full(), "a command slot is free");
    return Take();
  }
  // Takes a slot for the rest of a command that is split. Requires has_free.
  std::uint32_t Cut(std::uint32_t whole) {
    Check(has_free(), "a slot is free for the rest of a split command");
    const std::uint32_t rest = Take();
    slots_[rest].is_cut = slots_[whole].is_cut;
    slots_[whole].is_cut = true;
    ++parts_;
    return rest;
  }
  void Free(std::uint32_t slot) {
    CommandSlot& freed = slots_[slot];
    freed.name_ = 0;
    freed.failure.reset();
    freed.graph.reset();
    if (freed.is_cut) --parts_;
    if (auto* const launch = std::get_if<device::LaunchWork>(&freed.work)) launch->paused.reset();
    freed.next = first_free_;
    first_free_ = slot;
    --used_;
  }

  CommandSlot& operator[](std::uint32_t slot) { return slots_[slot]; }
  const CommandSlot& operator[](std::uint32_t slot) const { return slots_[slot]; }

 private:
  std::uint32_t Take() {
    const std::uint32_t slot = first_free_;
    CommandSlot& taken = slots_[slot];
    first_free_ = taken.next;
    taken.Recycle();
    ++used_;
    return slot;
  }

  const std::uint32_t commands_max_;
  std::vector<CommandSlot> slots_;
  std::uint32_t first_free_ = kNoSlot;
  std::uint32_t used_ = 0;
  std::uint32_t parts_ = 0;  // Slots in use other than the last one of each command.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COMMAND_SLAB_H_
