// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/storms/median_outcome.h"

#include <algorithm>
#include <cstddef>
#include <string>

namespace gpushared::storms {
namespace {

using Runs = std::vector<StormOutcome>;

// `figure` takes an outcome and returns a reference to one of its figures.
template <typename Figure>
void TakeMedian(const Runs& runs, StormOutcome& into, Figure figure) {
  auto values = std::vector<std::remove_cvref_t<decltype(figure(into))>>();
  for (StormOutcome run : runs) values.push_back(figure(run));
  std::ranges::sort(values);
  figure(into) = values[(values.size() - 1) / 2];
}

void TakeMedian(const Runs& runs, StormOutcome& into, Latencies StormOutcome::*which) {
  for (const auto quantile :
       {&Latencies::p50, &Latencies::p99, &Latencies::p999, &Latencies::worst}) {
    TakeMedian(runs, into,
               [=](StormOutcome& outcome) -> double& { return outcome.*which.*quantile; });
  }
  for (const auto count : {&Latencies::count, &Latencies::unfinished, &Latencies::rejected}) {
    TakeMedian(runs, into,
               [=](StormOutcome& outcome) -> std::size_t& { return outcome.*which.*count; });
  }
}

void TakeMedian(const Runs& runs, StormOutcome& into, Holdings StormOutcome::*which) {
  for (const auto held : {&Holdings::broker_bytes, &Holdings::workers_bytes,
                          &Holdings::broker_descriptors, &Holdings::workers_descriptors}) {
    TakeMedian(runs, into,
               [=](StormOutcome& outcome) -> std::uint64_t& { return outcome.*which.*held; });
  }
}

}  // namespace

StormOutcome GetMedian(const Runs& runs) {
  StormOutcome median = runs.front();
  if (runs.size() == 1) return median;
  for (const auto which :
       {&StormOutcome::honest, &StormOutcome::honest_alone, &StormOutcome::welcome,
        &StormOutcome::load, &StormOutcome::result, &StormOutcome::welcome_alone,
        &StormOutcome::load_alone, &StormOutcome::control, &StormOutcome::control_welcome,
        &StormOutcome::control_load}) {
    TakeMedian(runs, median, which);
  }
  for (const auto which : {&StormOutcome::before, &StormOutcome::after}) {
    TakeMedian(runs, median, which);
  }
  for (const auto figure :
       {&StormOutcome::seconds, &StormOutcome::p50_ratio, &StormOutcome::p99_ratio,
        &StormOutcome::attackers_cores, &StormOutcome::control_p99_ratio,
        &StormOutcome::log_bytes_per_minute}) {
    TakeMedian(runs, median, [=](StormOutcome& outcome) -> double& { return outcome.*figure; });
  }
  for (const auto count : {&StormOutcome::new_clients_left_out, &StormOutcome::most_bytes,
                           &StormOutcome::deeds, &StormOutcome::rejected_deeds}) {
    TakeMedian(runs, median,
               [=](StormOutcome& outcome) -> std::uint64_t& { return outcome.*count; });
  }
  median.memory_kills = median.wrong_results = median.reconnects = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const StormOutcome& run = runs[i];
    median.memory_kills += run.memory_kills;
    median.wrong_results += run.wrong_results;
    median.reconnects += run.reconnects;
    median.worker_ended |= run.worker_ended;
    median.broker_ended |= run.broker_ended;
    median.was_cut_short |= run.was_cut_short;
    const std::string broken = run.Broken();
    if (broken.empty()) continue;
    median.broken_before +=
        (median.broken_before.empty() ? "run " : "; run ") + std::to_string(i + 1) + ": " + broken;
    median.log_tail = run.log_tail;
  }
  return median;
}

}  // namespace gpushared::storms
