// SPDX-License-Identifier: Apache-2.0
// Where a client's commands live between the ring and their end.

#ifndef GPUSHARED_SERVER_WORKER_STATE_COMMAND_SLAB_H_
#define GPUSHARED_SERVER_WORKER_STATE_COMMAND_SLAB_H_

#include <array>
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

// A command's name on the device and in the lane. The serial makes it unlike every other one,
// so a completion that names a slot which has moved on is recognised.
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
  kQueued,    // Waits for its turn in its stream.
  kOffered,   // In the lane's queue.
  kOnDevice,  // Submitted, and its completion has not come.
  kEnded,     // Left the device, waits for earlier commands of its stream.
};

// One stay of a command on the device.
struct Submission {
  enum class Company : std::uint8_t { kNobody, kOwnStream, kOtherStreams };

  scheduler::TimePoint at{};
  Company company = Company::kNobody;  // Work on the device when it came.
  bool is_beside_clients = false;      // Other clients' work was there when it came.
  bool counts_as_high = false;         // In the count of high-class work on the device.
  bool was_alone_at_stop = false;      // No other stream's work was there when it was told to stop.
  // The device's counts of overlaps, of streams and of clients, when it came.
  std::uint64_t overlaps = 0;
  std::uint64_t client_overlaps = 0;
  // It, or another one of its stream, has taken longer than predicted, so that it can be stopped.
  bool has_outlived = false;
  std::optional<scheduler::TimePoint> stop_asked;  // By the policy, since then.

  bool was_alone() const { return company != Company::kOtherStreams; }
};

// What the cost model may learn from a command. Each submission can make it less, none more.
enum class Timing : std::uint8_t {
  kSample,   // Its time, and it had the device alone.
  kBound,    // Its time, beside others.
  kUnknown,  // The device does not know its time exactly.
};

class CommandSlot {
 public:
  // How far it has come over all its submissions.
  enum class Past : std::uint8_t { kNew, kSubmitted, kStopped };
  static constexpr std::uint16_t kNoModule = 0xffff;
  static_assert(kNoModule >= ipc::kModulesMax);

  std::uint64_t sequence = 0;
  std::uint32_t next = kNoSlot;  // Of the same stream; of the free list when free.
  std::uint8_t stream = 0;
  CommandKind kind = CommandKind::kMark;
  // Counted as in use: that of a launch, or those whose variables a copy or fill touches. A launch
  // of a graph counts those of the graph, until its last part has ended.
  std::array<std::uint16_t, 2> modules = {kNoModule, kNoModule};
  std::uint32_t epoch = 0;  // CommandScope::epoch when it was taken.
  std::uint64_t units = 0;
  std::uint64_t bytes = 0;        // Copied or filled.
  std::uint64_t cost_key = 0;     // Of launches; see CostModel.
  std::uint64_t cost_kernel = 0;  // Of launches; see CostModel.
  // A launch on a device that stops another form than the client's: it runs as that one.
  bool runs_stoppable_form = false;
  // It would, if that took no longer.
  bool has_slow_form = false;
  scheduler::TimePoint taken{};
  // Over the submissions that have ended.
  scheduler::Duration measured{};  // From the begin of the first unit to the end of the last.
  Timing timing = Timing::kSample;
  bool is_among_own = true;       // Nothing of other clients was on the device beside it.
  scheduler::Duration charged{};  // Device time.
  // Of the submission that has not ended: in the counters already. See Submitter::CountRunning.
  scheduler::Duration counted{};
  scheduler::Duration ran{};     // Of launches; see KernelWatch.
  std::uint64_t started_ns = 0;  // Device time; 0 before a completion told it.
  std::uint64_t ended_ns = 0;
  std::uint64_t units_done = 0;
  ipc::CommandId target;  // kWaitFor.
  // Why it can't run or how it failed; null when neither.
  std::unique_ptr<CommandFailure> failure;
  std::variant<device::LaunchWork, device::CopyWork, device::FillWork, device::GraphWork> work;
  // A launch of a graph, or the part of it that is on its own here: nodes [first_node, end_node).
  std::shared_ptr<Graph> graph;  // Null: of none.
  std::uint32_t first_node = 0;
  std::uint32_t end_node = 0;
  bool is_cut = false;                    // The slot behind it has the rest of its command.
  bool goes_singly = false;               // Each node of the command is a part, to be measured.
  scheduler::Duration nodes_predicted{};  // The command is several nodes.

  CommandState state() const { return state_; }
  Past past() const { return past_; }
  device::WorkId name() const { return name_; }  // Of this offer; 0: it has none.
  bool is_stoppable() const { return is_stoppable_; }
  scheduler::Duration predicted() const { return predicted_; }
  // Its latest; of commands that have been on the device.
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
    // Its form is chosen anew, unless it has begun.
    if (past_ != Past::kStopped) runs_stoppable_form = false;
  }
  // kOffered -> kOnDevice.
  void Submit(const Submission& submission) {
    Move(CommandState::kOffered, CommandState::kOnDevice);
    submission_ = submission;
    if (past_ == Past::kNew) past_ = Past::kSubmitted;
  }
  // On the device: it outlived its prediction.
  void BecomeStoppable() { is_stoppable_ = submission_.has_outlived = true; }
  // On the device: the policy wants it off.
  void AskToStop(bool is_alone, scheduler::TimePoint now) {
    submission_.stop_asked = now;
    submission_.was_alone_at_stop = is_alone;
  }
  // kOnDevice -> kOffered: it left with units to do, which the lane has again.
  void OfferRest() {
    Move(CommandState::kOnDevice, CommandState::kOffered);
    past_ = Past::kStopped;
  }
  // kOnDevice -> kQueued: it left with units to do, and is to be offered behind another.
  void QueueRest() {
    Move(CommandState::kOnDevice, CommandState::kQueued);
    past_ = Past::kStopped;
  }
  // kOnDevice -> kEnded.
  void End() { Move(CommandState::kOnDevice, CommandState::kEnded); }

  bool is_device_work() const { return kind <= CommandKind::kGraph; }
  // Of a graph's launch: others run the rest of it.
  bool is_part_of_graph() const { return end_node - first_node != graph->size(); }
  bool destroys_stream() const {
    return kind == CommandKind::kDestroyStream || kind == CommandKind::kDestroyStreamInRequest;
  }

  // Of launches and graphs, and of all parts of a graph's launch: memory that they may touch. Null
  // where nobody knows it. Others say it themselves.
  const device::Reach* reach() const { return has_reach_ ? reach_.get() : nullptr; }
  // The slot keeps the place for it, so a steady state allocates nothing.
  void SetReach(const device::Reach& reach) {
    has_reach_ = true;
    if (reach_ == nullptr) reach_ = std::make_unique<device::Reach>();
    *reach_ = reach;
  }

  static constexpr std::size_t kSmallBytes = 256;
  static constexpr std::size_t kBlockBytes = ipc::kInlineParameterBytesMax;
  // Room for the bytes of the parameters, until the slot is freed. A slot that once needed a
  // block keeps it, so a steady state allocates nothing; what is larger than any inline
  // record is given back.
  std::span<std::byte> ParameterRoom(std::size_t wanted) {
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

// A fixed number of slots. The one freed last is used next: it is still in the cache.
//
// Commands that are taken fill `commands` slots. A few more are there for parts of those that are
// cut. Each part goes to the lane as soon as it has its slot, so these slots come free again
// whatever else waits.
//
// Thread-compatible. References stay good as long as the slab.
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
  // For further commands.
  bool full() const { return used_ >= commands_max_; }
  // For parts, too.
  bool has_free() const { return first_free_ != kNoSlot; }
  std::uint32_t used() const { return used_ - parts_; }  // Commands.
  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }

  // Not when full.
  std::uint32_t Allocate() {
    Check(!full(), "a command slot is free");
    return Take();
  }
  // Where has_free: a slot for the rest of a command, which is cut.
  std::uint32_t Cut(std::uint32_t whole) {
    Check(has_free(), "a command is cut where a slot is free");
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
  std::uint32_t parts_ = 0;  // Used, and not the last one of their commands.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COMMAND_SLAB_H_
