// SPDX-License-Identifier: Apache-2.0
// One high-class client that answers requests, one low-class client that trains without end, a GPU
// and what stands before it.

#ifndef GPUSHARED_TESTS_SIMULATION_GPU_EXPERIMENT_H_
#define GPUSHARED_TESTS_SIMULATION_GPU_EXPERIMENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "tests/simulation/gpu/front.h"
#include "tests/simulation/gpu/job.h"

namespace gpushared::simulation {

struct Outcome {
  // From its arrival to the client knowing its end, per request in order of arrival.
  std::vector<scheduler::Duration> request_times;
  // Steps of the low client per second of simulated time, whole and broken.
  double low_steps_per_s = 0;
  double requests_per_s = 0;
  std::uint64_t launches = 0;
};

// `arrivals`: seconds from the start, ascending; empty runs the low client alone, for
// `low_alone`. Without `low` the high client is alone. Ends with the last request.
Outcome RunExperiment(const SetupEntry& setup, const FrontOptions& options, const Job* high,
                      const std::vector<double>& arrivals, const Job* low,
                      scheduler::Duration low_alone = std::chrono::seconds(20));

// "poisson", "bursty" (gamma-distributed distances, coefficient of variation 1.5), or the path of
// a trace whose distances are scaled: seconds from the start, `count` of them.
Result<std::vector<double>> MakeArrivals(const std::string& kind, std::size_t count,
                                         double mean_gap_s, std::uint32_t seed);

// The smallest value that `fraction` of all do not exceed. `times` is not empty.
scheduler::Duration Percentile(std::vector<scheduler::Duration> times, double fraction);

// One row of the comparison.
struct Row {
  std::string policy, high, low, arrivals;
  double load = 0;           // Asked: arrival rate × time of one request alone.
  double p99_alone_ms = 0;   // Natively, with the same arrivals.
  double p99_inflation = 0;  // p99 shared ÷ p99 alone − 1.
  double p99_added_ms = 0;   // Of shared − alone, request by request.
  double gap_used = 0;       // Low steps/s ÷ alone ÷ (1 − load).
  double high_throughput = 0, low_throughput = 0;  // Relative to alone.
  std::uint64_t launches = 0;
};

struct CellOptions {
  Job high, low;
  double load = 0.5;
  std::string arrivals = "poisson";
  std::size_t requests = 10'000;
  std::uint32_t seed = 1;
  FrontOptions front;
};

// One pair at one load under each of `contestants`. Deterministic by seed.
Result<std::vector<Row>> RunCell(const CellOptions& options,
                                 const std::vector<SetupEntry>& contestants);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_TESTS_SIMULATION_GPU_EXPERIMENT_H_
