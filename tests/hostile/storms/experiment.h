// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_HOSTILE_STORMS_EXPERIMENT_H_
#define GPUSHARED_TESTS_HOSTILE_STORMS_EXPERIMENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/hostile/storms/board.h"
#include "tests/hostile/storms/server_under_test.h"
#include "tests/hostile/storms/storms.h"

namespace gpushared::storms {

// Goals for a server under any storm on two cores.
inline constexpr double kHonestRatioMax = 2;
inline constexpr double kWelcomeP99MaxNs = 50e6, kLoadP99MaxNs = 200e6;
inline constexpr double kLogBytesPerMinuteMax = 1e6;
// Maximum increase of open descriptors over a storm, beyond normal fluctuation.
inline constexpr std::uint64_t kDescriptorsLeftMax = 16;

inline constexpr std::chrono::seconds kDeedsPatience{120};

// Memory of the server's cpu device. Small, because most of the server's memory limit must remain
// for the server itself.
inline constexpr char kDeviceMemory[] = "512MiB";

struct StormPlan {
  std::string server;                  // Path of the program.
  std::vector<std::string> arguments;  // Additional arguments of the server.
  // Duration of the storm, of the control, and of the baseline, of which half comes before the
  // storm and half after it.
  double seconds = 10;
  // If false, times are not compared with goals, so there is no control and only a short baseline.
  bool compares_times = true;
  // The storm continues beyond its duration, by at most kDeedsPatience, until it has this many
  // deeds.
  std::uint64_t deeds_least = 0;
  // 1.5 GiB for all processes of the server.
  std::uint64_t memory_limit_bytes = std::uint64_t{3} << 29;
  // The storm ends when the log has this size.
  std::uint64_t log_limit_bytes = std::uint64_t{256} << 20;
  // Directory for one file per storm with all samples and their times, which can be compared with a
  // trace of the machine; empty for none.
  std::string samples_directory;
};

// From `begin_ns` (inclusive) to `end_ns` (exclusive) on the steady clock.
struct Span {
  std::int64_t begin_ns = 0, end_ns = 0;
};

// Latencies of operations that began in a span, in ns; 0 if there are none. Unfinished operations
// count with their age.
struct Latencies {
  double p50 = 0, p99 = 0, p999 = 0, worst = 0;
  std::size_t count = 0, unfinished = 0, rejected = 0;
};
Latencies GetLatencies(std::vector<double> took_ns);

struct StormOutcome {
  std::string name, what;
  double seconds = 0;
  Latencies honest, honest_alone;  // During the storm; in the baseline.
  // Median of the quantiles of the storm's slices, divided by the median for the baseline's slices.
  double p50_ratio = 0, p99_ratio = 0;
  Latencies welcome, load, result, welcome_alone, load_alone;
  // Average number of cores that the attackers used.
  double attackers_cores = 0;
  // p99_ratio of the control: the effect of the attackers' use of cores alone. 0 without a control.
  double control_p99_ratio = 0;
  Latencies control, control_welcome, control_load;
  std::uint64_t new_clients_left_out = 0;
  double log_bytes_per_minute = 0;  // See LogMinute.
  Holdings before, after;
  // Maximum memory of all processes of the server together during the storm.
  std::uint64_t most_bytes = 0;
  std::uint64_t memory_kills = 0;
  // The reason why the server's memory could not be limited; empty if it was.
  std::string not_caged;
  std::uint64_t deeds = 0, rejected_deeds = 0, wrong_results = 0, reconnects = 0;
  bool worker_ended = false, broker_ended = false, was_cut_short = false;
  std::string honest_words, new_client_words, attacker_words, log_tail;
  // Only in the median of several runs: the results of Broken for each run.
  std::string broken_before;

  // Returns the broken ones of the conditions that must hold on any machine: no client starved, no
  // process of the server dead, no wrong result, no leaked descriptor. Empty if all hold.
  std::string Broken() const;
  // Missed goals for times and log bytes. Empty if none was missed.
  std::string Missed() const;
};

// Starts a server, the honest client and the new clients, and measures them alone, in the storm and
// alone again. Throws std::runtime_error if the server or the honest client does not start.
StormOutcome RunStorm(const Storm& storm, const StormPlan& plan);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_EXPERIMENT_H_
