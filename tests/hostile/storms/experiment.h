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

// Goals for a server under any storm, on two cores.
inline constexpr double kHonestRatioMax = 2;
inline constexpr double kWelcomeP99MaxNs = 50e6, kLoadP99MaxNs = 200e6;
inline constexpr double kLogBytesPerMinuteMax = 1e6;
// More descriptors after a storm than before, beyond what comes and goes.
inline constexpr std::uint64_t kDescriptorsLeftMax = 16;

inline constexpr std::chrono::seconds kDeedsPatience{120};

// Memory that clients may hold, device's and staging: most of what a server needs must be left to
// it within the limit of all its memory.
inline constexpr char kDeviceMemory[] = "512MiB";

struct StormPlan {
  std::string server;                  // Path of the program.
  std::vector<std::string> arguments;  // Further ones, for the server.
  // Of the storm. The baseline has as much, half before, half after; so has the control.
  double seconds = 10;
  // Else nobody judges its times: there is no control, and the baseline is short.
  bool compares_times = true;
  std::uint64_t deeds_least = 0;  // A storm lasts until then, too, at most kDeedsPatience.
  std::uint64_t memory_limit_bytes = std::uint64_t{3} << 29;  // 1.5 GiB, for all its processes.
  std::uint64_t log_limit_bytes = std::uint64_t{256} << 20;   // The storm ends there.
  // Empty, or a directory for a file of each storm: all samples with their times, to be laid beside
  // a trace of the machine.
  std::string samples_directory;
};

// From `begin_ns` until before `end_ns`, of the steady clock.
struct Span {
  std::int64_t begin_ns = 0, end_ns = 0;
};

// Of what began in a span. What is not over counts with its age. In ns; 0 without samples.
struct Latencies {
  double p50 = 0, p99 = 0, p999 = 0, worst = 0;
  std::size_t count = 0, unfinished = 0, rejected = 0;
};
Latencies GetLatencies(std::vector<double> took_ns);

struct StormOutcome {
  std::string name, what;
  double seconds = 0;
  Latencies honest, honest_alone;  // Of the whole storm; of the baseline.
  // Median over slices of the storm of a quantile of each, by that of the baseline's slices.
  double p50_ratio = 0, p99_ratio = 0;
  Latencies welcome, load, result, welcome_alone, load_alone;
  // Cores that the attackers took for themselves.
  double attackers_cores = 0;
  // What they do to others by that alone: of the control. Nothing was measured where the ratio is
  // 0.
  double control_p99_ratio = 0;
  Latencies control, control_welcome, control_load;
  std::uint64_t new_clients_left_out = 0;
  double log_bytes_per_minute = 0;  // See LogMinute.
  Holdings before, after;
  std::uint64_t most_bytes = 0;  // All processes of the server together, in the storm.
  std::uint64_t memory_kills = 0;
  std::string not_caged;  // Why no limit on the server's memory could be set; empty: it was.
  std::uint64_t deeds = 0, rejected_deeds = 0, wrong_results = 0, reconnects = 0;
  bool worker_ended = false, broker_ended = false, was_cut_short = false;
  std::string honest_words, new_client_words, attacker_words, log_tail;
  std::string broken_before;  // Of several runs' median: what Broken said of each.

  // What must hold whatever the machine: nobody shut out, no process of the server gone, no
  // wrong result, no descriptor left. Empty when it holds.
  std::string Broken() const;
  // Goals in time and log bytes that were missed. Empty when none was.
  std::string Missed() const;
};

// Starts a server, the honest client and the new clients, measures them alone, in the storm and
// alone again. Throws std::runtime_error when the server or the honest client does not start.
StormOutcome RunStorm(const Storm& storm, const StormPlan& plan);

}  // namespace gpushared::storms

#endif  // GPUSHARED_TESTS_HOSTILE_STORMS_EXPERIMENT_H_
