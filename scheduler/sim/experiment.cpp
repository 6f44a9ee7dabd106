// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/experiment.h"

#include <algorithm>
#include <random>
#include <utility>

#include "scheduler/sim/arrivals.h"

namespace gpushared::simulation {
namespace {

using scheduler::Duration;
using scheduler::SchedulingClass;

constexpr Duration kLowAlone = std::chrono::seconds(20);
constexpr double kTargetAboveAlone = 1.05;

Outcome RunNative(const FrontOptions& options, const Scenario& scenario) {
  return RunScenario(*FindSetup("mps"), options, scenario);
}

// Returns pauses with which the client is busy for `load` of the time if requests take `service_s`.
std::vector<double> ClosedPauses(std::size_t count, double service_s, double load,
                                 std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> pause(1 / (service_s * (1 / load - 1)));
  std::vector<double> pauses(count);
  std::generate(pauses.begin(), pauses.end(), [&] { return pause(random); });
  return pauses;
}

Result<Scenario> HighAlone(const CellOptions& options) {
  const double service_s = Seconds(ServiceTime(options.front, options.high));
  const double load = options.load / static_cast<double>(options.high_clients);
  const std::size_t requests = std::max<std::size_t>(options.requests / options.high_clients, 1);
  Scenario scenario;
  for (std::size_t i = 0; i < options.high_clients; ++i) {
    const auto seed = static_cast<std::uint32_t>(options.seed + i * 1'000'003);
    ClientPlan plan{
        .name = options.high.name,
        .spec = {.scheduling_class = SchedulingClass::kHigh},
        .job = options.high,
        .pace = options.one_by_one ? ClientPlan::Pace::kOneByOne : ClientPlan::Pace::kOpen,
        .times_s = {},
        .awake = {}};
    if (options.arrivals == "closed") {
      plan.pace = ClientPlan::Pace::kClosed;
      plan.times_s = ClosedPauses(requests, service_s, load, seed);
    } else {
      Result<std::vector<double>> arrivals =
          MakeArrivals(options.arrivals, requests, service_s / load, seed);
      if (!arrivals.ok()) return arrivals.status();
      plan.times_s = std::move(*arrivals);
    }
    scenario.clients.push_back(std::move(plan));
  }
  return scenario;
}

// Totals over all clients.
struct Totals {
  std::vector<Duration> times;
  double jobs_per_s = 0;
};

Totals Sum(const Outcome& outcome, std::size_t first, std::size_t last) {
  Totals totals;
  for (std::size_t i = first; i < last; ++i) {
    const ClientOutcome& client = outcome.clients[i];
    totals.times.insert(totals.times.end(), client.request_times.begin(),
                        client.request_times.end());
    totals.jobs_per_s += client.jobs / outcome.seconds;
  }
  return totals;
}

}  // namespace

Duration Percentile(std::vector<Duration> times, double fraction) {
  const auto rank = static_cast<std::size_t>(fraction * static_cast<double>(times.size() - 1));
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

Duration ServiceTime(const FrontOptions& options, const Job& job) {
  Scenario scenario;
  scenario.clients.push_back({.name = job.name,
                              .spec = {},
                              .job = job,
                              .pace = ClientPlan::Pace::kOpen,
                              .times_s = {0.0},
                              .awake = {}});
  return RunNative(options, scenario).clients.front().request_times.front();
}

Result<std::vector<Row>> RunCell(const CellOptions& options,
                                 const std::vector<SetupEntry>& contestants) {
  Result<Scenario> scenario = HighAlone(options);
  if (!scenario.ok()) return scenario.status();
  const Outcome alone = RunNative(options.front, *scenario);
  const Totals high_alone = Sum(alone, 0, options.high_clients);
  const double p99_alone_s = Seconds(Percentile(high_alone.times, 0.99));
  const auto target = options.target.value_or(
      Duration(static_cast<Duration::rep>(1e9 * p99_alone_s * kTargetAboveAlone)));

  const ClientPlan low{.name = options.low.name,
                       .spec = {.scheduling_class = SchedulingClass::kLow},
                       .job = options.low,
                       .times_s = {},
                       .awake = {}};
  const Outcome low_alone = RunNative(options.front, {.clients = {low}, .length = kLowAlone});
  const double low_alone_per_s = low_alone.clients.front().jobs / low_alone.seconds;

  for (ClientPlan& plan : scenario->clients) plan.spec.latency_target = target;
  scenario->clients.resize(options.high_clients + options.low_clients, low);
  std::vector<Row> rows;
  for (const SetupEntry& contestant : contestants) {
    const Outcome shared = RunScenario(contestant, options.front, *scenario);
    const Totals high = Sum(shared, 0, options.high_clients);
    std::vector<Duration> added(high.times);
    for (std::size_t i = 0; i < added.size(); ++i) added[i] -= high_alone.times[i];
    const auto kept = std::count_if(high.times.begin(), high.times.end(),
                                    [&](Duration time) { return time <= target; });
    const double low_throughput =
        Sum(shared, options.high_clients, shared.clients.size()).jobs_per_s / low_alone_per_s;
    rows.push_back(
        {.policy = std::string(contestant.name),
         .high = options.high.name,
         .low = options.low.name,
         .arrivals = options.arrivals,
         .load = options.load,
         .p99_alone_ms = 1e3 * p99_alone_s,
         .p99_inflation = Seconds(Percentile(high.times, 0.99)) / p99_alone_s - 1,
         .p99_added_ms = 1e3 * Seconds(Percentile(added, 0.99)),
         .latency_target_ms = 1e3 * Seconds(target),
         .target_met = static_cast<double>(kept) / static_cast<double>(high.times.size()),
         .gap_used = low_throughput / (1 - options.load),
         .high_throughput = high.jobs_per_s / high_alone.jobs_per_s,
         .low_throughput = low_throughput,
         .launches = shared.launches,
         .decisions = shared.decisions});
  }
  if (!rows.empty()) rows.front().launches += alone.launches + low_alone.launches;
  return rows;
}

}  // namespace gpushared::simulation
