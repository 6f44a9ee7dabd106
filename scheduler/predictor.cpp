// SPDX-License-Identifier: Apache-2.0
#include "scheduler/predictor.h"

#include <algorithm>
#include <span>

namespace gpushared::scheduler {

namespace {

__extension__ using Wide = unsigned __int128;

}  // namespace

Predictor::Predictor() : entries_(kKeysMax) {}

std::size_t Predictor::FirstOfSet(std::uint64_t key) {
  constexpr std::size_t kSets = kKeysMax / kWays;
  return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> 32) % kSets * kWays;
}

Duration Predictor::Predict(std::uint64_t key) const {
  for (const Entry& entry : std::span(entries_).subspan(FirstOfSet(key), kWays)) {
    if (entry.key == key && entry.maximum_ns > 0) return Duration(entry.maximum_ns);
  }
  return kFirstGuess;
}

void Predictor::AddSample(std::uint64_t key, Duration measured) {
  const std::int64_t measured_ns =
      std::clamp(measured, Duration(1), Duration(kCommandTimeMax)).count();
  ++samples_;
  Entry* oldest = nullptr;
  for (Entry& entry : std::span(entries_).subspan(FirstOfSet(key), kWays)) {
    if (entry.key == key && entry.maximum_ns > 0) {
      entry.maximum_ns = std::max(entry.maximum_ns, measured_ns);
      entry.used = samples_;
      return;
    }
    if (oldest == nullptr || entry.used < oldest->used) oldest = &entry;
  }
  *oldest = {.key = key, .maximum_ns = measured_ns, .used = samples_};
}

Duration Predictor::Remaining(Duration whole, std::uint64_t units_done, std::uint64_t units) {
  if (units == 0 || units_done >= units) return Duration::zero();
  const Wide part = Wide{static_cast<std::uint64_t>(std::max(whole, Duration::zero()).count())} *
                    (units - units_done) / units;
  return Duration(static_cast<Duration::rep>(part));
}

}  // namespace gpushared::scheduler
