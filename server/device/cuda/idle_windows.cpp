// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/idle_windows.h"

#include <algorithm>
#include <utility>

namespace gpushared::device::cuda {
namespace {

// Object whose idle window the calling thread is in.
thread_local const IdleWindows* t_inside = nullptr;

}  // namespace

// ---- calls

void IdleWindows::Ask(Waiter& waiter) {
  const MutexLock lock(mutex_);
  if (TryEnter(waiter)) return;
  waiting_.push_back(&waiter);
  RecordWanted();
}

bool IdleWindows::HasBegun(Waiter& waiter) {
  const MutexLock lock(mutex_);
  if (!waiter.is_in && TryEnter(waiter)) {
    waiting_.remove(&waiter);
    RecordWanted();
  }
  return waiter.is_in;
}

void IdleWindows::Await(Waiter& waiter) {
  MutexLock lock(mutex_);
  while (!waiter.is_in) {
    if (TryEnter(waiter)) {
      waiting_.remove(&waiter);
      RecordWanted();
    } else if (is_working_ || inside_ > 0) {
      changed_.wait(lock.waitable());
    } else {
      changed_.wait_until(lock.waitable(), DueAt(waiter.urgency));
    }
  }
}

// Delayed work continues after the last call of the window.
void IdleWindows::Leave(Waiter& waiter) {
  {
    const MutexLock lock(mutex_);
    if (!waiter.is_in) {
      waiting_.remove(&waiter);
      return RecordWanted();
    }
    if (--inside_ > 0) return;
    const TimePoint now = Clock::now();
    const std::optional<TimePoint> held_since = std::exchange(held_since_, std::nullopt);
    if (held_since) {
      last_end_ = now;
      last_took_ = now - *held_since;
      held_back_ns_.fetch_add((now - std::max(*held_since, opened_at_)).count(),
                              std::memory_order_relaxed);
    }
    RecordWanted();
    changed_.notify_all();
    if (!held_since) return;
  }
  if (wake_) wake_();
}

bool IdleWindows::IsYoung() const {
  const MutexLock lock(mutex_);
  return Clock::now() - opened_at_ < kWindowMax;
}

void IdleWindows::GiveUp() {
  const MutexLock lock(mutex_);
  is_over_ = true;
  AdmitAll(Clock::now());
}

bool IdleWindows::TryEnter(Waiter& waiter) {
  const TimePoint now = Clock::now();
  const bool may = is_over_ || (inside_ > 0 && now - opened_at_ < kWindowMax) ||
                   (inside_ == 0 && !is_working_ && now >= DueAt(waiter.urgency));
  if (!may) return false;
  if (inside_++ == 0) opened_at_ = now;
  waiter.is_in = true;
  return true;
}

void IdleWindows::AdmitAll(TimePoint now) {
  if (waiting_.empty()) return;
  if (inside_ == 0) opened_at_ = now;
  inside_ += waiting_.size();
  for (Waiter* const waiter : waiting_) waiter->is_in = true;
  waiting_.clear();
  RecordWanted();
  changed_.notify_all();
}

IdleWindows::TimePoint IdleWindows::DueAt(Urgency urgency) const {
  const int factor = urgency == Urgency::kHigh ? kPauseFactorHigh : kPauseFactor;
  return last_end_ + std::min<Clock::duration>(factor * last_took_, kPauseMax);
}

void IdleWindows::RecordWanted() {
  Clock::rep at = kNever;
  for (const Waiter* const waiter : waiting_) {
    at = std::min(at, DueAt(waiter->urgency).time_since_epoch().count());
  }
  wanted_at_.store(at, std::memory_order_relaxed);
}

// ---- work

// The device thread reads the clock without holding the mutex: with the virtual clock of tests, a
// read lets all other threads proceed, and these threads may need the mutex.
bool IdleWindows::TryBeginWork() {
  {
    const MutexLock lock(mutex_);
    device_thread_ = std::this_thread::get_id();
    if (inside_ == 0 || is_over_) return has_work_ = is_working_ = true;
    if (held_since_) return false;
  }
  const TimePoint now = Clock::now();
  const MutexLock lock(mutex_);
  if (inside_ > 0 && !held_since_) held_since_ = now;
  return false;
}

void IdleWindows::EndWork(std::optional<TimePoint> drained_since) {
  const bool is_wanted = wanted_at_.load(std::memory_order_relaxed) != kNever;
  const TimePoint now = is_wanted ? Clock::now() : TimePoint();
  const MutexLock lock(mutex_);
  has_work_ = is_working_ = false;
  if (waiting_.empty()) return;
  const bool is_due = drained_since || std::ranges::any_of(waiting_, [&](const Waiter* waiter) {
                        return now >= DueAt(waiter->urgency);
                      });
  if (!is_due) return changed_.notify_all();  // Each waiter now waits for its own time.
  AdmitAll(now);
  held_since_ = drained_since;
}

void IdleWindows::RecordAbandonedDrain(TimePoint began, TimePoint ended) {
  const MutexLock lock(mutex_);
  last_end_ = ended;
  last_took_ = ended - began;
  RecordWanted();
}

// ---- windows

IdleWindow::IdleWindow(IdleWindows& windows, Urgency urgency, Wait wait)
    : idle_windows_(windows), waiter_{.urgency = urgency} {
  bool is_own = t_inside == &windows;
  if (!is_own) {
    const MutexLock lock(windows.mutex_);
    is_own = windows.device_thread_ == std::this_thread::get_id();
  }
  is_nested_ = is_own && wait == Wait::kNow;
  if (is_nested_) return;
  if (urgency == Urgency::kUnhurried && windows.await_unhurried_) windows.await_unhurried_();
  windows.Ask(waiter_);
  if (wait == Wait::kNow) Await();
}

IdleWindow::~IdleWindow() {
  if (is_nested_) return;
  if (is_inside_) t_inside = nullptr;
  idle_windows_.Leave(waiter_);
}

void IdleWindow::Await() {
  idle_windows_.Await(waiter_);
  is_inside_ = true;
  t_inside = &idle_windows_;
}

bool IdleWindow::HasBegun() {
  if (!idle_windows_.HasBegun(waiter_)) return false;
  is_inside_ = true;
  t_inside = &idle_windows_;
  return true;
}

}  // namespace gpushared::device::cuda
