// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/work_queue.h"

#include <algorithm>
#include <utility>

#include "gpushared/check.h"

namespace gpushared::device {

QueuedWork::QueuedWork(std::variant<LaunchWork, CopyWork, FillWork> submitted, std::uint64_t units,
                       Status rejected)
    : what(std::move(submitted)), units_total(units), status(std::move(rejected)) {
  next_unit.store(header().first_unit, std::memory_order_relaxed);
}

QueuedWork::~QueuedWork() = default;

void QueuedWork::SubmitAgain(const LaunchWork& rest) {
  what = rest;
  // `paused` is this work. The reference is reset, because otherwise the work would own itself.
  std::get<LaunchWork>(what).paused.reset();
  stop.store(false, std::memory_order_relaxed);
  has_started = false;
}

void QueuedWork::SubmitAgain(const GraphWork& rest) {
  std::visit([&](auto& node) { static_cast<WorkHeader&>(node) = rest; }, what);
  graph->work = rest;
  // `paused` is this work. The reference is reset, because otherwise the work would own itself.
  graph->work.paused.reset();
  graph->is_stopping = false;
  graph->started.reset();
  stop.store(false, std::memory_order_relaxed);
  has_started = false;
}

std::optional<std::uint64_t> QueuedWork::TakeUnit() {
  const std::uint64_t unit = next_unit.fetch_add(1, std::memory_order_relaxed);
  return unit < units_total ? std::optional(unit) : std::nullopt;
}

std::uint64_t QueuedWork::units_dealt() const {
  return std::min(next_unit.load(std::memory_order_relaxed), units_total);
}

const WorkHeader& QueuedWork::header() const {
  return std::visit([](const auto& work) -> const WorkHeader& { return work; }, what);
}

WorkQueue::WorkQueue(std::uint32_t threads, WakeFunction wake,
                     std::chrono::nanoseconds spare_patience)
    : threads_(threads), wake_(std::move(wake)), spare_patience_(spare_patience) {}

std::uint64_t WorkQueue::GetRank(std::uint8_t priority, std::uint64_t sequence) {
  constexpr unsigned kSequenceBits = 56;  // Enough for two years at one submission per nanosecond.
  constexpr std::uint64_t kPriorityMax = std::numeric_limits<std::uint8_t>::max();
  return (kPriorityMax - priority) << kSequenceBits | sequence;
}

void WorkQueue::Submit(std::shared_ptr<QueuedWork> work) {
  MutexLock lock(mutex_);
  RecordAsked(work->header().priority);
  work->rank = GetRank(work->header().priority, ++sequence_);
  // Copied, because work without units completes, and may be destroyed, during this call.
  const StreamKey key = work->header().stream;
  Check(works_.emplace(work->header().id, work.get()).second, "work on the device has a unique id");
  Stream& stream = streams_[key];
  stream.push_back(std::move(work));
  if (stream.size() == 1) {
    StartHead(stream, threads_);
    if (stream.empty()) streams_.erase(key);
  }
  WakeIfAsked(lock);
}

void WorkQueue::Submit(const GraphWork& work, const NodeMaker& maker) {
  const auto node = static_cast<std::size_t>(work.first_unit);
  Check(node < work.nodes.size(), "a graph on the device has a node to run");
  if (work.paused != nullptr) {
    auto rest = std::static_pointer_cast<QueuedWork>(work.paused);
    rest->SubmitAgain(work);
    return Submit(std::move(rest));
  }
  std::shared_ptr<QueuedWork> first = maker.MakeNode(work, node);
  first->graph = std::make_unique<GraphRun>();
  first->graph->work = work;
  first->graph->maker = &maker;
  first->graph->node = node;
  Submit(std::move(first));
}

std::shared_ptr<QueuedWork> WorkQueue::TakeNextNode(QueuedWork& ended) {
  if (ended.graph == nullptr) return nullptr;
  GraphRun& graph = *ended.graph;
  if (!graph.started && ended.has_started) graph.started = ended.started;
  const bool is_last = graph.is_stopping || graph.node + 1 == graph.work.nodes.size();
  if (is_last || ended.is_killed || !ended.status.ok() || !IsDone(ended)) return nullptr;
  std::shared_ptr<QueuedWork> next = graph.maker->MakeNode(graph.work, ++graph.node);
  next->rank = ended.rank;
  next->graph = std::move(ended.graph);
  works_[next->header().id] = next.get();
  return next;
}

void WorkQueue::RequestStop(WorkId id) {
  MutexLock lock(mutex_);
  const auto found = works_.find(id);
  if (found == works_.end()) return;
  QueuedWork& work = *found->second;
  if (work.graph != nullptr) work.graph->is_stopping = true;
  const bool may_stop = work.graph == nullptr || work.graph->work.may_be_paused;
  if (may_stop || !work.has_started) work.stop = true;
  PromoteThreadsOf(work);
  EndIfDone(work, threads_);
  WakeIfAsked(lock);
}

void WorkQueue::RequestKill(WorkId id) {
  MutexLock lock(mutex_);
  const auto found = works_.find(id);
  if (found == works_.end()) return;
  QueuedWork& work = *found->second;
  work.is_killed = true;
  work.abandon.store(true, std::memory_order_relaxed);
  PromoteThreadsOf(work);
  EndIfDone(work, threads_);
  WakeIfAsked(lock);
}

std::size_t WorkQueue::TakeCompletions(std::span<Completion> out) {
  const MutexLock lock(mutex_);
  if (last_ended_ && works_.empty()) CountStall(*last_ended_);
  last_ended_.reset();
  const std::size_t count = std::min(out.size(), completions_.size());
  std::move(completions_.begin(), completions_.begin() + static_cast<std::ptrdiff_t>(count),
            out.begin());
  completions_.erase(completions_.begin(),
                     completions_.begin() + static_cast<std::ptrdiff_t>(count));
  if (count < out.size()) is_wake_asked_ = true;
  return count;
}

void WorkQueue::EndStall() {
  if (claims_running_ == 0) CountStall(std::max(claimable_since_, free_since_));
}

void WorkQueue::CountStall(DeviceClock::time_point since) {
  const std::chrono::nanoseconds late = DeviceClock::now() - since - kUsuallyLate;
  if (late.count() > 0) stalled_ns_.fetch_add(late.count(), std::memory_order_relaxed);
}

void WorkQueue::WaitForWork(MutexLock& lock, const std::function<void()>** on_idle) {
  ++threads_idle_;
  bool has_idled = false;
  if (*on_idle == nullptr) {
    work_arrived_.wait(lock.waitable());
  } else {
    has_idled = work_arrived_.wait_for(lock.waitable(), kIdleAfter) == std::cv_status::timeout;
  }
  --threads_idle_;
  if (!has_idled || !claimable_.empty() || is_closed_) return;
  {
    const MutexUnlock unlock(mutex_);
    (**on_idle)();
  }
  *on_idle = nullptr;
}

void WorkQueue::Enlist(ExecutorPriority& executor) {
  const MutexLock lock(mutex_);
  executors_.push_back(&executor);
}

void WorkQueue::RecordAsked(std::uint8_t priority) {
  if (priority == 0 && asked_priority_ == 0) return;
  const DeviceClock::time_point now = DeviceClock::now();
  if (priority < asked_priority_ && now - asked_at_ < kDemotedFor) return;
  asked_priority_ = priority;
  asked_at_ = now;
}

bool WorkQueue::IsBelowOthers(std::uint8_t priority) const {
  return priority < asked_priority_ && DeviceClock::now() - asked_at_ < kDemotedFor;
}

void WorkQueue::Apply(const Claim& claim, bool is_below_others) const {
  if (claim.executor == nullptr) return;
  if (!is_below_others) return claim.executor->Promote();
  claim.executor->Demote();
  // More urgent work, a stop or a kill may have arrived after the claim. Either the thread that
  // submitted the work or made the request reads that this thread is demoted, or this thread reads
  // the arrival here, because both store before they load, with sequential consistency.
  const QueuedWork& work = *claim.work;
  if (first_rank_.load() < GetRank(work.header().priority, 0) || work.stop || work.is_killed) {
    claim.executor->Promote();
  }
}

void WorkQueue::PromoteFor(const QueuedWork& work, std::uint64_t units) {
  for (ExecutorPriority* const each : executors_) {
    if (units == 0) return;
    if (each->running_ == nullptr || !each->is_demoted() ||
        each->running_->header().priority >= work.header().priority) {
      continue;
    }
    each->Promote();
    --units;
  }
}

void WorkQueue::PromoteThreadsOf(const QueuedWork& work) {
  for (ExecutorPriority* const each : executors_) {
    if (each->running_ == &work) each->Promote();
  }
}

std::optional<Claim> WorkQueue::Next(ExecutorClock* clock, const std::function<void()>* on_idle,
                                     ExecutorPriority* executor) {
  MutexLock lock(mutex_);
  Claim claim;
  while (!is_closed_ && (claim = TakeFirst(clock, false, executor)).work == nullptr) {
    if (clock != nullptr) clock->Idle();
    // The thread is promoted before it sleeps, because it may be woken for urgent work.
    if (executor != nullptr) executor->Promote();
    WaitForWork(lock, &on_idle);
  }
  if (is_closed_) return std::nullopt;
  const bool is_below_others = IsBelowOthers(claim.work->header().priority);
  lock.Unlock();
  if (clock != nullptr) clock->Run();
  Apply(claim, is_below_others);
  return claim;
}

std::optional<Claim> WorkQueue::NextOfSpare(ExecutorClock* clock) {
  MutexLock lock(mutex_);
  while (!is_closed_) {
    if (!IsHeldUp()) {
      is_spare_asleep_ = true;
      spare_wanted_.wait(lock.waitable());
      is_spare_asleep_ = false;
      continue;
    }
    const std::uint64_t waits = claimable_.begin()->first;
    if (!are_threads_stuck_) {
      spare_wanted_.wait_for(lock.waitable(), spare_patience_);
      // Checks again, because other work may have come first during the wait, and that work has not
      // waited for spare_patience_ yet.
      if (!IsHeldUp() || claimable_.begin()->first != waits) continue;
      are_threads_stuck_ = true;
    }
    Claim claim = TakeFirst(clock, true, nullptr);
    if (claim.work == nullptr) continue;
    lock.Unlock();
    if (clock != nullptr) clock->Run();
    return claim;
  }
  return std::nullopt;
}

bool WorkQueue::IsHeldUp() const {
  if (claimable_.empty() || threads_idle_ != 0 || claims_by_priority_.empty()) return false;
  return claimable_.begin()->first < GetRank(claims_by_priority_.begin()->first, 0);
}

Claim WorkQueue::TakeFirst(ExecutorClock* clock, bool is_for_spare, ExecutorPriority* executor) {
  while (!claimable_.empty()) {
    QueuedWork& work = *claimable_.begin()->second;
    Claim claim{.work = &work,
                .unit = 0,
                .paused = {},
                .clock = clock,
                .executor = executor,
                .is_of_spare = is_for_spare};
    if (!work.paused.empty()) {
      claim.paused = std::move(work.paused.front());
      work.paused.pop_front();
      work.RecordPaused();
    } else if (const std::optional<std::uint64_t> unit = work.TakeUnit()) {
      claim.unit = *unit;
    } else {  // The last units of the work are running; Continue dealt them.
      MakeUnclaimable(work);
      continue;
    }
    // A thread whose clock is not idle went directly from one work item to the next, so there was
    // no stall.
    if (clock == nullptr || clock->is_idle()) EndStall();
    if (!std::exchange(work.has_started, true)) work.started = DeviceClock::now();
    ++work.claims_running;
    ++claims_running_;
    ++claims_by_priority_[work.header().priority];
    if (executor != nullptr) executor->running_ = &work;
    if (IsDone(work)) MakeUnclaimable(work);
    return claim;
  }
  return {};
}

void WorkQueue::EndClaim(const Claim& claim) {
  --claim.work->claims_running;
  if (claim.executor != nullptr) claim.executor->running_ = nullptr;
  if (--claims_running_ == 0) free_since_ = DeviceClock::now();
  const auto same = claims_by_priority_.find(claim.work->header().priority);
  if (--same->second == 0) claims_by_priority_.erase(same);
  if (!claim.is_of_spare) are_threads_stuck_ = false;
}

executor::PauseTerms WorkQueue::GetTerms(
    const Claim& claim, const std::function<bool(std::uint64_t bytes)>& may_pause) const {
  return {.stop = claim.work->stop,
          .first_rank = first_rank_,
          .own_rank = GetRank(claim.work->header().priority, 0),
          .paused_runs = claim.work->paused_runs,
          .may_pause = may_pause};
}

void WorkQueue::Pause(const Claim& claim, PausedRun run) {
  MutexLock lock(mutex_);
  QueuedWork& work = *claim.work;
  work.paused.push_back(std::move(run));
  work.RecordPaused();
  EndClaim(claim);
  if (!MustEnd(work) && !work.is_claimable) MakeClaimable(work);
  if (work.is_claimable && threads_idle_ != 0) work_arrived_.notify_one();
  EndIfDone(work, GetHelpers(claim));
  if (claimable_.empty() && claim.clock != nullptr) claim.clock->Idle();
  WakeIfAsked(lock);
}

std::optional<std::uint64_t> WorkQueue::Continue(const Claim& claim) const {
  QueuedWork& work = *claim.work;
  // Units start in order, so the paused ones come first.
  if (work.paused_runs.load(std::memory_order_relaxed) != 0) return std::nullopt;
  const bool must_end = work.stop.load(std::memory_order_relaxed) ||
                        work.abandon.load(std::memory_order_relaxed) ||
                        work.is_killed.load(std::memory_order_relaxed);
  if (must_end || first_rank_.load(std::memory_order_relaxed) < work.rank) return std::nullopt;
  return work.TakeUnit();
}

std::optional<std::uint64_t> WorkQueue::Extend(const Claim& claim) {
  const MutexLock lock(mutex_);
  QueuedWork& work = *claim.work;
  // An idle thread that can take the next unit would run it sooner and in parallel.
  const bool is_for_others = work.is_claimable && (threads_idle_ != 0 || !work.paused.empty());
  if (is_for_others || work.is_killed || !work.status.ok()) return std::nullopt;
  return work.TakeUnit();
}

void WorkQueue::Finish(const Claim& claim, Status status, FaultKind fault) {
  MutexLock lock(mutex_);
  QueuedWork& work = *claim.work;
  if (!status.ok() && work.status.ok()) {
    work.status = std::move(status);
    work.fault = fault;
    work.abandon.store(true, std::memory_order_relaxed);
  }
  EndClaim(claim);
  EndIfDone(work, GetHelpers(claim));
  // Records the idle time before the wake-up, because a thread that is woken now may run on this
  // core.
  if (claimable_.empty() && claim.clock != nullptr) claim.clock->Idle();
  WakeIfAsked(lock);
}

void WorkQueue::Close() {
  const MutexLock lock(mutex_);
  is_closed_ = true;
  for (const auto& [id, work] : works_) {
    work->is_killed = true;
    work->abandon.store(true, std::memory_order_relaxed);
    PromoteThreadsOf(*work);
  }
  work_arrived_.notify_all();
  spare_wanted_.notify_all();
}

bool WorkQueue::IsDone(const QueuedWork& work) {
  return work.units_dealt() == work.units_total && work.paused.empty();
}

bool WorkQueue::MustEnd(const QueuedWork& work) {
  return IsDone(work) || work.is_killed || !work.status.ok() ||
         work.stop.load(std::memory_order_relaxed);
}

// Completes the work at the head of `stream` that has nothing left to run, and makes the next work
// claimable. `threads_wanted`: how many threads may be woken.
void WorkQueue::StartHead(Stream& stream, std::uint32_t threads_wanted) {
  while (!stream.empty() && MustEnd(*stream.front())) {
    if (std::shared_ptr<QueuedWork> next = TakeNextNode(*stream.front())) {
      stream.front() = std::move(next);
      continue;
    }
    Report(stream.front());
    stream.pop_front();
  }
  if (stream.empty()) return;
  QueuedWork& head = *stream.front();
  MakeClaimable(head);
  const std::uint64_t units = head.units_total - head.units_dealt() + head.paused.size();
  PromoteFor(head, units);
  const auto wake = std::min<std::uint64_t>({units, threads_wanted, threads_idle_});
  for (std::uint64_t woken = 0; woken < wake; ++woken) work_arrived_.notify_one();
}

// Called for work that is, or may be, the head of its stream.
void WorkQueue::EndIfDone(QueuedWork& work, std::uint32_t threads_wanted) {
  if (!MustEnd(work)) return;
  const auto found = streams_.find(work.header().stream);
  Stream& stream = found->second;
  if (stream.front().get() != &work) return;  // The work completes when it becomes the head.
  MakeUnclaimable(work);
  if (work.claims_running != 0) return;
  StartHead(stream, threads_wanted);
  if (stream.empty()) streams_.erase(found);
}

void WorkQueue::Report(const std::shared_ptr<QueuedWork>& ended) {
  QueuedWork& work = *ended;
  Completion completion;
  completion.id = work.header().id;
  completion.ended = DeviceClock::now();
  completion.started = work.has_started ? work.started : completion.ended;
  completion.units_done = work.units_dealt();
  std::uint64_t units_total = work.units_total;
  if (work.graph != nullptr) {
    completion.started = work.graph->started.value_or(completion.started);
    completion.units_done = work.graph->node + (work.status.ok() && IsDone(work) ? 1 : 0);
    units_total = work.graph->work.nodes.size();
  }
  if (work.is_killed) {
    const std::string how = work.status.ok() ? "" : ": " + std::string(work.status.message());
    completion.status = Status(StatusCode::kCancelled, "killed on request" + how);
  } else {
    completion.stopped = work.status.ok() && (completion.units_done < units_total || !IsDone(work));
    const bool is_in_node = work.graph != nullptr && work.units_dealt() > 0 && !IsDone(work);
    if (completion.stopped && (is_in_node || !work.paused.empty())) completion.paused = ended;
    completion.status = std::move(work.status);
    completion.fault = work.fault;
  }
  works_.erase(completion.id);
  last_ended_ = completion.ended;
  completions_.push_back(std::move(completion));
  if (is_wake_asked_) {
    is_wake_asked_ = false;
    is_wake_due_ = true;
  }
}

void WorkQueue::MakeClaimable(QueuedWork& work) {
  if (claimable_.empty()) claimable_since_ = DeviceClock::now();
  claimable_.emplace(work.rank, &work);
  work.is_claimable = true;
  RecordFirstRank();
  if (is_spare_asleep_ && IsHeldUp()) spare_wanted_.notify_one();
}

void WorkQueue::MakeUnclaimable(QueuedWork& work) {
  if (!work.is_claimable) return;
  work.is_claimable = false;
  claimable_.erase(work.rank);
  RecordFirstRank();
  if (claimable_.empty()) EndStall();
}

void WorkQueue::RecordFirstRank() {
  first_rank_.store(claimable_.empty() ? kNoRank : claimable_.begin()->first);
}

void WorkQueue::WakeIfAsked(MutexLock& lock) {
  if (!is_wake_due_) return;
  is_wake_due_ = false;
  lock.Unlock();
  if (wake_) wake_();
}

}  // namespace gpushared::device
