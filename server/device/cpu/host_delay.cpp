// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/host_delay.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "gpushared/check.h"

namespace gpushared::device {

using std::chrono::nanoseconds;

void ExecutorTimes::Run(DeviceClock::time_point due, const Reading& now) {
  const nanoseconds late = now.at - std::max(due, last_.at) - kUsuallyLate;
  if (late > nanoseconds()) {
    totals_.busy += late;
    totals_.delayed += late;
  }
  Enter(State::kRunning, now);
}

void ExecutorTimes::Sleep(DeviceClock::time_point due, const Reading& now) {
  UpTo(now);
  due_ = due;
  Enter(State::kSleeping, now);
}

void ExecutorTimes::Wake(const Reading& now) {
  UpTo(now);
  Enter(State::kRunning, now);
}

void ExecutorTimes::Wait(const Reading& now) {
  UpTo(now);
  Enter(State::kWaiting, now);
}

void ExecutorTimes::Enter(State state, const Reading& now) {
  state_ = state;
  last_ = now;
}

const ExecutorTimes::Totals& ExecutorTimes::UpTo(const Reading& now) {
  const nanoseconds passed = now.at - last_.at;
  // Since when it waits is needed when it does so no more.
  if (state_ == State::kWaiting || passed <= nanoseconds()) return totals_;
  totals_.busy += passed;
  if (state_ == State::kSleeping) {
    const nanoseconds late = now.at - std::max(due_ + kUsuallyLate, last_.at);
    totals_.delayed += std::max(late, nanoseconds());
  } else {
    missing_ += passed - (now.ran - last_.ran);
    totals_.delayed += std::max(missing_, nanoseconds());
    missing_ = std::min(missing_, nanoseconds());
  }
  last_ = now;
  return totals_;
}

void ExecutorClock::Begin() {
  const std::lock_guard lock(mutex_);
  Check(::pthread_getcpuclockid(::pthread_self(), &clock_) == 0, "a thread has a clock");
  times_.emplace(Read());
}

ExecutorTimes::Reading ExecutorClock::Read() const {
  const auto at = DeviceClock::now();
  timespec ran{};
  Check(::clock_gettime(clock_, &ran) == 0, "the clock of a thread that is there can be read");
  return {at, std::chrono::seconds(ran.tv_sec) + nanoseconds(ran.tv_nsec)};
}

void ExecutorClock::Run(DeviceClock::time_point due) {
  const std::lock_guard lock(mutex_);
  times_->Run(due, Read());
}

void ExecutorClock::Wait() {
  const std::lock_guard lock(mutex_);
  times_->Wait(Read());
}

void ExecutorClock::Sleep(nanoseconds time) {
  {
    const std::lock_guard lock(mutex_);
    const ExecutorTimes::Reading now = Read();
    times_->Sleep(now.at + time, now);
  }
  std::this_thread::sleep_for(time);
  const std::lock_guard lock(mutex_);
  times_->Wake(Read());
}

ExecutorTimes::Totals ExecutorClock::Totals() {
  const std::lock_guard lock(mutex_);
  return times_ ? times_->UpTo(Read()) : ExecutorTimes::Totals{};
}

void HostDelay::Look(std::span<const ExecutorTimes::Totals> threads,
                     std::optional<DeviceClock::time_point> ended, DeviceClock::time_point now) {
  before_.resize(threads.size());
  nanoseconds busy_most{}, busy{}, delayed{};
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const nanoseconds was_busy = threads[i].busy - before_[i].busy;
    busy_most = std::max(busy_most, was_busy);
    busy += was_busy;
    delayed += threads[i].delayed - before_[i].delayed;
    before_[i] = threads[i];
  }
  if (busy > nanoseconds()) {
    const double part = static_cast<double>(delayed.count()) / static_cast<double>(busy.count());
    total_ += nanoseconds(std::llround(part * static_cast<double>(busy_most.count())));
  }
  if (ended && now - *ended > kUsuallyLate) total_ += now - std::max(*ended, looked_);
  looked_ = now;
}

}  // namespace gpushared::device
