// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/poll_watch.h"

#include <algorithm>

namespace gpushared::device::executor {

bool PollWatch::IsSeen(std::uint64_t state) const {
  return std::find(seen_.begin(), seen_.end(), state) != seen_.end();
}

void PollWatch::Restart() {
  rounds_ = 0;
  next_check_ = kFirstCheck;
  repeats_ = false;
  seen_.clear();
}

PollWatch::Verdict PollWatch::Note(bool polled, const std::function<std::uint64_t()>& state) {
  without_poll_ = polled ? 0 : without_poll_ + 1;
  if (without_poll_ > kBetweenPolls) {
    if (rounds_ != 0) Restart();
    return Verdict::kWorks;
  }
  if (++rounds_ < kFirstCheck) return Verdict::kWorks;
  if (rounds_ == kFirstCheck) since_ = Clock::now();
  if (repeats_) {
    if (IsSeen(state())) return Verdict::kWaits;
    Restart();
    return Verdict::kWorks;
  }
  if (rounds_ >= next_check_) {
    const std::uint64_t now = state();
    repeats_ = IsSeen(now);
    if (repeats_) return Verdict::kWaits;
    seen_.push_back(now);
    if (seen_.size() > kBetweenPolls) {
      seen_.clear();
      next_check_ = rounds_ + std::min(rounds_, kBetweenChecks);
    }
  }
  // Reads the clock only after the first state of a series.
  if (seen_.size() != 1) return Verdict::kWorks;
  return Clock::now() - since_ >= kLong ? Verdict::kMayWait : Verdict::kWorks;
}

}  // namespace gpushared::device::executor
