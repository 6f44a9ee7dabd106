// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/shares.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace gpushared::simulation {
namespace {

using scheduler::Duration;

constexpr double kSlices = 100;  // Default length of a run, in slices of the smallest share.
constexpr Duration kWindow = std::chrono::seconds(1);
constexpr double kKernelLeastNs = 50e3, kKernelMostNs = 2e6;
constexpr std::uint32_t kBlocks = 800;  // Blocks of a kernel: ten waves on a V100.

double Total(const std::vector<Duration>& times) {
  return static_cast<double>(std::accumulate(times.begin(), times.end(), Duration()).count());
}

}  // namespace

ShareReport ReportShares(const std::vector<ShareSample>& samples) {
  ShareReport report;
  if (samples.empty()) return report;
  const std::size_t clients = samples.front().held.size();
  ShareSample before{std::vector<Duration>(clients), std::vector<Duration>(clients)};
  for (const ShareSample& sample : samples) {
    const double held = Total(sample.held) - Total(before.held);
    const double due = Total(sample.due) - Total(before.due);
    if (held <= 0 || due <= 0) continue;
    for (std::size_t i = 0; i < clients; ++i) {
      const double part = static_cast<double>((sample.held[i] - before.held[i]).count()) / held;
      const double fair = static_cast<double>((sample.due[i] - before.due[i]).count()) / due;
      report.error_max = std::max(report.error_max, std::abs(part - fair));
    }
    before = sample;
  }

  const ShareSample& last = samples.back();
  const double scale = Total(last.due) / Total(last.held);
  double sum = 0, squares = 0, counted = 0;
  report.least_ratio = std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < clients; ++i) {
    if (last.due[i] == Duration()) continue;
    const double ratio = scale * static_cast<double>(last.held[i].count()) /
                         static_cast<double>(last.due[i].count());
    sum += ratio;
    squares += ratio * ratio;
    ++counted;
    report.least_ratio = std::min(report.least_ratio, ratio);
    report.greatest_ratio = std::max(report.greatest_ratio, ratio);
  }
  report.jain = squares > 0 ? sum * sum / (counted * squares) : 0;
  return report;
}

double CapErrorMax(const std::vector<ShareSample>& samples,
                   const std::vector<std::uint32_t>& max_shares) {
  double error_max = 0;
  for (std::size_t i = 0; i < max_shares.size(); ++i) {
    if (max_shares[i] == kSharePerMilleMax) continue;
    const double cap = static_cast<double>(max_shares[i]) / kSharePerMilleMax;
    Duration before{};
    for (const ShareSample& sample : samples) {
      const std::chrono::duration<double> held = sample.held[i] - before;
      error_max = std::max(error_max, std::abs(held / kWindow - cap));
      before = sample.held[i];
    }
  }
  return error_max;
}

Scenario MakeShareScenario(const ShareOptions& options, Duration slice) {
  std::mt19937_64 random(options.seed);
  std::uniform_real_distribution<double> log_ns(std::log(kKernelLeastNs), std::log(kKernelMostNs));
  const double weights = std::accumulate(options.weights.begin(), options.weights.end(), 0.0);
  const double smallest = *std::min_element(options.weights.begin(), options.weights.end());
  Scenario scenario{.clients = {}, .length = options.length, .sample_every = kWindow};
  if (options.length == Duration()) {
    const double length_ns = kSlices * static_cast<double>(slice.count()) * weights / smallest;
    scenario.length =
        std::max<Duration>(Duration(static_cast<Duration::rep>(length_ns)), 2 * kWindow);
  }
  // The run ends just after a whole window, because a truncated window would not be sampled.
  scenario.length = kWindow * (scenario.length / kWindow + 1) + Duration(1);
  const double length_s = std::chrono::duration<double>(scenario.length).count();
  for (std::size_t i = 0; i < options.weights.size(); ++i) {
    const auto block_time = Duration(static_cast<Duration::rep>(std::exp(log_ns(random)) / 10));
    ClientPlan plan{
        .name = "client " + std::to_string(i + 1),
        .spec = {.scheduling_class = options.scheduling_class, .weight = options.weights[i]},
        .job = {"step", {Kernel{kBlocks, block_time}}},
        .times_s = {},
        .depth = options.depth,
        .awake = {}};
    if (i < options.max_shares.size()) plan.max_share = options.max_shares[i];
    if (options.sleep_s > 0 && i % 2 == 1) {
      for (double from = options.sleep_s; from < length_s; from += 2 * options.sleep_s)
        plan.awake.push_back({from, from + options.sleep_s});
    }
    scenario.clients.push_back(std::move(plan));
  }
  return scenario;
}

}  // namespace gpushared::simulation
