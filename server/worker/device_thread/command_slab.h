// SPDX-License-Identifier: Apache-2.0
// Where a client's commands live between the ring and their end.

#ifndef GPUSHARED_SERVER_WORKER_DEVICE_THREAD_COMMAND_SLAB_H_
#define GPUSHARED_SERVER_WORKER_DEVICE_THREAD_COMMAND_SLAB_H_

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
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/worker/device_thread/refusal.h"
#include "server/worker/device_thread/session_limits.h"

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

enum class CommandKind : std::uint8_t {
  kLaunch,
  kCopyToDevice,
  kCopyToHost,
  kCopyOnDevice,
  kFill,
  // Below: never seen by the device.
  kWaitFor,
  kMark,
  kCreateStream,
  kDestroyStream,
  kBeginRequest,
  kEndRequest,
  kExpectRequest,
};

enum class CommandState : std::uint8_t {
  kQueued,    // Waits for its turn in its stream.
  kOffered,   // In the lane's queue.
  kInFlight,  // On the device.
  kEnded,     // Left the device, waits for earlier commands of its stream.
};

struct CommandSlot {
  device::WorkId work_id = 0;
  std::uint64_t sequence = 0;
  std::uint32_t next = kNoSlot;  // Of the same stream; of the free list when free.
  std::uint8_t stream = 0;
  CommandKind kind = CommandKind::kMark;
  CommandState state = CommandState::kQueued;
  bool is_alone = false;     // No other stream had work on the device when it was submitted.
  bool found_idle = false;   // Nothing at all had.
  bool was_started = false;  // Submitted at least once.
  bool was_stopped = false;
  bool is_stoppable = false;
  bool counts_as_high = false;  // In the dispatcher's count of high-class work in flight.
  bool names_module = false;    // `module` is counted as in use.
  bool ends_request = false;    // kDestroyStream: its stream had one open.
  std::uint16_t module = 0;
  std::uint32_t epoch = 0;  // ClientState::epoch when it was taken.
  std::uint64_t units = 0;
  std::uint64_t units_done = 0;
  std::uint64_t bytes = 0;     // Copied or filled.
  std::uint64_t cost_key = 0;  // Launches; see CostModel. As the next.
  std::uint64_t cost_kernel = 0;
  std::uint64_t overlap = 0;  // Dispatcher's count of overlaps at submission.
  scheduler::Duration predicted{};
  scheduler::TimePoint taken{};
  scheduler::TimePoint submitted{};  // The last time. As the next, when it is or was on the device.
  std::optional<scheduler::TimePoint> stop_asked;  // By the policy, since then.
  // For the cost model, over the submissions that have ended.
  scheduler::Duration measured{};  // From the begin of the first unit to the end of the last.
  bool is_timed = true;            // All of that exactly.
  bool had_device_alone = true;    // All of that, or until it was to stop.
  bool is_alone_at_stop = false;   // In the last submission.
  scheduler::Duration ran{};       // Of launches, in submissions that ended; see KernelWatch.
  std::uint64_t started_ns = 0;    // Device time; 0 before a completion told it.
  std::uint64_t ended_ns = 0;
  ipc::CommandId target;  // kWaitFor.
  // Why it can't run or how it failed; null when neither.
  std::unique_ptr<CommandFailure> failure;
  std::variant<device::LaunchWork, device::CopyWork, device::FillWork> work;

  bool is_device_work() const { return kind <= CommandKind::kFill; }

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
  void Recycle() {
    failure.reset();
    is_alone = found_idle = was_started = was_stopped = is_stoppable = false;
    counts_as_high = names_module = ends_request = false;
    units = units_done = bytes = cost_key = cost_kernel = 0;
    ran = measured = {};
    is_timed = had_device_alone = true;
    started_ns = ended_ns = 0;
    state = CommandState::kQueued;
    next = kNoSlot;
    if (block_bytes_ > kBlockBytes) {
      block_.reset();
      block_bytes_ = 0;
    }
  }

  std::size_t block_bytes_ = 0;
  std::unique_ptr<std::byte[]> block_;
  alignas(16) std::array<std::byte, kSmallBytes> small_;
};

// A fixed number of slots. The one freed last is used next: it is still in the cache.
//
// Thread-compatible. References stay good as long as the slab.
class CommandSlab {
 public:
  explicit CommandSlab(std::uint32_t slots) : slots_(slots) {
    Check(slots <= kCommandsTakenLimit, "command slots fit their name");
    for (std::uint32_t i = slots; i > 0; --i) {
      slots_[i - 1].next = first_free_;
      first_free_ = i - 1;
    }
  }

  bool empty() const { return used_ == 0; }
  bool full() const { return first_free_ == kNoSlot; }
  std::uint32_t used() const { return used_; }
  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }

  // Not when full.
  std::uint32_t Allocate() {
    Check(!full(), "a command slot is free");
    const std::uint32_t slot = first_free_;
    first_free_ = slots_[slot].next;
    slots_[slot].Recycle();
    ++used_;
    return slot;
  }
  void Free(std::uint32_t slot) {
    slots_[slot].work_id = 0;
    slots_[slot].failure.reset();
    slots_[slot].next = first_free_;
    first_free_ = slot;
    --used_;
  }

  CommandSlot& operator[](std::uint32_t slot) { return slots_[slot]; }
  const CommandSlot& operator[](std::uint32_t slot) const { return slots_[slot]; }

 private:
  std::vector<CommandSlot> slots_;
  std::uint32_t first_free_ = kNoSlot;
  std::uint32_t used_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DEVICE_THREAD_COMMAND_SLAB_H_
