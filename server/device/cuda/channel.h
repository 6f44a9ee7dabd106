// SPDX-License-Identifier: Apache-2.0
// One stream of the driver, and the work on its way through it.

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

// One work between Submit and its completion.
struct Item {
  std::variant<LaunchWork, CopyWork, FillWork, GraphWork> work;
  std::uint64_t units = 0;
  std::uint64_t issued = 0;         // Units handed to the driver, counted from unit 0.
  std::uint64_t done = 0;           // Units that have run.
  std::uint32_t parts_running = 0;  // Handed to the driver and not known to have ended.
  bool is_closed = false;           // No further unit will be issued.
  bool is_stopped = false;
  bool is_killed = false;  // A launch that runs as its claimed form, or is contained.
  // Set for launches of contained kernels, else null.
  ContainedLaunches* contained = nullptr;
  // The form that a launch runs as; null: as the client wrote it. Its words, while it is with the
  // driver.
  const PreemptibleKernel* claimed = nullptr;
  std::optional<ClaimWords::Slot> slot;
  std::uint32_t claim_base = 0;          // The slot's counter at its start.
  std::uint64_t claim_group_blocks = 0;  // Blocks that go to the driver at a time,
  std::uint64_t claim_ahead_blocks = 0;  // and behind another launch that may be stopped.
  // A graph's that runs so; else null.
  InstantiatedGraph* instantiated = nullptr;
  std::size_t ready_nodes = 0;  // So many of its first nodes, or itself, wait for no kernel.
  bool has_started = false;
  bool times_are_exact = true;
  Status status;
  FaultKind fault = FaultKind::kNone;  // It tells what a kernel did.
  DeviceClock::time_point started;
  DeviceClock::time_point ended;

  const WorkHeader& header() const {
    return std::visit([](const auto& any) -> const WorkHeader& { return any; }, work);
  }
  bool is_launch() const { return std::holds_alternative<LaunchWork>(work); }
  bool has_ended() const { return is_closed && parts_running == 0; }
};

struct ChannelLimits {
  // What may be with the driver at one time; far below what makes its calls wait.
  std::size_t parts_max = 512;
  // Work in the highest class goes to the driver whole. Other copies go in groups, the next when
  // the one before the last has ended: this is what a stop still has to wait for, twice.
  std::uint64_t host_group_bytes = std::uint64_t{2} << 20;     // 40 µs over PCIe 5.
  std::uint64_t device_group_bytes = std::uint64_t{64} << 20;  // 30 µs on HBM3.
  // Claimed launches go in groups of blocks in the same way: blocks that have not begun when the
  // launch is stopped still begin, and end at once. At 1 ns each, taken to be, two groups take 33
  // µs. On a part of a GPU each takes its place for longer: so many waves at most.
  std::uint64_t claim_group_blocks = 16384;
  std::uint64_t claim_group_waves = 16;
  // Enough for the time until the end of the one ahead is noticed.
  std::uint64_t claim_ahead_waves = 4;
  // What claiming adds to a block: a load and an atomic operation in the L2 cache, one after the
  // other, and a barrier. Blocks shorter than kClaimWorth times that are not claimed.
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
  ClaimWords* claims = nullptr;  // Null: no launch runs as its claimed form.
  GraphStore* graphs = nullptr;  // Null: graphs go to the driver node by node.
  ChannelLimits limits;
};

// Whether the host memory of a copy is such that the driver may use it itself.
bool IsPinned(const CopyWork& copy, const PinnedRegions& pinned);

// A FIFO: work starts and ends in the order in which it was added. Some of it is with the driver,
// in batches with one mark each: while there is work, two marks are out, so that one batch runs
// while the end of the other becomes known. The rest waits here for one of five reasons. The
// driver has enough of it already. It is a copy or a claimed launch, which goes in groups.
// Contained kernels of its module have to end first. The code of its kernel is being loaded. Or
// calls of the driver have the quiet moment that they need (QuietMoments).
//
// A stop of a claimed launch also stops what is behind it in the same stream, or that would run
// between its two halves. Whatever is added behind it later ends as stopped. A launch that cannot
// be stopped waits here until the claimed one ahead has ended.
//
// Confined to the device thread; the context is current on it.
class Channel {
 public:
  // `number` names it to the marks. Takes the stream, which has so many multiprocessors:
  // `is_of_part`, not all of them.
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
  // Marks the end of the batch that is open, unless that can wait: until one of the marks ahead of
  // it has been reached.
  void MarkEnd();
  // Takes note of batches that have ended, issues what may follow, and appends what is finished.
  void Advance(std::vector<std::unique_ptr<Item>>& finished);
  // Ends the work before its next unit that the driver does not have; false if it is not here.
  bool Stop(WorkId id, bool is_kill);

  bool empty() const { return items_.empty(); }

  // ---- for Drain
  bool is_high() const { return is_high_; }
  // Whether the driver has anything of it.
  bool has_parts() const { return !parts_.empty(); }
  // Stops the claimed launches that the driver has.
  void StopClaims();
  // What the driver has now is a blocker until it has ended.
  void RecordBlockers() { blockers_end_ = ended_parts_ + parts_.size(); }
  bool has_blockers() const { return ended_parts_ < blockers_end_; }

  // Of a dead context: the kernels that the driver had and that may have run, and all that is here,
  // which is given up.
  void AppendSuspects(std::vector<DeviceLoss::Suspect>& suspects) const;
  void Abandon(std::vector<std::unique_ptr<Item>>& finished);

 private:
  // A launch, or a group of a copy, fill or claimed launch, that the driver has.
  struct Part {
    Item* item = nullptr;
    Group group;
    Detour detour;
    bool is_reading = false;  // No work of the item, but the copy of its counter.
  };

  void Issue();
  // False when it has to wait.
  bool IssueNext(Item& item);
  bool IssueGroup(Item& item);
  bool IssueWhole(Item& item);
  // So many nodes of a graph as one part.
  bool IssueNodes(Item& item);
  Status IssueNode(const GraphNode& node);
  // All of them by one call.
  bool IssueInstantiated(Item& item);
  void ReturnInstantiated(Item& item);
  bool IssueClaims(Item& item);
  // Whether a claimed launch of the same stream, which has begun or soon will, is ahead of it.
  bool IsBehindClaims(const Item& item) const;
  Status IssuePreemptibleGroup(Item& item, std::uint64_t blocks);
  // Behind what has been issued of a claimed launch that was stopped.
  void ReadCounter(Item& item);
  // Around what is issued of a launch of contained kernels. Not entered: it has to wait, or failed.
  bool EnterContained(Item& item);
  // Not: it has to wait, or failed.
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
  bool IsBehindStopped(const Item& item) const;

  const ChannelEnvironment& environment_;
  const std::size_t number_;
  const bool is_high_;  // Of the highest level.
  const Stream stream_;
  const std::uint32_t multiprocessors_;
  const bool is_of_part_;
  std::deque<std::unique_ptr<Item>> items_;  // As added; the front ends first.
  std::size_t closed_ = 0;                   // How many at the front have is_closed set.
  std::size_t stopped_ = 0;                  // How many have is_stopped set.
  std::size_t claimed_ = 0;                  // How many have a slot.
  std::deque<Part> parts_;                   // With the driver, as issued.
  std::uint64_t ended_parts_ = 0;            // Over all.
  std::uint64_t blockers_end_ = 0;           // So many parts have ended when no blocker is left.
  std::deque<std::size_t> batches_;          // Parts of each closed batch, oldest first.
  std::size_t open_parts_ = 0;               // In the open batch.
  bool open_is_timed_ = false;               // The first of them wants times.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CHANNEL_H_
