// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/work_queue.h"

#include <algorithm>

#include "gpushared/check.h"

namespace gpushared::device {

QueuedWork::QueuedWork(std::variant<LaunchWork, CopyWork, FillWork> submitted, std::uint64_t units,
                       Status refused, std::unique_ptr<ClaimedLaunch> claimed_launch,
                       ContainedRuns* contained_runs)
    : what(submitted),
      units_total(units),
      claimed(std::move(claimed_launch)),
      contained(contained_runs),
      status(std::move(refused)) {
  units_claimed = header().first_unit;
}

const WorkHeader& QueuedWork::header() const {
  return std::visit([](const auto& work) -> const WorkHeader& { return work; }, what);
}

WorkQueue::WorkQueue(std::uint32_t threads, WakeFunction wake)
    : threads_(threads), wake_(std::move(wake)) {}

WorkQueue::ClaimOrder WorkQueue::OrderOf(const QueuedWork& work) {
  return {-int{work.header().priority}, work.sequence};
}

void WorkQueue::Submit(std::unique_ptr<QueuedWork> work) {
  std::unique_lock lock(mutex_);
  work->sequence = ++sequence_;
  const StreamKey key = work->header().stream;  // Work without units ends here already.
  Check(works_.emplace(work->header().id, work.get()).second, "work on the device has a unique id");
  Stream& stream = streams_[key];
  stream.push_back(std::move(work));
  if (stream.size() == 1) {
    StartHead(stream, threads_);
    if (stream.empty()) streams_.erase(key);
  }
  WakeIfAsked(lock);
}

void WorkQueue::RequestStop(WorkId id) {
  std::unique_lock lock(mutex_);
  const auto found = works_.find(id);
  if (found == works_.end()) return;
  found->second->stop.store(true, std::memory_order_relaxed);
  if (found->second->claimed) found->second->claimed->RequestStop();
  EndIfDone(*found->second);
  WakeIfAsked(lock);
}

void WorkQueue::RequestKill(WorkId id) {
  std::unique_lock lock(mutex_);
  const auto found = works_.find(id);
  if (found == works_.end()) return;
  QueuedWork& work = *found->second;
  const bool was_killed = work.is_killed.exchange(true, std::memory_order_relaxed);
  if (work.contained == nullptr || was_killed) {
    work.abandon.store(true, std::memory_order_relaxed);
  } else if (work.claims_running > 0) {
    work.contained->Stop();
  }
  EndIfDone(work);
  WakeIfAsked(lock);
}

std::size_t WorkQueue::TakeCompletions(std::span<Completion> out) {
  const std::lock_guard lock(mutex_);
  if (last_ended_ && works_.empty()) CountStandstill(*last_ended_);
  last_ended_.reset();
  const std::size_t count = std::min(out.size(), completions_.size());
  std::move(completions_.begin(), completions_.begin() + static_cast<std::ptrdiff_t>(count),
            out.begin());
  completions_.erase(completions_.begin(),
                     completions_.begin() + static_cast<std::ptrdiff_t>(count));
  if (count < out.size()) is_wake_asked_ = true;
  return count;
}

void WorkQueue::EndStandstill() {
  if (claims_running_ == 0) CountStandstill(std::max(claimable_since_, free_since_));
}

void WorkQueue::CountStandstill(DeviceClock::time_point since) {
  const std::chrono::nanoseconds late = DeviceClock::now() - since - kUsuallyLate;
  if (late.count() > 0) stood_still_ns_.fetch_add(late.count(), std::memory_order_relaxed);
}

std::optional<Claim> WorkQueue::Next(ExecutorClock* clock) {
  std::unique_lock lock(mutex_);
  while (claimable_.empty() && !is_closed_) {
    if (clock != nullptr) clock->Idle();
    ++threads_idle_;
    work_arrived_.wait(lock);
    --threads_idle_;
  }
  if (is_closed_) return std::nullopt;
  // By its own clock a thread that went from work to work was not idle.
  if (clock == nullptr || clock->is_idle()) EndStandstill();
  QueuedWork& work = *claimable_.begin()->second;
  const std::uint64_t left = work.units_total - work.units_claimed;
  std::uint64_t units = std::min(work.claim_units, left);
  // Near its end the rest is shared, so that all threads finish at about the same time.
  if (threads_ > 1) units = std::min(units, std::max<std::uint64_t>(1, left / (2 * threads_)));
  const Claim claim{.work = &work,
                    .first_unit = work.units_claimed,
                    .units = units,
                    .taken = DeviceClock::now(),
                    .clock = clock};
  if (!work.has_started) {
    work.has_started = true;
    work.started = claim.taken;
  }
  work.units_claimed += units;
  ++work.claims_running;
  ++claims_running_;
  if (work.units_claimed == work.units_total) MakeUnclaimable(work);
  lock.unlock();
  if (clock != nullptr) clock->Run();
  return claim;
}

bool WorkQueue::Extend(Claim* claim) {
  const std::lock_guard lock(mutex_);
  QueuedWork& work = *claim->work;
  const bool is_last = work.units_claimed == claim->first_unit + claim->units;
  // An idle thread runs the next unit sooner and beside this one.
  if (threads_idle_ != 0 || !is_last || work.units_claimed == work.units_total || work.is_killed ||
      !work.status.ok()) {
    return false;
  }
  ++claim->units;
  if (++work.units_claimed == work.units_total) MakeUnclaimable(work);
  return true;
}

bool WorkQueue::Finish(const Claim& claim, std::uint64_t end_unit, Status status) {
  std::unique_lock lock(mutex_);
  QueuedWork& work = *claim.work;
  const std::uint64_t claim_end = claim.first_unit + claim.units;
  if (status.ok() && end_unit < claim_end && !work.is_killed && work.status.ok()) {
    // What was left undone may go back only from the end of what is dealt: a hole
    // inside the prefix could never be named by one resume point.
    if (work.units_claimed != claim_end) return false;
    work.units_claimed = end_unit;
  }
  if (!status.ok() && work.status.ok()) {
    work.status = std::move(status);
    work.abandon.store(true, std::memory_order_relaxed);
  }
  --work.claims_running;
  const auto now = DeviceClock::now();
  if (--claims_running_ == 0) free_since_ = now;
  AdaptClaim(work, claim, now);
  EndIfDone(work);
  // What is woken now may take this core.
  if (claimable_.empty() && claim.clock != nullptr) claim.clock->Idle();
  WakeIfAsked(lock);
  return true;
}

void WorkQueue::Close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  for (const auto& [id, work] : works_) {
    work->is_killed = true;
    work->abandon.store(true, std::memory_order_relaxed);
  }
  work_arrived_.notify_all();
}

bool WorkQueue::MustEnd(const QueuedWork& work) {
  return work.units_claimed >= work.units_total || work.is_killed || !work.status.ok() ||
         work.stop.load(std::memory_order_relaxed);
}

// Lets the first work of `stream` that has something to run be dealt, and completes
// those before it that have nothing. `threads_wanted`: how many threads may be woken.
void WorkQueue::StartHead(Stream& stream, std::uint32_t threads_wanted) {
  while (!stream.empty() && MustEnd(*stream.front())) {
    Report(*stream.front());
    stream.pop_front();
  }
  if (stream.empty()) return;
  QueuedWork& head = *stream.front();
  if (claimable_.empty()) claimable_since_ = DeviceClock::now();
  claimable_.emplace(OrderOf(head), &head);
  head.is_claimable = true;
  const std::uint64_t units = head.units_total - head.units_claimed;
  const auto wake = std::min<std::uint64_t>({units, threads_wanted, threads_idle_});
  for (std::uint64_t woken = 0; woken < wake; ++woken) work_arrived_.notify_one();
}

// For work that is, or may be, the head of its stream.
void WorkQueue::EndIfDone(QueuedWork& work) {
  if (!MustEnd(work)) return;
  const auto found = streams_.find(work.header().stream);
  Stream& stream = found->second;
  if (stream.front().get() != &work) return;  // Ends when its turn comes.
  MakeUnclaimable(work);
  if (work.claims_running != 0) return;
  // The thread that ended the work looks for more itself; others may help it.
  StartHead(stream, threads_ - 1);
  if (stream.empty()) streams_.erase(found);
}

void WorkQueue::Report(QueuedWork& work) {
  Completion completion;
  completion.id = work.header().id;
  completion.ended = DeviceClock::now();
  completion.started = work.has_started ? work.started : completion.ended;
  completion.units_done = work.claimed ? work.claimed->units_done() : work.units_claimed;
  if (work.is_killed) {
    const std::string how = work.status.ok() ? "" : ": " + std::string(work.status.message());
    completion.status = Status(StatusCode::kCancelled, "killed on request" + how);
  } else {
    completion.stopped = work.status.ok() && completion.units_done < work.units_total;
    completion.status = std::move(work.status);
  }
  works_.erase(completion.id);
  last_ended_ = completion.ended;
  completions_.push_back(std::move(completion));
  if (is_wake_asked_) {
    is_wake_asked_ = false;
    is_wake_due_ = true;
  }
}

void WorkQueue::MakeUnclaimable(QueuedWork& work) {
  if (!work.is_claimable) return;
  work.is_claimable = false;
  claimable_.erase(OrderOf(work));
  if (claimable_.empty()) EndStandstill();
}

void WorkQueue::AdaptClaim(QueuedWork& work, const Claim& claim, DeviceClock::time_point now) {
  const auto took = std::max(now - claim.taken, DeviceClock::duration(1));
  // In floating point: neither a long unit nor many short ones can overflow it.
  const double per_unit =
      std::chrono::duration<double>(took).count() / static_cast<double>(claim.units);
  const double fitting = std::chrono::duration<double>(kClaimTime).count() / per_unit;
  // Doubling at most: the first units of a kernel may be shorter than the rest.
  work.claim_units =
      static_cast<std::uint64_t>(std::clamp(fitting, 1.0, 2.0 * static_cast<double>(claim.units)));
}

void WorkQueue::WakeIfAsked(std::unique_lock<std::mutex>& lock) {
  if (!is_wake_due_) return;
  is_wake_due_ = false;
  lock.unlock();
  if (wake_) wake_();
}

}  // namespace gpushared::device
