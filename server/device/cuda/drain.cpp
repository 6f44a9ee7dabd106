// SPDX-License-Identifier: Apache-2.0
#include "server/device/cuda/drain.h"

#include <algorithm>
#include <utility>

namespace gpushared::device::cuda {

using Hold = QuietMoments::Hold;

bool Drain::HasBlockers() const {
  return std::ranges::any_of(channels_, [](const auto& each) { return each->has_blockers(); });
}

void Drain::Begin() {
  began_ = QuietMoments::Clock::now();
  moments_.SetHold(Hold::kAllButHigh);
  for (const std::unique_ptr<Channel>& channel : channels_) channel->StopClaims();
}

void Drain::GiveUp(QuietMoments::TimePoint now) {
  moments_.RecordAbandonedDrain(*std::exchange(began_, std::nullopt), now);
  moments_.SetHold(Hold::kNothing);
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
    if (!moments_.has_work()) return;
    moments_.SetHold(Hold::kNothing);
    if (began_) {
      const auto took = QuietMoments::Clock::now() - *began_;
      patience_ = std::clamp<std::chrono::nanoseconds>(2 * took, kPatienceMin, kPatienceMax);
    }
    return moments_.EndWork(std::exchange(began_, std::nullopt));
  }
  if (!began_) {
    if (moments_.IsWanted() && !HasBlockers()) Begin();
    return;
  }
  if (!has_others) moments_.SetHold(Hold::kAll);
  const QuietMoments::TimePoint now = QuietMoments::Clock::now();
  if (now - *began_ >= patience_) GiveUp(now);
}

}  // namespace gpushared::device::cuda
