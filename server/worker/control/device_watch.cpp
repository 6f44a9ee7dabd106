// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/device_watch.h"

#include <algorithm>
#include <utility>

namespace gpushared::server {

using std::chrono::nanoseconds;

DeviceWatch::Limits DeviceWatch::LimitsFor(nanoseconds turn_max, nanoseconds leaves_within) {
  // The interval is at most a second, so that a blocked thread is detected soon. Longer intervals
  // would save little: one wake-up of an idle worker per second.
  constexpr nanoseconds kIntervalMin = std::chrono::milliseconds(1);
  constexpr nanoseconds kIntervalMax = std::chrono::seconds(1);
  return {.interval = std::clamp(turn_max / 10, kIntervalMin, kIntervalMax),
          .turn_max = turn_max,
          .leaves_within = leaves_within};
}

DeviceWatch::Verdict DeviceWatch::Poll(std::uint64_t turn_steps) {
  const bool is_in_turn = turn_steps % 2 != 0;
  if (std::exchange(turn_steps_, turn_steps) != turn_steps || !is_in_turn) {
    blocked_for_ = nanoseconds(0);
    has_ended_kernels_ = is_lost_ = false;
    return Verdict::kFine;
  }
  blocked_for_ += limits_.interval;
  if (blocked_for_ >= limits_.turn_max && !std::exchange(has_ended_kernels_, true))
    return Verdict::kEndKernels;
  const bool is_over = blocked_for_ >= limits_.turn_max + limits_.leaves_within;
  return is_over && !std::exchange(is_lost_, true) ? Verdict::kLost : Verdict::kFine;
}

}  // namespace gpushared::server
