// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_LOG_MINUTE_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_LOG_MINUTE_H_

#include <cstdint>
#include <vector>

namespace gpushared::storms {

// Growth of a log in a minute of a storm. A log may begin with a burst and then grow steadily, so a
// shorter storm counts as its bytes so far, plus the rest of the minute at the rate of its end. A
// longer storm counts with its worst minute.
//
// Thread-compatible.
class LogMinute {
 public:
  static constexpr std::int64_t kMinuteNs = 60'000'000'000;
  // Length of the storm's end, whose rate counts for the rest of the minute.
  static constexpr std::int64_t kTailNs = 2'000'000'000;

  // Records the log's size at a moment. Neither may decrease from call to call.
  void Add(std::int64_t now_ns, std::uint64_t bytes) { samples_.push_back({now_ns, bytes}); }
  // Whether at least a minute was recorded.
  bool is_whole() const { return Length() >= kMinuteNs; }
  double Bytes() const;

 private:
  struct Sample {
    std::int64_t at_ns = 0;
    std::uint64_t bytes = 0;
  };
  std::int64_t Length() const {
    return samples_.empty() ? 0 : samples_.back().at_ns - samples_.front().at_ns;
  }
  // Returns the maximum growth within `length_ns`.
  double WorstWithin(std::int64_t length_ns) const;

  std::vector<Sample> samples_;
};

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_LOG_MINUTE_H_
