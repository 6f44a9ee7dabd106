// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_WORK_QUEUE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_WORK_QUEUE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/status.h"

#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor_priority.h"
#include "server/device/cpu/host_steal.h"
#include "server/device/cpu/run_store.h"
#include "server/device/device.h"

namespace gpushared::device {

struct QueuedWork;

// Makes work items from a graph's nodes. Thread-safe.
class NodeMaker {
 public:
  // Returns work that is ready to run or contains the reason why it is rejected.
  virtual std::shared_ptr<QueuedWork> MakeNode(const GraphWork& graph, std::size_t node) const = 0;

 protected:
  ~NodeMaker() = default;
};

// A running graph. Owned by its current node; guarded by the queue's mutex.
struct GraphRun {
  GraphWork work;
  const NodeMaker* maker = nullptr;
  std::size_t node = 0;      // Index of the current node.
  bool is_stopping = false;  // Whether the current node is the last one to run.
  std::optional<DeviceClock::time_point> started;
};

// A submitted command, or the current node of a graph. All non-const, non-atomic members are
// guarded by the queue's mutex. When it is used as PausedBlocks, it is between two submissions and
// has a single owner.
struct QueuedWork : PausedBlocks {
  QueuedWork(std::variant<LaunchWork, CopyWork, FillWork> submitted, std::uint64_t units,
             Status rejected);
  ~QueuedWork() override;
  QueuedWork(const QueuedWork&) = delete;
  QueuedWork& operator=(const QueuedWork&) = delete;

  const WorkHeader& header() const;
  // Resubmits the rest of a launch that was stopped with paused runs, or of a graph that was
  // stopped in this node.
  void SubmitAgain(const LaunchWork& rest);
  void SubmitAgain(const GraphWork& rest);

  std::variant<LaunchWork, CopyWork, FillWork> what;  // Not changed while the work is submitted.
  const std::uint64_t units_total;
  // Set when running units of this work should end early, because it was killed or another unit
  // failed. Relaxed, because it is advice and no other data depends on it.
  std::atomic<bool> abandon{false};
  // Set when the work should end before its next unit. Running threads read it relaxed, because
  // they take it as advice; WorkQueue::Apply needs sequential consistency.
  std::atomic<bool> stop{false};
  // Bytes printed so far by its kernels; see kOutputBytesMax. Relaxed, because no other data
  // depends on the counter.
  std::atomic<std::uint64_t> output_bytes{0};
  // Written by the queue, with the same ordering as `stop`.
  std::atomic<bool> is_killed{false};
  // Size of `paused`. Written by the queue. Relaxed, because it is advice and no other data depends
  // on it.
  std::atomic<std::uint32_t> paused_runs{0};
  // State of a launch.
  executor::LaunchState launch_state;
  // Set for the current node of a graph and passed on to the next node; otherwise null.
  std::unique_ptr<GraphRun> graph;

 private:
  friend class WorkQueue;
  // Returns the next unit, which the caller then runs; no value if all are dealt. Thread-safe.
  std::optional<std::uint64_t> TakeUnit();
  void RecordPaused() {
    paused_runs.store(static_cast<std::uint32_t>(paused.size()), std::memory_order_relaxed);
  }
  // Returns the number of dealt units, counted from unit 0.
  std::uint64_t units_dealt() const;

  Status status;                       // Status of the first failure.
  FaultKind fault = FaultKind::kNone;  // Set if a kernel caused the failure.
  bool has_started = false;
  std::deque<PausedRun> paused;  // The run that was paused first resumes first.
  bool is_claimable = false;     // Whether the work is listed in WorkQueue::claimable_.
  std::uint64_t rank = 0;        // Unique; the lowest rank is served first.
  std::uint32_t claims_running = 0;
  DeviceClock::time_point started;
  // Written by every thread that runs units. Exceeds units_total once threads have found no units
  // left. Relaxed, because the mutex in WorkQueue::Finish orders what the units have written.
  alignas(64) std::atomic<std::uint64_t> next_unit{0};
};

// Part of a work item taken by an executor thread: one unit or a paused run, and further units that
// WorkQueue::Continue and Extend deal.
struct Claim {
  QueuedWork* work = nullptr;
  std::uint64_t unit = 0;  // Unused with a paused run.
  PausedRun paused;        // Empty if the claim has none.
  // Clock of the claiming thread; null if its time is not measured.
  ExecutorClock* clock = nullptr;
  ExecutorPriority* executor =
      nullptr;  // ExecutorPriority of the claiming thread; null if it is always raised.
  bool is_of_spare = false;  // Whether the spare thread claimed it.
};

// An executor thread without work for this long frees its memory. The time is short compared with
// how long others may wait for memory, and long compared with the pauses between launches of a busy
// client.
inline constexpr std::chrono::milliseconds kIdleAfter{200};

// Work that waits this long for threads with less urgent work goes to the spare thread. A thread
// that can leave its work does so within microseconds.
inline constexpr std::chrono::microseconds kSparePatience{250};

// After work of a priority has arrived, threads that take work of a lower priority within this time
// are demoted.
inline constexpr std::chrono::seconds kDemotedFor{1};

// Orders submitted work, deals its units to the executor threads, and collects completions.
//
// Work within a stream runs sequentially. Among the stream heads, the work with the highest
// priority, then the oldest, is dealt first. Units are dealt one at a time in ascending order, and
// every dealt unit is run, so the number of dealt units is the executed prefix when the work ends.
// A thread yields to more urgent work after every unit. If the launch may be paused, the thread
// also leaves it inside a block for work of a higher priority.
//
// A thread may be unable to leave, because a client can block any thread that accesses the memory
// it shares with the server. Therefore a spare thread takes work that has waited kSparePatience for
// threads that run lower-priority work. It continues to take all such work until one of the other
// threads returns.
//
// Thread-safe.
class WorkQueue {
 public:
  // `threads` is the number of executor threads that will call Next. In addition, a single thread
  // may call NextOfSpare.
  WorkQueue(std::uint32_t threads, WakeFunction wake,
            std::chrono::nanoseconds spare_patience = kSparePatience);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Submit(std::shared_ptr<QueuedWork> work);
  // Runs the nodes beginning with the graph's first unit. `maker` must outlive the completion.
  void Submit(const GraphWork& work, const NodeMaker& maker);
  void RequestStop(WorkId id);
  void RequestKill(WorkId id);
  std::size_t TakeCompletions(std::span<Completion> out);

  // Returns the total time, beyond the usual latency (kUsuallyLate), in which no thread picked up
  // waiting work or completions were not taken.
  std::chrono::nanoseconds stalled() const {
    // Relaxed: a thread that has taken completions sees their part of the sum because of the mutex.
    return std::chrono::nanoseconds(stalled_ns_.load(std::memory_order_relaxed));
  }

  // Registers a thread that will call Next. `executor` must outlive the last call of the queue.
  void Enlist(ExecutorPriority& executor);

  // Sleeps until there is something to run. Returns no value after Close(). `clock` and `executor`
  // are those of the calling thread. `on_idle` is called without a lock when no work has arrived
  // for kIdleAfter; may be null.
  std::optional<Claim> Next(ExecutorClock* clock = nullptr,
                            const std::function<void()>* on_idle = nullptr,
                            ExecutorPriority* executor = nullptr);
  // Like Next, for the spare thread: sleeps until work has waited too long for a thread that does
  // not leave its own work.
  std::optional<Claim> NextOfSpare(ExecutorClock* clock = nullptr);
  // Returns the conditions under which the claim's run should leave a block.
  executor::PauseTerms GetTerms(const Claim& claim,
                                const std::function<bool(std::uint64_t bytes)>& may_pause) const;
  // Records that the claim's run has left a block. The run is resumed before further units of the
  // work, or in a later submission.
  void Pause(const Claim& claim, PausedRun run);
  // Returns another unit of the same work after the claim's units have run. Returns no value if the
  // thread is to leave the work because all units are dealt, the work is to end, or other work
  // precedes it.
  std::optional<std::uint64_t> Continue(const Claim& claim) const;
  // Returns another unit for a claim whose units wait for later ones. Returns no value if an idle
  // thread should take the unit, a paused run of the work comes first, all units are dealt, or the
  // work was killed or has failed.
  std::optional<std::uint64_t> Extend(const Claim& claim);
  // Records that all units of the claim have run, or that one failed with `status`.
  void Finish(const Claim& claim, Status status, FaultKind fault = FaultKind::kNone);
  // Kills all work and makes every Next() return.
  void Close();

 private:
  static constexpr std::uint64_t kNoRank = std::numeric_limits<std::uint64_t>::max();

  using Stream = std::deque<std::shared_ptr<QueuedWork>>;
  // Returns the rank: the highest priority comes first, then the oldest work.
  static std::uint64_t GetRank(std::uint8_t priority, std::uint64_t sequence);
  // Returns whether all units are dealt and the work has no paused run.
  static bool IsDone(const QueuedWork& work);
  // Returns whether no further units may be dealt.
  static bool MustEnd(const QueuedWork& work);
  // Returns the work that replaces a node that has ended; null if its command has ended.
  std::shared_ptr<QueuedWork> TakeNextNode(QueuedWork& ended) GPUSHARED_REQUIRES(mutex_);
  void StartHead(Stream& stream, std::uint32_t threads_wanted) GPUSHARED_REQUIRES(mutex_);
  // `threads_wanted`: see StartHead.
  void EndIfDone(QueuedWork& work, std::uint32_t threads_wanted) GPUSHARED_REQUIRES(mutex_);
  // Returns the number of threads that may be woken besides the one that ended the claim. That
  // thread looks for more work itself, unless it is the spare thread, which takes only work that is
  // held up.
  std::uint32_t GetHelpers(const Claim& claim) const { return threads_ - !claim.is_of_spare; }
  void Report(const std::shared_ptr<QueuedWork>& work) GPUSHARED_REQUIRES(mutex_);
  void MakeClaimable(QueuedWork& work) GPUSHARED_REQUIRES(mutex_);
  void MakeUnclaimable(QueuedWork& work) GPUSHARED_REQUIRES(mutex_);
  void RecordFirstRank() GPUSHARED_REQUIRES(mutex_);
  // Takes a paused run or a unit from the first work that has one; the claim's work is null if none
  // has.
  Claim TakeFirst(ExecutorClock* clock, bool is_for_spare, ExecutorPriority* executor)
      GPUSHARED_REQUIRES(mutex_);
  // Records that work of this priority has arrived.
  void RecordAsked(std::uint8_t priority) GPUSHARED_REQUIRES(mutex_);
  // Returns whether more urgent work has arrived recently.
  bool IsBelowOthers(std::uint8_t priority) const GPUSHARED_REQUIRES(mutex_);
  // Promotes or demotes the claim's thread according to its work.
  void Apply(const Claim& claim, bool is_below_others) const GPUSHARED_EXCLUDES(mutex_);
  // Promotes as many demoted threads with less urgent work as `work` can use.
  void PromoteFor(const QueuedWork& work, std::uint64_t units) GPUSHARED_REQUIRES(mutex_);
  // Promotes the threads that run the work, because it is to end.
  void PromoteThreadsOf(const QueuedWork& work) GPUSHARED_REQUIRES(mutex_);
  // Records that the claim's thread has returned.
  void EndClaim(const Claim& claim) GPUSHARED_REQUIRES(mutex_);
  // Returns whether no thread is idle and the first work waits for a thread that runs
  // lower-priority work.
  bool IsHeldUp() const GPUSHARED_REQUIRES(mutex_);
  // Called when a thread takes work, or no work is left to take: counts the time in which work was
  // claimable but no thread ran a claim.
  void EndStall() GPUSHARED_REQUIRES(mutex_);
  // Waits for work to arrive. Calls `on_idle` at most once and then clears it.
  void WaitForWork(MutexLock& lock, const std::function<void()>** on_idle)
      GPUSHARED_REQUIRES(mutex_);
  // Counts the time since `since`, beyond the usual latency.
  void CountStall(DeviceClock::time_point since) GPUSHARED_REQUIRES(mutex_);
  // Last step of a call: unlocks and calls the wake function if it is due. Clang cannot see that
  // this releases the caller's lock.
  void WakeIfAsked(MutexLock& lock) GPUSHARED_REQUIRES(mutex_) GPUSHARED_UNCHECKED_LOCKING;

  const std::uint32_t threads_;
  const WakeFunction wake_;
  const std::chrono::nanoseconds spare_patience_;

  Mutex mutex_;
  std::condition_variable work_arrived_;
  bool is_closed_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::uint32_t threads_idle_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::uint32_t claims_running_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // Running claims of all work.
  std::map<std::uint8_t, std::uint32_t> claims_by_priority_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<ExecutorPriority*> executors_ GPUSHARED_GUARDED_BY(mutex_);
  // The highest priority of recent work, and when such work last arrived.
  std::uint8_t asked_priority_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  DeviceClock::time_point asked_at_ GPUSHARED_GUARDED_BY(mutex_);
  std::condition_variable spare_wanted_;
  bool is_spare_asleep_ GPUSHARED_GUARDED_BY(mutex_) = false;
  // Whether work has waited for kSparePatience and no thread has returned since.
  bool are_threads_stuck_ GPUSHARED_GUARDED_BY(mutex_) = false;
  // Start of the period without running claims; valid only during such a period.
  DeviceClock::time_point free_since_ GPUSHARED_GUARDED_BY(mutex_);
  // Valid while claimable_ is not empty.
  DeviceClock::time_point claimable_since_ GPUSHARED_GUARDED_BY(mutex_);
  // When the most recent work ended; empty once completions have been taken since.
  std::optional<DeviceClock::time_point> last_ended_ GPUSHARED_GUARDED_BY(mutex_);
  std::atomic<std::int64_t> stalled_ns_ = 0;  // Written under mutex_, read without it.
  // Number of the last submission.
  std::uint64_t sequence_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::unordered_map<StreamKey, Stream> streams_ GPUSHARED_GUARDED_BY(mutex_);
  std::unordered_map<WorkId, QueuedWork*> works_ GPUSHARED_GUARDED_BY(mutex_);
  // Sorted by rank; some may have no units left.
  std::map<std::uint64_t, QueuedWork*> claimable_ GPUSHARED_GUARDED_BY(mutex_);
  // Rank of the first entry in claimable_. Written under mutex_, read without it. Relaxed, because
  // it is only a hint to a thread: where to search for its next unit, or that it must not remain
  // demoted.
  std::atomic<std::uint64_t> first_rank_{kNoRank};
  std::deque<Completion> completions_ GPUSHARED_GUARDED_BY(mutex_);
  // Whether the last TakeCompletions returned fewer completions than requested.
  bool is_wake_asked_ GPUSHARED_GUARDED_BY(mutex_) = true;
  bool is_wake_due_ GPUSHARED_GUARDED_BY(mutex_) = false;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_WORK_QUEUE_H_
