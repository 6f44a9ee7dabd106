// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gpu/time_sliced_gpu.h"

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
  if (is_running_) consider(running_since_ + contexts_[active_].items.front().left);
  for (std::size_t number = 0; number < contexts_.size(); ++number) {
    if (contexts_[number].items.empty() || (is_running_ && number == active_)) continue;
    // Another context's work matters when it is ready and the slice is over.
    const TimePoint ready = contexts_[number].items.front().ready;
    consider(is_running_ ? std::max({ready, slice_end_, running_since_}) : ready);
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
  const std::optional<std::size_t> other = NextReady(now);
  const bool active_has_work = !contexts_.empty() && HasReady(contexts_[active_], now);
  if (other && (!active_has_work || now >= slice_end_)) {
    active_ = *other;
    running_since_ = now + costs_.context_switch;
    slice_end_ = running_since_ + slice_;
    is_running_ = true;
  } else if (active_has_work && !is_running_) {
    running_since_ = now;
    is_running_ = true;
  }
}

}  // namespace gpushared::simulation
