// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_WORK_QUEUE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_WORK_QUEUE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>

#include "gpushared/status.h"

#include "server/device/cpu/claimed_launch.h"
#include "server/device/cpu/contained_runs.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/host_delay.h"
#include "server/device/device.h"

namespace gpushared::device {

// One submitted command. What is not const or atomic belongs to the queue.
struct QueuedWork {
  QueuedWork(std::variant<LaunchWork, CopyWork, FillWork> submitted, std::uint64_t units,
             Status refused, std::unique_ptr<ClaimedLaunch> claimed_launch = nullptr,
             ContainedRuns* contained_runs = nullptr);

  const WorkHeader& header() const;

  const std::variant<LaunchWork, CopyWork, FillWork> what;
  const std::uint64_t units_total;
  // Null for all but launches of claimed forms. Their units are claimed a second time, by the
  // kernel itself, and it is that which counts.
  const std::unique_ptr<ClaimedLaunch> claimed;
  // Of launches of contained kernels, which leave by themselves when they are killed; else null.
  ContainedRuns* const contained;
  // Raised when what runs of this work should end inside its unit: it was killed, or
  // another of its units failed. Relaxed: it is advice, nothing is read because of it.
  std::atomic<bool> abandon{false};
  // Raised when it should end before its next unit. Relaxed, for the same reason.
  std::atomic<bool> stop{false};
  // Bytes that its kernels printed so far; see kOutputBytesMax. Relaxed: a count.
  std::atomic<std::uint64_t> output_bytes{0};
  // Written by the queue. Relaxed; for contained kernels see ContainedRuns::Stop.
  std::atomic<bool> is_killed{false};
  // Of a launch.
  executor::LaunchState launch_state;

 private:
  friend class WorkQueue;
  Status status;  // The first failure.
  bool has_started = false;
  bool is_claimable = false;        // Listed in WorkQueue::claimable_.
  std::uint64_t sequence = 0;       // Of submission, over all streams.
  std::uint64_t units_claimed = 0;  // Counted from unit 0.
  std::uint32_t claims_running = 0;
  std::uint64_t claim_units = 1;  // How many units the next claim takes.
  DeviceClock::time_point started;
};

// A run of units of one work, taken by one executor thread.
struct Claim {
  QueuedWork* work = nullptr;
  std::uint64_t first_unit = 0;
  std::uint64_t units = 0;
  DeviceClock::time_point taken;
  ExecutorClock* clock = nullptr;  // Of the thread that has it; null where nobody counts.
};

// Aimed at by the number of units in a claim: long against the cost of claiming, short
// against the time in which higher-priority work expects to be served.
inline constexpr std::chrono::microseconds kClaimTime{100};

// Orders submitted work, deals its units to the executor threads, and collects
// completions.
//
// Inside a stream work runs one after the other. Of the works at the head of their
// streams the one with the highest priority, then the oldest, is dealt first. Units
// are dealt in ascending order and what is dealt is run, so the count of dealt units
// is the prefix that has run when the work ends.
//
// Thread-safe.
class WorkQueue {
 public:
  // `threads`: executor threads that will call Next.
  WorkQueue(std::uint32_t threads, WakeFunction wake);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void Submit(std::unique_ptr<QueuedWork> work);
  void RequestStop(WorkId id);
  void RequestKill(WorkId id);
  std::size_t TakeCompletions(std::span<Completion> out);

  // The time, over all, for which there was work and no thread had come to take it, or completions
  // alone and nobody had, beyond what is usual (kUsuallyLate).
  std::chrono::nanoseconds stood_still() const {
    // Relaxed: a sum. Who has taken the completions has its part of them by the mutex.
    return std::chrono::nanoseconds(stood_still_ns_.load(std::memory_order_relaxed));
  }

  // Sleeps until there is something to run. Empty after Close(). `clock`: of the calling thread.
  std::optional<Claim> Next(ExecutorClock* clock = nullptr);
  // Adds one unit to a claim whose units wait for later ones; false when none can be had:
  // the next one is dealt already, an idle thread is to take it, or there is none.
  bool Extend(Claim* claim);
  // Says that the units of `claim` before `end_unit` have run, or failed with `status`.
  // Units from `end_unit` on were left because the work is to stop; refused with
  // false when later units are dealt already, upon which they must run after all.
  bool Finish(const Claim& claim, std::uint64_t end_unit, Status status);
  // Kills all work and ends every Next().
  void Close();

 private:
  using Stream = std::deque<std::unique_ptr<QueuedWork>>;
  // Highest priority first, then oldest.
  using ClaimOrder = std::pair<int, std::uint64_t>;

  static ClaimOrder OrderOf(const QueuedWork& work);
  // Nothing further of it is to be dealt.
  static bool MustEnd(const QueuedWork& work);
  // All need mutex_.
  void StartHead(Stream& stream, std::uint32_t threads_wanted);
  void EndIfDone(QueuedWork& work);
  void Report(QueuedWork& work);
  void MakeUnclaimable(QueuedWork& work);
  static void AdaptClaim(QueuedWork& work, const Claim& claim, DeviceClock::time_point now);
  // Ends a time in which something was claimable and no thread had anything.
  void EndStandstill();
  // What is beyond the usual of the time since then.
  void CountStandstill(DeviceClock::time_point since);
  // Last act of a call: unlocks, and calls the wake function if it is due.
  void WakeIfAsked(std::unique_lock<std::mutex>& lock);

  const std::uint32_t threads_;
  const WakeFunction wake_;

  std::mutex mutex_;  // Protects everything below.
  std::condition_variable work_arrived_;
  bool is_closed_ = false;
  std::uint32_t threads_idle_ = 0;
  std::uint32_t claims_running_ = 0;                   // Of all works.
  DeviceClock::time_point free_since_;                 // While there are none.
  DeviceClock::time_point claimable_since_;            // While claimable_ has any.
  std::optional<DeviceClock::time_point> last_ended_;  // Of what has not been taken.
  std::atomic<std::int64_t> stood_still_ns_ = 0;       // Written under mutex_, read without it.
  std::uint64_t sequence_ = 0;
  std::unordered_map<StreamKey, Stream> streams_;
  std::unordered_map<WorkId, QueuedWork*> works_;
  std::map<ClaimOrder, QueuedWork*> claimable_;
  std::deque<Completion> completions_;
  bool is_wake_asked_ = true;  // The last TakeCompletions found less than it had room for.
  bool is_wake_due_ = false;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_WORK_QUEUE_H_
