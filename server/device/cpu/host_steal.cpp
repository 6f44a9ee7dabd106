// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/host_steal.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "gpushared/check.h"

namespace gpushared::device {

using std::chrono::nanoseconds;

void ExecutorTimes::Run(const Reading& now) { Enter(State::kRunning, now); }

void ExecutorTimes::Idle(const Reading& now) { Enter(State::kIdle, now); }

void ExecutorTimes::Wait(DeviceClock::time_point until, const Reading& now) {
  Enter(State::kWaiting, now);
  const bool has_end = until < DeviceClock::time_point::max() - kUsuallyLate;
  late_from_ = has_end ? until + kUsuallyLate : DeviceClock::time_point::max();
}

void ExecutorTimes::Enter(State state, const Reading& now) {
  UpTo(now);
  state_ = state;
}

const ExecutorTimes::Totals& ExecutorTimes::UpTo(const Reading& now) {
  const nanoseconds passed = now.at - last_.at;
  switch (state_) {
    case State::kIdle:
      break;
    case State::kRunning:
      totals_.busy += passed;
      missing_ += passed - (now.ran - last_.ran);
      totals_.delayed += std::max(missing_, nanoseconds());
      missing_ = std::min(missing_, nanoseconds());
      break;
    case State::kWaiting:
      totals_.busy += passed;
      totals_.delayed +=
          std::max(nanoseconds(now.at - std::max(late_from_, last_.at)), nanoseconds());
      break;
  }
  last_ = now;
  return totals_;
}

void ExecutorClock::Begin() {
  const MutexLock lock(mutex_);
  Check(::pthread_getcpuclockid(::pthread_self(), &clock_) == 0, "a thread has a clock");
  times_.emplace(Read());
}

ExecutorTimes::Reading ExecutorClock::Read() const {
  const auto at = DeviceClock::now();
  timespec ran{};
  Check(::clock_gettime(clock_, &ran) == 0, "the clock of a running thread can be read");
  return {at, std::chrono::seconds(ran.tv_sec) + nanoseconds(ran.tv_nsec)};
}

void ExecutorClock::Run() {
  if (!is_idle_) return;
  is_idle_ = false;
  const MutexLock lock(mutex_);
  times_->Run(Read());
}

void ExecutorClock::Idle() {
  if (is_idle_) return;
  is_idle_ = true;
  const MutexLock lock(mutex_);
  times_->Idle(Read());
}

void ExecutorClock::Sleep(nanoseconds time) {
  Wait(time, [time] { std::this_thread::sleep_for(time); });
}

void ExecutorClock::Block(const std::function<void()>& what) {
  Wait(DeviceClock::duration::max(), what);
}

void ExecutorClock::Wait(DeviceClock::duration at_most, const std::function<void()>& what) {
  {
    const MutexLock lock(mutex_);
    const ExecutorTimes::Reading now = Read();
    const auto left = DeviceClock::time_point::max() - now.at;
    times_->Wait(now.at + std::min(at_most, left), now);
  }
  what();
  const MutexLock lock(mutex_);
  times_->Run(Read());
}

ExecutorTimes::Totals ExecutorClock::Totals() {
  const MutexLock lock(mutex_);
  return times_ ? times_->UpTo(Read()) : ExecutorTimes::Totals{};
}

void HostSteal::Update(std::span<const ExecutorTimes::Totals> threads) {
  before_.resize(threads.size());
  nanoseconds busy_most{}, busy{}, delayed{};
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const nanoseconds was_busy = threads[i].busy - before_[i].busy;
    busy_most = std::max(busy_most, was_busy);
    busy += was_busy;
    delayed += threads[i].delayed - before_[i].delayed;
    before_[i] = threads[i];
  }
  if (busy <= nanoseconds()) return;
  const double part = static_cast<double>(delayed.count()) / static_cast<double>(busy.count());
  total_ += nanoseconds(std::llround(part * static_cast<double>(busy_most.count())));
}

}  // namespace gpushared::device
