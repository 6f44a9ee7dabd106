// SPDX-License-Identifier: Apache-2.0
// Mixes of jobs that `gpusharedctl advise` is asked about, and that then really run.

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

// A client process: requests that arrive, a loop of requests, or work without end.
struct MixClient {
  enum class Pace : std::uint8_t { kOpen, kLoop, kEndless };

  std::string name;
  SchedulingClass scheduling_class = SchedulingClass::kNormal;
  std::uint32_t weight = 1;
  std::optional<std::chrono::milliseconds> target;
  Pace pace = Pace::kEndless;
  // kOpen: of simulation::MakeArrivals, with this mean distance. kLoop: the pause after a request.
  std::string arrivals = "poisson";
  double every_ms = 0;
  // Of a request, or of a step without end. Each takes as long.
  std::size_t kernels = 1;
  double kernel_ms = 1;

  bool has_requests() const { return pace != Pace::kEndless; }
};

struct AdviseMix {
  std::string what;  // For the table.
  std::string policy;
  std::vector<MixClient> residents;
  MixClient job;
};

// Ten of them: loads, lengths, classes and policies differ, and half of them break a promise. Where
// kernels take 3 % longer, few p99s change by more than 15 %: in a mix that is nearer to
// overload it says more about a machine's noise than about the mix.
std::vector<AdviseMix> AdviseMixes();

// One run, as it went.
struct MixOutcome {
  // By client, the job last: from arrival to the client knowing its end. Empty without requests.
  std::vector<std::vector<std::chrono::nanoseconds>> latencies;
  double worker_waited = 0;  // See ReplayOutcome.
  std::string profile;       // The file of `gpusharedctl profile`, where it was asked.
};

struct MixRun {
  std::string policy;
  std::vector<MixClient> clients;
  double seconds = 0;
  std::uint32_t seed = 1;  // Of the arrivals; client i has those of seed + i.
  // Asks for a profile of the whole device (empty: nobody asks; "--node") or of the one client.
  std::string profile_of;
  std::uint32_t first_client = 0;  // The number of the first client among all of the mix.
};

// Starts a server with one executor thread, and all clients as processes of their own.
MixOutcome RunMix(const MixRun& run);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_ADVISE_MIXES_H_
