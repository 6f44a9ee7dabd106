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
#include "server/device/cpu/host_steal.h"
#include "server/device/cpu/run_store.h"
#include "server/device/cpu/standing.h"
#include "server/device/device.h"

namespace gpushared::device {

struct QueuedWork;

// Makes works of a graph's nodes. Thread-safe.
class NodeMaker {
 public:
  // Ready to be run, or with the reason why it is rejected.
  virtual std::shared_ptr<QueuedWork> MakeNode(const GraphWork& graph, std::size_t node) const = 0;

 protected:
  ~NodeMaker() = default;
};

// A graph that runs. The queue's; its present node has it.
struct GraphRun {
  GraphWork work;
  const NodeMaker* maker = nullptr;
  std::size_t node = 0;      // The present one.
  bool is_stopping = false;  // The present node is the last one.
  std::optional<DeviceClock::time_point> started;
};

// One submitted command, or the present node of a graph. What is not const or atomic belongs to the
// queue. As PausedBlocks, it is between two submissions, and nobody else has it.
struct QueuedWork : PausedBlocks {
  QueuedWork(std::variant<LaunchWork, CopyWork, FillWork> submitted, std::uint64_t units,
             Status rejected);
  ~QueuedWork() override;
  QueuedWork(const QueuedWork&) = delete;
  QueuedWork& operator=(const QueuedWork&) = delete;

  const WorkHeader& header() const;
  // The next submission of a launch that was stopped with paused runs, or of a graph that was
  // stopped in this node.
  void SubmitAgain(const LaunchWork& rest);
  void SubmitAgain(const GraphWork& rest);

  std::variant<LaunchWork, CopyWork, FillWork> what;  // Not changed while it is submitted.
  const std::uint64_t units_total;
  // Raised when what runs of this work should end inside its unit: it was killed, or
  // another of its units failed. Relaxed: it is advice, nothing is read because of it.
  std::atomic<bool> abandon{false};
  // Raised when it should end before its next unit. Threads that run it read it relaxed, for the
  // same reason; WorkQueue::Stand needs more.
  std::atomic<bool> stop{false};
  // Bytes that its kernels printed so far; see kOutputBytesMax. Relaxed: a count.
  std::atomic<std::uint64_t> output_bytes{0};
  // Written by the queue; as `stop`.
  std::atomic<bool> is_killed{false};
  // Size of `paused`, which the queue writes. Relaxed, for the same reason.
  std::atomic<std::uint32_t> paused_runs{0};
  // State of a launch.
  executor::LaunchState launch_state;
  // Of a graph's node, until the next one takes it; else null.
  std::unique_ptr<GraphRun> graph;

 private:
  friend class WorkQueue;
  // The next unit, which the caller then runs; none when all are dealt. Thread-safe.
  std::optional<std::uint64_t> Deal();
  void RecordPaused() {
    paused_runs.store(static_cast<std::uint32_t>(paused.size()), std::memory_order_relaxed);
  }
  // The prefix that is dealt, counted from unit 0.
  std::uint64_t units_dealt() const;

  Status status;                       // The first failure.
  FaultKind fault = FaultKind::kNone;  // It tells what a kernel did.
  bool has_started = false;
  std::deque<PausedRun> paused;  // The one paused first goes on first.
  bool is_claimable = false;     // Listed in WorkQueue::claimable_.
  std::uint64_t rank = 0;        // Among all works; the lowest is served first.
  std::uint32_t claims_running = 0;
  DeviceClock::time_point started;
  // Every thread that runs units changes it. Beyond units_total when threads found none left.
  // Relaxed: what units have written is ordered by the mutex, in WorkQueue::Finish.
  alignas(64) std::atomic<std::uint64_t> next_unit{0};
};

// One executor thread's part in one work: one unit or a paused run, and further units as
// WorkQueue::Continue gives them.
struct Claim {
  QueuedWork* work = nullptr;
  std::uint64_t unit = 0;          // Unused with a paused run.
  PausedRun paused;                // Empty: none.
  ExecutorClock* clock = nullptr;  // Of the thread that has it; null where nobody counts.
  Standing* standing = nullptr;    // Of that thread, too; null: it is always ahead.
  bool is_of_spare = false;        // The spare thread has it.
};

// An executor thread without work for so long gives its memory back: short against what others may
// wait for it, long against the gaps between the launches of a busy client.
inline constexpr std::chrono::milliseconds kRestAfter{200};

// Work waits for so long behind less urgent work, then the spare thread takes it. A thread that can
// leave its work does so within microseconds.
inline constexpr std::chrono::microseconds kSparePatience{250};

// For so long after work of a priority came, threads that take work below it stand back.
inline constexpr std::chrono::seconds kStandBackFor{1};

// Orders submitted work, deals its units to the executor threads, and collects
// completions.
//
// Inside a stream work runs one after the other. Of the works at the head of their
// streams the one with the highest priority, then the oldest, is dealt first. Units
// are dealt one at a time, in ascending order, and what is dealt is run. So the count of
// dealt units is the prefix that has run when the work ends. A thread leaves a work for
// more urgent work after one unit, however long the units before were. It leaves a launch that may
// be paused inside of a block, for work of a higher priority.
//
// A thread may be unable to leave: a client can make the kernel hold up whoever touches the memory
// that it shares. So there is a spare thread. It takes work that waits behind work of a lower
// priority for kSparePatience. From then on it takes all such work, until another thread is back.
//
// Thread-safe.
class WorkQueue {
 public:
  // `threads`: executor threads that will call Next. One more may call NextOfSpare.
  WorkQueue(std::uint32_t threads, WakeFunction wake,
            std::chrono::nanoseconds spare_patience = kSparePatience);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Submit(std::shared_ptr<QueuedWork> work);
  // Runs the nodes from the graph's first unit on. `maker` outlives the completion.
  void Submit(const GraphWork& work, const NodeMaker& maker);
  void RequestStop(WorkId id);
  void RequestKill(WorkId id);
  std::size_t TakeCompletions(std::span<Completion> out);

  // Total time in which work waited and no thread came, or completions waited and nobody took them,
  // beyond the usual (kUsuallyLate).
  std::chrono::nanoseconds stood_still() const {
    // Relaxed: a sum. Who has taken the completions has its part of them by the mutex.
    return std::chrono::nanoseconds(stood_still_ns_.load(std::memory_order_relaxed));
  }

  // Of a thread that will call Next with it; outlives the queue's last call.
  void Enlist(Standing& standing);

  // Sleeps until there is something to run. Empty after Close(). `clock`, `standing`: of the
  // calling thread. `rest`: called, without any lock, when there was nothing for kRestAfter; null:
  // nobody is.
  std::optional<Claim> Next(ExecutorClock* clock = nullptr,
                            const std::function<void()>* rest = nullptr,
                            Standing* standing = nullptr);
  // The same for the spare thread: sleeps until work waits behind a thread that does not leave.
  std::optional<Claim> NextOfSpare(ExecutorClock* clock = nullptr);
  // When what runs of the claim is to leave inside of a block; see executor::PauseTerms.
  executor::PauseTerms GetTerms(const Claim& claim,
                                const std::function<bool(std::uint64_t bytes)>& may_pause) const;
  // The claim's run has left inside of a block. It goes on before further units of the work, or in
  // a later submission.
  void Pause(const Claim& claim, PausedRun run);
  // Another unit of the same work, once all that the claim had has run. None when the thread is to
  // leave the work: all units are dealt, the work is to end, or other work goes before it.
  std::optional<std::uint64_t> Continue(const Claim& claim) const;
  // Another unit for a claim whose units wait for later ones. None when an idle thread is to take
  // it, all are dealt, or the work was killed or has failed.
  std::optional<std::uint64_t> Extend(const Claim& claim);
  // All units of the claim have run, or one failed with `status`.
  void Finish(const Claim& claim, Status status, FaultKind fault = FaultKind::kNone);
  // Kills all work and ends every Next().
  void Close();

 private:
  static constexpr std::uint64_t kNoRank = std::numeric_limits<std::uint64_t>::max();

  using Stream = std::deque<std::shared_ptr<QueuedWork>>;
  // Highest priority first, then oldest.
  static std::uint64_t GetRank(std::uint8_t priority, std::uint64_t sequence);
  // All units are dealt, and none is paused.
  static bool IsDone(const QueuedWork& work);
  // Nothing further of it is to be dealt.
  static bool MustEnd(const QueuedWork& work);
  // What runs after the work that has ended, in its place; null where that ends its command.
  std::shared_ptr<QueuedWork> TakeNextNode(QueuedWork& ended) GPUSHARED_REQUIRES(mutex_);
  void StartHead(Stream& stream, std::uint32_t threads_wanted) GPUSHARED_REQUIRES(mutex_);
  // `threads_wanted`: as StartHead takes it.
  void EndIfDone(QueuedWork& work, std::uint32_t threads_wanted) GPUSHARED_REQUIRES(mutex_);
  // How many threads may help the one that has ended the claim. That one looks for more itself, but
  // for the spare one, which takes nothing else.
  std::uint32_t GetHelpers(const Claim& claim) const { return threads_ - !claim.is_of_spare; }
  void Report(const std::shared_ptr<QueuedWork>& work) GPUSHARED_REQUIRES(mutex_);
  void MakeClaimable(QueuedWork& work) GPUSHARED_REQUIRES(mutex_);
  void MakeUnclaimable(QueuedWork& work) GPUSHARED_REQUIRES(mutex_);
  void RecordFirstRank() GPUSHARED_REQUIRES(mutex_);
  // Takes a paused run or a unit of the first work that has one; null when none has.
  Claim TakeFirst(ExecutorClock* clock, bool is_for_spare, Standing* standing)
      GPUSHARED_REQUIRES(mutex_);
  // Work of this priority has come.
  void RecordAsked(std::uint8_t priority) GPUSHARED_REQUIRES(mutex_);
  // Whether more urgent work than this came lately.
  bool IsBelowOthers(std::uint8_t priority) const GPUSHARED_REQUIRES(mutex_);
  // Puts the thread of the claim where its work lets it be.
  void Stand(const Claim& claim, bool is_below_others) const GPUSHARED_EXCLUDES(mutex_);
  // Calls forward as many threads as `work` has use for, of those back with less urgent work.
  void CallForwardFor(const QueuedWork& work, std::uint64_t units) GPUSHARED_REQUIRES(mutex_);
  // Calls forward those that run it: it is to end.
  void CallForwardFrom(const QueuedWork& work) GPUSHARED_REQUIRES(mutex_);
  // The thread of the claim has come back.
  void EndClaim(const Claim& claim) GPUSHARED_REQUIRES(mutex_);
  // Whether the first work waits while no thread is free, and one runs work of a lower priority.
  bool IsHeldUp() const GPUSHARED_REQUIRES(mutex_);
  // Ends a time in which something was claimable and no thread had anything.
  void EndStandstill() GPUSHARED_REQUIRES(mutex_);
  // Waits for work to arrive; calls `rest` once in between, and then forgets it.
  void WaitForWork(MutexLock& lock, const std::function<void()>** rest) GPUSHARED_REQUIRES(mutex_);
  // Counts the time since then, beyond the usual.
  void CountStandstill(DeviceClock::time_point since) GPUSHARED_REQUIRES(mutex_);
  // Last act of a call: calls the wake function if it is due, and unlocks before. Clang cannot
  // follow that the caller's lock goes here.
  void WakeIfAsked(MutexLock& lock) GPUSHARED_REQUIRES(mutex_) GPUSHARED_UNCHECKED_LOCKING;

  const std::uint32_t threads_;
  const WakeFunction wake_;
  const std::chrono::nanoseconds spare_patience_;

  Mutex mutex_;
  std::condition_variable work_arrived_;
  bool is_closed_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::uint32_t threads_idle_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::uint32_t claims_running_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // Over all works.
  std::map<std::uint8_t, std::uint32_t> claims_by_priority_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<Standing*> standings_ GPUSHARED_GUARDED_BY(mutex_);
  // The highest priority that was asked for lately, and when that was.
  std::uint8_t asked_priority_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  DeviceClock::time_point asked_at_ GPUSHARED_GUARDED_BY(mutex_);
  std::condition_variable spare_wanted_;
  bool is_spare_asleep_ GPUSHARED_GUARDED_BY(mutex_) = false;
  // Work waited for kSparePatience, and no thread has come back since.
  bool are_threads_stuck_ GPUSHARED_GUARDED_BY(mutex_) = false;
  // While no claims run.
  DeviceClock::time_point free_since_ GPUSHARED_GUARDED_BY(mutex_);
  // While claimable_ has any.
  DeviceClock::time_point claimable_since_ GPUSHARED_GUARDED_BY(mutex_);
  // The last end that was not taken.
  std::optional<DeviceClock::time_point> last_ended_ GPUSHARED_GUARDED_BY(mutex_);
  std::atomic<std::int64_t> stood_still_ns_ = 0;  // Written under mutex_, read without it.
  // The number of the work submitted last.
  std::uint64_t sequence_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::unordered_map<StreamKey, Stream> streams_ GPUSHARED_GUARDED_BY(mutex_);
  std::unordered_map<WorkId, QueuedWork*> works_ GPUSHARED_GUARDED_BY(mutex_);
  // By rank; some may have no units left.
  std::map<std::uint64_t, QueuedWork*> claimable_ GPUSHARED_GUARDED_BY(mutex_);
  // Of the first in claimable_. Written under mutex_, read without it. Relaxed: it only says
  // where a thread looks for its next unit, or that it must not stay back.
  std::atomic<std::uint64_t> first_rank_{kNoRank};
  std::deque<Completion> completions_ GPUSHARED_GUARDED_BY(mutex_);
  // The last TakeCompletions found less than it had room for.
  bool is_wake_asked_ GPUSHARED_GUARDED_BY(mutex_) = true;
  bool is_wake_due_ GPUSHARED_GUARDED_BY(mutex_) = false;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_WORK_QUEUE_H_
