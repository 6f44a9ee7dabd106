// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/drain.h"

#include <algorithm>
#include <utility>

namespace gpushared::device::cuda {

using Hold = IdleWindows::Hold;

bool Drain::HasBlockers() const {
  return std::ranges::any_of(channels_, [](const auto& each) { return each->has_blockers(); });
}

void Drain::Begin() {
  began_ = IdleWindows::Clock::now();
  idle_windows_.SetHold(Hold::kAllButHigh);
  for (const std::unique_ptr<Channel>& channel : channels_) channel->StopClaims();
}

void Drain::GiveUp(IdleWindows::TimePoint now) {
  idle_windows_.RecordAbandonedDrain(*std::exchange(began_, std::nullopt), now);
  idle_windows_.SetHold(Hold::kNothing);
  patience_ = std::min(2 * patience_, kPatienceMax);
  for (const std::unique_ptr<Channel>& channel : channels_) channel->RecordBlockers();
}

void Drain::Review() {
  bool has_parts = false, has_others = false;
  for (const std::unique_ptr<Channel>& channel : channels_) {
    has_parts |= channel->has_parts();
    has_others |= channel->has_parts() && !channel->is_high();
  }
  if (!has_parts) {
    if (!idle_windows_.has_work()) return;
    idle_windows_.SetHold(Hold::kNothing);
    if (began_) {
      const auto took = IdleWindows::Clock::now() - *began_;
      patience_ = std::clamp<std::chrono::nanoseconds>(2 * took, kPatienceMin, kPatienceMax);
    }
    return idle_windows_.EndWork(std::exchange(began_, std::nullopt));
  }
  if (!began_) {
    if (idle_windows_.IsWanted() && !HasBlockers()) Begin();
    return;
  }
  if (!has_others) idle_windows_.SetHold(Hold::kAll);
  const IdleWindows::TimePoint now = IdleWindows::Clock::now();
  if (now - *began_ >= patience_) GiveUp(now);
}

}  // namespace gpushared::device::cuda
