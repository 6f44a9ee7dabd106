// SPDX-License-Identifier: Apache-2.0
// Mixes of jobs that `gpusharedctl advise` evaluates, and that are then really run.

#ifndef GPUSHARED_TESTS_BENCH_ADVISE_MIXES_H_
#define GPUSHARED_TESTS_BENCH_ADVISE_MIXES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/client.h"

namespace gpushared::testing {

// A client process: requests that arrive, a loop of requests, or endless work.
struct MixClient {
  enum class Pace : std::uint8_t { kOpen, kLoop, kEndless };

  std::string name;
  SchedulingClass scheduling_class = SchedulingClass::kNormal;
  std::uint32_t weight = 1;
  std::optional<std::chrono::milliseconds> target;
  Pace pace = Pace::kEndless;
  // kOpen: the arrivals of simulation::MakeArrivals with this mean interval. kLoop: the pause after
  // a request.
  std::string arrivals = "poisson";
  double every_ms = 0;
  // Number of kernels of a request, or of an endless client's step, each of which takes kernel_ms.
  std::size_t kernels = 1;
  double kernel_ms = 1;

  bool has_requests() const { return pace != Pace::kEndless; }
};

struct AdviseMix {
  std::string what;  // Description in the printed table.
  std::string policy;
  std::vector<MixClient> residents;
  MixClient job;
};

// Ten mixes that differ in load, length, class and policy, and half of which miss a latency target.
// Few of their p99s change by more than 15 % if kernels take 3 % longer, because in a mix closer to
// overload the p99 reflects the machine's noise more than the mix.
std::vector<AdviseMix> AdviseMixes();

// The result of one run.
struct MixOutcome {
  // For each client, the job last: times from the arrival of a request until the client learns of
  // its end. Empty for a client without requests.
  std::vector<std::vector<std::chrono::nanoseconds>> latencies;
  double worker_waited = 0;  // See ReplayOutcome.
  std::string profile;       // The file of `gpusharedctl profile`, if requested.
};

struct MixRun {
  std::string policy;
  std::vector<MixClient> clients;
  double seconds = 0;
  std::uint32_t seed = 1;  // Seed of the arrivals; client i uses seed + i.
  // The profile to record during the run: "--node" for the whole device, or a client's name; empty
  // for none.
  std::string profile_of;
  std::uint32_t first_client = 0;  // The number of the first client among all clients of the mix.
};

// Starts a server with one executor thread, and each client as a separate process.
MixOutcome RunMix(const MixRun& run);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_ADVISE_MIXES_H_
