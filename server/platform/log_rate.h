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

// Rate limiter for the log lines that clients cause: per process, per uid and in total. Lines
// beyond a limit are suppressed and counted, and Report returns a message with the counts. Lines of
// root and of the server's own uid count toward the total, but are subject only to the limits of
// their own process and uid, so that other users cannot suppress them.
//
// Tracks a bounded number of processes and uids. Further processes are subject only to the limit of
// their uid, and further uids share one limit.
//
// The caller passes the time, which must not go back. Thread-compatible.
class LogRate {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Bytes allowed in one burst, and bytes added per second.
  struct Bound {
    std::int64_t burst_bytes = 0;
    std::int64_t bytes_per_second = 0;
  };
  // With the default limits, two processes, a broker and a worker, together write less than 1 MB in
  // any minute, regardless of which clients cause the lines.
  struct Limits {
    Bound process{.burst_bytes = 24 << 10, .bytes_per_second = 1 << 10};
    Bound uid{.burst_bytes = 32 << 10, .bytes_per_second = 2 << 10};
    Bound all{.burst_bytes = 48 << 10, .bytes_per_second = 6 << 10};
    std::chrono::seconds report_interval{10};
  };
  // Client that causes a line. pid is 0 if it is unknown or irrelevant.
  struct Cause {
    std::uint32_t uid = 0;
    std::int32_t pid = 0;
  };

  static constexpr std::size_t kProcessesMax = 256;
  static constexpr std::size_t kUidsMax = 256;
  static constexpr std::size_t kUidsNamedMax = 8;  // Limit of uids named in one report.
  // Size of the time, level and name that precede the text of each line.
  static constexpr std::int64_t kLineBytes = 64;

  explicit LogRate(std::uint32_t own_uid) : LogRate(own_uid, Limits()) {}
  LogRate(std::uint32_t own_uid, const Limits& limits) : own_uid_(own_uid), limits_(limits) {}

  // Returns whether a line with `bytes` of text may be written now. A line that may not be written
  // is counted.
  bool Allow(Cause cause, std::size_t bytes, TimePoint now);

  // Returns the time at which Report will return a message; empty if no lines were suppressed.
  std::optional<TimePoint> report_due() const;
  // If due, returns "held back 41231 lines about uid 1000 in 10 s" and resets the counts.
  std::optional<std::string> Report(TimePoint now);

 private:
  struct Bucket {
    std::int64_t left_bytes = 0;
    TimePoint filled_at{};
  };
  struct PerUser {
    Bucket bucket;
    std::uint64_t held_back = 0;  // Lines suppressed since the last report.
  };

  static void Fill(Bucket& bucket, const Bound& bound, TimePoint now);
  static bool IsFull(Bucket bucket, const Bound& bound, TimePoint now);
  Bucket* OfProcess(Cause cause, TimePoint now);
  PerUser& GetUser(std::uint32_t uid, TimePoint now);

  std::uint32_t own_uid_;
  Limits limits_;
  std::map<std::uint64_t, Bucket> processes_;  // Keyed by uid and pid.
  std::map<std::uint32_t, PerUser> uids_;
  std::optional<PerUser> other_uids_;  // Shared by all uids beyond kUidsMax.
  std::optional<Bucket> all_;
  std::optional<TimePoint> held_back_since_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_PLATFORM_LOG_RATE_H_
