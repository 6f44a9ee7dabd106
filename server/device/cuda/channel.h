// SPDX-License-Identifier: Apache-2.0
// A stream of the driver and the work submitted to it.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CHANNEL_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CHANNEL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "gpushared/status.h"

#include "server/device/cuda/claim_words.h"
#include "server/device/cuda/completion_marks.h"
#include "server/device/cuda/contained_launches.h"
#include "server/device/cuda/cuda_context.h"
#include "server/device/cuda/graph_store.h"
#include "server/device/cuda/host_memory.h"
#include "server/device/cuda/issue.h"
#include "server/device/cuda/preemptible_kernel.h"
#include "server/device/cuda/stream_table.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

// A work item between Submit and its completion.
struct Item {
  std::variant<LaunchWork, CopyWork, FillWork, GraphWork> work;
  std::uint64_t units = 0;
  std::uint64_t issued = 0;         // Units passed to the driver, counted from unit 0.
  std::uint64_t done = 0;           // Units that have run.
  std::uint32_t parts_running = 0;  // Parts passed to the driver and not known to have ended.
  bool is_closed = false;           // No further unit will be issued.
  bool is_stopped = false;
  bool is_killed = false;  // Only for contained or preemptible launches.
  // Null unless the item is a launch of a contained kernel.
  ContainedLaunches* contained = nullptr;
  // Preemptible form that the launch runs as; null if it runs the client's own kernel.
  const PreemptibleKernel* claimed = nullptr;
  // Slot of a preemptible launch from its first group until the launch has ended.
  std::optional<ClaimWords::Slot> slot;
  std::uint32_t claim_base = 0;          // Value of the slot's counter at the start.
  std::uint64_t claim_group_blocks = 0;  // Blocks per group.
  // Blocks per group that is queued after another preemptible launch.
  std::uint64_t claim_ahead_blocks = 0;
  // The graph to launch as a whole; otherwise null.
  InstantiatedGraph* instantiated = nullptr;
  // Number of leading nodes whose kernels are loaded. An item that is not a graph counts as one
  // node.
  std::size_t ready_nodes = 0;
  bool has_started = false;
  bool times_are_exact = true;
  Status status;
  FaultKind fault = FaultKind::kNone;  // Set if a kernel caused the failure.
  DeviceClock::time_point started;
  DeviceClock::time_point ended;

  const WorkHeader& header() const {
    return std::visit([](const auto& any) -> const WorkHeader& { return any; }, work);
  }
  bool is_launch() const { return std::holds_alternative<LaunchWork>(work); }
  bool has_ended() const { return is_closed && parts_running == 0; }
};

struct ChannelLimits {
  // Limit for the parts in flight; far below the number at which calls of the driver block.
  std::size_t parts_max = 512;
  // Copies and fills of the highest priority are passed to the driver as a whole, unless they need
  // bounce buffers. Others are passed in groups, at most two of which are in flight, because a stop
  // has to wait for the groups in flight.
  std::uint64_t host_group_bytes = std::uint64_t{2} << 20;     // 40 µs over PCIe 5.
  std::uint64_t device_group_bytes = std::uint64_t{64} << 20;  // 30 µs on HBM3.
  // Preemptible launches are passed in groups of blocks for the same reason: after a stop, the
  // remaining blocks of the groups in flight still have to start, although they then end at once.
  // At an assumed 1 ns each, two groups take 33 µs.
  std::uint64_t claim_group_blocks = 16384;
  // Limit for a group in waves, so that groups are smaller where fewer blocks run at once, such as
  // on a part of a GPU.
  std::uint64_t claim_group_waves = 16;
  // Waves that are queued after another preemptible launch: enough work to keep the GPU busy until
  // the end of that launch is detected.
  std::uint64_t claim_ahead_waves = 4;
  // Overhead of claiming for each block: a load and an atomic operation in the L2 cache, one after
  // the other, and a barrier. Blocks shorter than kClaimWorth times this are not claimed.
  std::chrono::nanoseconds claim_time{500};
};

inline constexpr std::uint8_t kHighestPriority = 2;
inline constexpr int kClaimWorth = 20;

// Shared by the channels of a device.
struct ChannelEnvironment {
  CudaContext& context;
  CompletionMarks& marks;
  BounceBuffers& bounces;
  const PinnedRegions& pinned;
  ClaimWords* claims = nullptr;  // If null, no launch uses its preemptible form.
  GraphStore* graphs = nullptr;  // If null, graphs are passed to the driver node by node.
  ChannelLimits limits;
};

// Whether the driver can access the host memory of a copy directly.
bool IsPinned(const CopyWork& copy, const PinnedRegions& pinned);

// A FIFO: work starts and ends in the order in which it was added. Some items are in flight in the
// driver, in batches with one mark each. While there is work, two marks are pending, so that one
// batch runs while the end of the other is detected. The remaining items wait here for one of these
// reasons: enough work is in flight; no bounce buffer or slot is free; the item is a copy, a fill
// or a preemptible launch, which is issued in groups; contained kernels of its module have to end
// first; its kernels are being loaded; or driver calls need an idle window (IdleWindows).
//
// Stopping a preemptible launch also stops work that follows in the same stream or that would run
// between two of its groups. Work that is added to the stream before the stopped launch has ended
// also ends as stopped. A launch that is not preemptible waits here until the preemptible one
// before it has ended.
//
// Confined to the device thread; the context is current on it.
class Channel {
 public:
  // `number` identifies the channel to the marks. Takes ownership of the stream. `multiprocessors`:
  // number that the stream may use. `is_of_part`: whether these are only a part of the GPU's.
  Channel(const ChannelEnvironment& environment, std::size_t number, Stream stream,
          std::uint32_t multiprocessors, bool is_of_part)
      : environment_(environment),
        number_(number),
        is_high_(StreamTable::GetLevel(number) == kHighestPriority),
        stream_(stream),
        multiprocessors_(multiprocessors),
        is_of_part_(is_of_part) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  void Add(std::unique_ptr<Item> item);
  // Closes the open batch with a mark, unless the maximum number of marks is already pending.
  void MarkEnd();
  // Detects batches that have ended, issues what may follow, and appends finished items.
  void Advance(std::vector<std::unique_ptr<Item>>& finished);
  // Ends the work before its next unit that is not in flight; returns false if the channel does not
  // have it.
  bool Stop(WorkId id, bool is_kill);

  bool empty() const { return items_.empty(); }

  // ---- used by Drain
  bool is_high() const { return is_high_; }
  // Whether anything is in flight.
  bool has_parts() const { return !parts_.empty(); }
  // Stops the preemptible launches that are in flight.
  void StopClaims();
  // Makes everything in flight a blocker: no drain starts before it has ended.
  void RecordBlockers() { blockers_end_ = ended_parts_ + parts_.size(); }
  bool has_blockers() const { return ended_parts_ < blockers_end_; }

  // Called for a dead context. AppendSuspects appends the kernels and graphs in flight, which may
  // have been running; Abandon abandons all work.
  void AppendSuspects(std::vector<DeviceLoss::Suspect>& suspects) const;
  void Abandon(std::vector<std::unique_ptr<Item>>& finished);

 private:
  // A launch, or a group of a copy, fill or preemptible launch, that is in flight.
  struct Part {
    Item* item = nullptr;
    Group group;
    Detour detour;
    bool is_reading = false;  // Whether it copies the counter and executes no units.
  };

  void Issue();
  // Returns false if the item has to wait.
  bool IssueNext(Item& item);
  bool IssueGroup(Item& item);
  bool IssueWhole(Item& item);
  // Issues several nodes of a graph as one part.
  bool IssueNodes(Item& item);
  Status IssueNode(const GraphNode& node);
  // Issues all nodes with one call.
  bool IssueInstantiated(Item& item);
  void ReturnInstantiated(Item& item);
  bool IssueClaims(Item& item);
  // Whether the item follows a preemptible launch of the same stream that has a slot.
  bool FollowsClaims(const Item& item) const;
  Status IssuePreemptibleGroup(Item& item, std::uint64_t blocks);
  // Called after the issued groups of a preemptible launch that was stopped.
  void ReadCounter(Item& item);
  // EnterContained is called before each issued launch of contained kernels, and LeaveContained
  // when the launch has ended. EnterContained returns false if the item has to wait or has failed.
  bool EnterContained(Item& item);
  // Returns false if the item has to wait or has failed.
  bool HasKernels(Item& item);
  void LeaveContained(Item& item);
  bool NeedsDetour(const Item& item) const;
  std::uint64_t GroupBytesMax(const Item& item, bool has_detour) const;
  bool OpenBatch(const Item& first);
  void CloseBatch();
  void AddPart(const Part& part);
  void Fail(Item& item, Status why);
  void TakeEnded(std::vector<std::unique_ptr<Item>>& finished);
  void FinishBatch(const BatchTimes& times);
  void FinishPart(const Part& part, const BatchTimes& times);
  void FinishClaims(Item& item);
  void StopItem(Item& item, bool is_kill);
  void SetStopped(Item& item, bool is_stopped);
  bool FollowsStopped(const Item& item) const;

  const ChannelEnvironment& environment_;
  const std::size_t number_;
  const bool is_high_;  // Whether the channel has the highest priority.
  const Stream stream_;
  const std::uint32_t multiprocessors_;
  const bool is_of_part_;
  std::deque<std::unique_ptr<Item>> items_;  // In submission order; the front ends first.
  std::size_t closed_ = 0;                   // Number of items at the front with is_closed.
  std::size_t stopped_ = 0;                  // Number of items with is_stopped.
  std::size_t claimed_ = 0;                  // Number of items with a slot.
  std::deque<Part> parts_;                   // In flight, in order of issue.
  std::uint64_t ended_parts_ = 0;            // Number of parts that have ended so far.
  std::uint64_t blockers_end_ = 0;           // Value of ended_parts_ when all blockers have ended.
  std::deque<std::size_t> batches_;          // Number of parts in each closed batch, oldest first.
  std::size_t open_parts_ = 0;               // Number of parts in the open batch.
  bool open_is_timed_ = false;               // Whether the open batch began with exact times.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CHANNEL_H_
