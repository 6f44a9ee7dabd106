// SPDX-License-Identifier: Apache-2.0
// Arbitrary mixes of clients, read from a file, with a report per client.

#ifndef GPUSHARED_SCHEDULER_SIM_MIX_H_
#define GPUSHARED_SCHEDULER_SIM_MIX_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "scheduler/sim/run.h"

namespace gpushared::simulation {

// Reads a client list of the DISB benchmark (JSON; SJTU-IPADS/disb): `time` in seconds and `tasks`.
// Each task has:
//   * `id`.
//   * `client` with `model_name`.
//   * `load` with `type`, `frequency` in 1/s, and `priority`. Types are continuous, periodic,
//     uniform (an alias of periodic), poisson, bursty, and trace, which names its `file`. This
//     project also accepts `class` (high, normal, low), `weight` and `latency_target_ms` here.
//
// A task with priority 0 is high class and every other task low class, unless `class` says
// otherwise. For the low class, a continuous load is endless work without requests. For the others,
// it is a closed loop of requests.
//
// `profiles` maps each model to its kernel profile. Errors name the file and the task.
Result<Scenario> ReadMix(const std::string& path, const std::map<std::string, Job>& profiles,
                         std::uint32_t seed);

struct ClientRow {
  std::string policy, client;
  std::string scheduling_class;
  std::size_t requests = 0;  // Ended requests; 0 for clients without requests.
  double p50_ms = 0, p99_ms = 0, p99_alone_ms = 0;
  double target_met = 0;  // Fraction of the requests; 1 without a latency target.
  double throughput = 0;  // Jobs/s ÷ jobs/s of the same client alone, natively.
};

std::vector<ClientRow> RunMix(const Scenario& scenario, const FrontOptions& options,
                              const std::vector<SetupEntry>& contestants);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_MIX_H_
