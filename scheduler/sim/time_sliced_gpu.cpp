// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/time_sliced_gpu.h"

#include <algorithm>

namespace gpushared::simulation {

void TimeSlicedGpu::Submit(const Work& work, TimePoint called) {
  if (work.stream >= contexts_.size()) contexts_.resize(work.stream + 1);
  contexts_[work.stream].items.push_back(
      {work, SoloTime(work.kernel, multiprocessors_) + costs_.kernel_gap,
       called + costs_.launch_delay});
}

std::optional<std::size_t> TimeSlicedGpu::NextReady(TimePoint now) const {
  for (std::size_t i = 1; i <= contexts_.size(); ++i) {
    const std::size_t number = (active_ + i) % contexts_.size();
    if (number != active_ && HasReady(contexts_[number], now)) return number;
  }
  return {};
}

std::optional<TimeSlicedGpu::TimePoint> TimeSlicedGpu::next_turn() const {
  std::optional<TimePoint> next;
  const auto consider = [&](TimePoint at) { next = next ? std::min(*next, at) : at; };
  if (is_running_) {
    consider(running_since_ + contexts_[active_].items.front().left);
    if (fixed_contexts_ > 0) consider(std::max(slice_end_, running_since_));
  }
  for (std::size_t number = 0; number < contexts_.size(); ++number) {
    if (contexts_[number].items.empty() || (is_running_ && number == active_)) continue;
    // Another context can take over only once its work is ready and the slice is over.
    const TimePoint ready = contexts_[number].items.front().ready;
    const bool waits = is_running_ || (fixed_contexts_ > 0 && number != active_);
    consider(waits ? std::max({ready, slice_end_, running_since_}) : ready);
  }
  return next;
}

std::optional<TimeSlicedGpu::TimePoint> TimeSlicedGpu::next_event() const {
  const std::optional<TimePoint> turn = next_turn();
  if (notices_.empty()) return turn;
  return turn ? std::min(*turn, notices_.front().at) : notices_.front().at;
}

void TimeSlicedGpu::Advance(TimePoint now, std::vector<Finished>& finished) {
  for (std::optional<TimePoint> turn = next_turn(); turn && *turn <= now; turn = next_turn()) {
    Step(*turn);
  }
  while (!notices_.empty() && notices_.front().at <= now) {
    finished.push_back(notices_.front().finished);
    notices_.pop_front();
  }
}

void TimeSlicedGpu::Step(TimePoint now) {
  if (is_running_) {
    Item& front = contexts_[active_].items.front();
    front.left -= std::clamp(now - running_since_, Duration(), front.left);
    running_since_ = std::max(running_since_, now);
    if (front.left == Duration()) {
      notices_.push_back({now + costs_.notice, {front.work.id, front.work.kernel.blocks}});
      contexts_[active_].items.pop_front();
      is_running_ = false;
    }
  }
  fixed_contexts_ > 0 ? ChooseFixed(now) : Choose(now);
}

void TimeSlicedGpu::Choose(TimePoint now) {
  const std::optional<std::size_t> other = NextReady(now);
  const bool active_has_work = HasReady(contexts_[active_], now);
  if (other && (!active_has_work || now >= slice_end_)) {
    Begin(*other, now + costs_.context_switch);
    slice_end_ = running_since_ + slice_;
  } else if (active_has_work && !is_running_) {
    Begin(active_, now);
  }
}

void TimeSlicedGpu::ChooseFixed(TimePoint now) {
  const auto turns = static_cast<std::size_t>(now.time_since_epoch() / slice_);
  const std::size_t owner = turns % fixed_contexts_;
  const bool is_new = owner != active_;
  slice_end_ = TimePoint(slice_ * static_cast<Duration::rep>(turns + 1));
  if (is_new) is_running_ = false;
  active_ = owner;
  if (!is_running_ && HasReady(contexts_[owner], now))
    Begin(owner, is_new ? now + costs_.context_switch : now);
}

void TimeSlicedGpu::Begin(std::size_t number, TimePoint at) {
  active_ = number;
  running_since_ = at;
  is_running_ = true;
}

}  // namespace gpushared::simulation
