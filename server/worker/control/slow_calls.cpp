// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/slow_calls.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace gpushared::server {
namespace {

constexpr std::chrono::nanoseconds kPollMin = std::chrono::microseconds(100);

}  // namespace

SlowCalls::SlowCalls(const SlowCallRules& rules, std::function<void()> on_thread) : rules_(rules) {
  thread_ = std::thread([this, on_thread = std::move(on_thread)] {
    ::pthread_setname_np(::pthread_self(), "gpushared-slow");
    if (on_thread) on_thread();
    Run();
  });
}

SlowCalls::~SlowCalls() { Finish(); }

void SlowCalls::Add(Waiting waiting) {
  const MutexLock lock(mutex_);
  if (is_finishing_) return;
  waiting_.push_back(std::move(waiting));
  changed_.notify_all();
}

void SlowCalls::AwaitQuiet() {
  const Clock::time_point latest = Clock::now() + rules_.held_max;
  MutexLock lock(mutex_);
  while (!MayBegin(lock, latest)) {
  }
}

void SlowCalls::SetUrgent(std::uint64_t session, bool is_urgent) {
  const MutexLock lock(mutex_);
  for (Waiting& each : waiting_) {
    if (each.caller.session == session) each.caller.is_urgent = is_urgent;
  }
  changed_.notify_all();
}

void SlowCalls::HurrySwap(std::uint64_t session) {
  const MutexLock lock(mutex_);
  if (swapping_ == session) is_hurried_ = true;
  for (Waiting& each : waiting_) {
    if (each.caller.session == session && each.caller.is_swap) each.caller.is_urgent = true;
  }
  changed_.notify_all();
}

void SlowCalls::RecordUrgentRequests(bool are_open) {
  quiet_since_.store(are_open ? kNever : Clock::now().time_since_epoch().count(),
                     std::memory_order_relaxed);
}

void SlowCalls::Finish() {
  {
    const MutexLock lock(mutex_);
    is_finishing_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void SlowCalls::Run() {
  while (std::optional<Waiting> next = Next()) {
    const Clock::time_point began = Clock::now();
    const bool is_unfinished = next->call();
    if (!is_unfinished) next->call = nullptr;
    if (!next->caller.is_urgent && next->caller.disturbs) PauseIfMet(began);
    if (!is_unfinished) continue;
    const MutexLock lock(mutex_);
    next->caller.is_urgent |= is_hurried_;
    next->posted = Clock::now();
    next->step_took = next->posted - began;
    next->has_begun = true;
    waiting_.push_back(*std::move(next));
  }
}

void SlowCalls::PauseIfMet(Clock::time_point began) {
  const Clock::rep since = quiet_since_.load(std::memory_order_relaxed);
  if (since != kNever && since <= began.time_since_epoch().count()) return;
  const Clock::time_point ended = Clock::now();
  const MutexLock lock(mutex_);
  pause_until_ = ended + rules_.pause_factor * (ended - began);
}

bool SlowCalls::IsBlocked(const Waiting& waiting) const {
  const std::uint64_t session = waiting.caller.session;
  return session != 0 && !waiting.has_begun &&
         std::ranges::any_of(waiting_, [&](const Waiting& each) {
           return each.has_begun && each.caller.session == session;
         });
}

SlowCalls::Clock::time_point SlowCalls::GetLatest(const Waiting& waiting) const {
  if (waiting.has_begun) {
    return waiting.posted + std::min(rules_.held_max, rules_.pause_factor * waiting.step_took);
  }
  return GetDue(waiting);
}

SlowCalls::Clock::time_point SlowCalls::GetDue(const Waiting& waiting) const {
  const bool is_new = waiting.caller.awaits_welcome || waiting.caller.is_new_client;
  return waiting.posted + (is_new ? rules_.new_client_held_max : rules_.held_max);
}

std::deque<SlowCalls::Waiting>::iterator SlowCalls::Oldest() {
  return std::ranges::find_if(
      waiting_, [&](const Waiting& each) GPUSHARED_REQUIRES(mutex_) { return !IsBlocked(each); });
}

std::deque<SlowCalls::Waiting>::iterator SlowCalls::Choose() {
  const auto rank = [](const Waiting& each) {
    return each.caller.is_urgent        ? (each.caller.has_left ? 1 : 0)
           : each.caller.awaits_welcome ? 2
           : each.caller.is_new_client  ? 3
                                        : 4;
  };
  const auto oldest = Oldest();
  if (oldest_was_passed_ && Clock::now() >= GetDue(*oldest)) return oldest;
  auto first = oldest;
  for (auto each = oldest; each != waiting_.end(); ++each) {
    if (rank(*each) < rank(*first) && !IsBlocked(*each)) first = each;
  }
  return first;
}

std::optional<SlowCalls::Waiting> SlowCalls::Next() {
  MutexLock lock(mutex_);
  for (;;) {
    if (waiting_.empty()) {
      if (is_finishing_) return {};
      changed_.wait(lock.waitable());
      continue;
    }
    const auto next = Choose();
    // After a wait the call is chosen again, because a different one may be next.
    const bool is_suspended = !next->caller.is_urgent && next->caller.disturbs;
    if (is_suspended && !MayBegin(lock, GetLatest(*next))) continue;
    oldest_was_passed_ = next != Oldest();
    Waiting taken = std::move(*next);
    waiting_.erase(next);
    swapping_ = taken.caller.is_swap ? taken.caller.session : 0;
    is_hurried_ = false;
    return taken;
  }
}

bool SlowCalls::MayBegin(MutexLock& lock, Clock::time_point latest) {
  if (is_finishing_) return true;
  const Clock::time_point now = Clock::now();
  const Clock::rep since = quiet_since_.load(std::memory_order_relaxed);
  if (since == kNever) {
    if (now >= latest) return true;
    // Polls, because the thread that ends the request does not notify this one.
    changed_.wait_until(lock.waitable(), std::min(latest, now + std::max(rules_.quiet, kPollMin)));
    return false;
  }
  const Clock::time_point quiet = Clock::time_point(Clock::duration(since)) + rules_.quiet;
  const Clock::time_point until = std::min(latest, std::max(quiet, pause_until_));
  if (now >= until) return true;
  changed_.wait_until(lock.waitable(), until);
  return false;
}

}  // namespace gpushared::server
