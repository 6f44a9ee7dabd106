// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/storms/log_minute.h"

#include <algorithm>
#include <cstddef>

namespace gpushared::storms {

double LogMinute::Bytes() const {
  if (Length() <= 0) return 0;
  if (is_whole()) return WorstWithin(kMinuteNs);
  const Sample& last = samples_.back();
  const auto tail = std::ranges::find_if(
      samples_, [&](const Sample& sample) { return sample.at_ns >= last.at_ns - kTailNs; });
  const auto so_far = static_cast<double>(last.bytes - samples_.front().bytes);
  // A storm that has just begun has no tail whose rate could be extrapolated.
  if (tail->at_ns >= last.at_ns) return so_far;
  const double per_ns =
      static_cast<double>(last.bytes - tail->bytes) / static_cast<double>(last.at_ns - tail->at_ns);
  return so_far + per_ns * static_cast<double>(kMinuteNs - Length());
}

double LogMinute::WorstWithin(std::int64_t length_ns) const {
  std::uint64_t worst = 0;
  std::size_t first = 0;
  for (const Sample& sample : samples_) {
    while (sample.at_ns - samples_[first].at_ns > length_ns) ++first;
    worst = std::max(worst, sample.bytes - samples_[first].bytes);
  }
  return static_cast<double>(worst);
}

}  // namespace gpushared::storms
