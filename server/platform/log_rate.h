// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_PLATFORM_LOG_RATE_H_
#define GPUSHARED_SERVER_PLATFORM_LOG_RATE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace gpushared::server {

// Bounds the log lines that clients cause: those of one process, of one uid, and all together.
// Lines beyond a bound are held back and counted; Report says in one sentence how many they were.
// Lines of root and of the server's own uid count among all. But only their own bounds hold them
// back, so that no stranger hides them.
//
// It knows a bounded number of processes and uids. A process beyond it is bounded with its uid
// alone, and uids beyond it share one bound.
//
// Told the time, which must not go back. Thread-compatible.
class LogRate {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Bytes that may come at once, and what is added to that each second.
  struct Bound {
    std::int64_t burst_bytes = 0;
    std::int64_t bytes_per_second = 0;
  };
  // Two processes with the built-in bounds, a broker and a worker, write less than 1 MB in any
  // minute, whoever fills their logs.
  struct Limits {
    Bound process{.burst_bytes = 24 << 10, .bytes_per_second = 1 << 10};
    Bound uid{.burst_bytes = 32 << 10, .bytes_per_second = 2 << 10};
    Bound all{.burst_bytes = 48 << 10, .bytes_per_second = 6 << 10};
    std::chrono::seconds report_interval{10};
  };
  // Who causes a line. pid 0: not known, or of no matter.
  struct Cause {
    std::uint32_t uid = 0;
    std::int32_t pid = 0;
  };

  static constexpr std::size_t kProcessesMax = 256;
  static constexpr std::size_t kUidsMax = 256;
  static constexpr std::size_t kUidsNamedMax = 8;  // In one report.
  static constexpr std::int64_t kLineBytes = 64;   // Time, level and name before each text.

  explicit LogRate(std::uint32_t own_uid) : LogRate(own_uid, Limits()) {}
  LogRate(std::uint32_t own_uid, const Limits& limits) : own_uid_(own_uid), limits_(limits) {}

  // Whether a line with `bytes` of text may be written now. If not, it is counted.
  bool Allow(Cause cause, std::size_t bytes, TimePoint now);

  // When Report has something to say; empty: nothing is held back.
  std::optional<TimePoint> report_due() const;
  // "held back 41231 lines about uid 1000 in 10 s", once it is due; then counts from zero.
  std::optional<std::string> Report(TimePoint now);

 private:
  struct Bucket {
    std::int64_t left_bytes = 0;
    TimePoint filled_at{};
  };
  struct OfUid {
    Bucket bucket;
    std::uint64_t held_back = 0;  // Lines since the last report.
  };

  static void Fill(Bucket& bucket, const Bound& bound, TimePoint now);
  static bool IsFull(Bucket bucket, const Bound& bound, TimePoint now);
  Bucket* OfProcess(Cause cause, TimePoint now);
  OfUid& OfUidOf(std::uint32_t uid, TimePoint now);

  std::uint32_t own_uid_;
  Limits limits_;
  std::map<std::uint64_t, Bucket> processes_;  // By uid and pid.
  std::map<std::uint32_t, OfUid> uids_;
  std::optional<OfUid> other_uids_;  // All beyond kUidsMax.
  std::optional<Bucket> all_;
  std::optional<TimePoint> held_back_since_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_LOG_RATE_H_
