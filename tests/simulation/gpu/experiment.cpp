// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/gpu/experiment.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <utility>

#include "samples/serve/arrivals.h"
#include "tests/simulation/gpu/baselines.h"
#include "tests/simulation/gpu/shared_gpu.h"

namespace gpushared::simulation {
namespace {

using scheduler::Duration;
using scheduler::SchedulingClass;
using scheduler::TimePoint;

double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// One experiment.
class Run {
 public:
  Run(const SetupEntry& setup, const FrontOptions& options, const Job* high,
      const std::vector<double>& arrivals, const Job* low, Duration low_alone)
      : device_(setup.make_device(options)),
        front_(setup.make_front(*device_, options)),
        high_(high),
        arrivals_(arrivals),
        low_(low),
        end_(low_alone) {
    outcome_.request_times.reserve(arrivals.size());
  }

  Outcome Go() {
    if (high_ != nullptr) front_->AddClient(SchedulingClass::kHigh, now_);
    low_client_ = high_ != nullptr ? 1 : 0;
    if (low_ != nullptr) {
      front_->AddClient(SchedulingClass::kLow, now_);
      StartStep();
    }
    front_->Act(now_);
    while (!IsOver()) {
      now_ = NextTime();
      Arrive();
      finished_.clear();
      device_->Advance(now_, finished_);
      for (const Finished& finished : finished_) OnFinished(finished);
      front_->Act(now_);
    }
    const double elapsed = Seconds(now_.time_since_epoch());
    if (low_ != nullptr) {
      outcome_.low_steps_per_s =
          static_cast<double>(low_kernels_) / static_cast<double>(low_->kernels.size()) / elapsed;
    }
    outcome_.requests_per_s = static_cast<double>(outcome_.request_times.size()) / elapsed;
    return std::move(outcome_);
  }

 private:
  struct Request {
    TimePoint arrival;
    std::uint64_t last_launch = 0;
  };

  bool IsOver() const {
    if (high_ == nullptr) return now_.time_since_epoch() >= end_;
    return outcome_.request_times.size() == arrivals_.size();
  }

  TimePoint ArrivalOf(std::size_t number) const {
    return TimePoint(Duration(static_cast<Duration::rep>(arrivals_[number] * 1e9)));
  }

  TimePoint NextTime() const {
    std::optional<TimePoint> next = device_->next_event();
    const auto consider = [&](std::optional<TimePoint> at) {
      if (at) next = next ? std::min(*next, *at) : *at;
    };
    consider(front_->wake_at());
    if (arrived_ < arrivals_.size()) consider(ArrivalOf(arrived_));
    if (!next) throw std::logic_error("nothing will ever happen, and requests are open");
    return std::max(*next, now_);
  }

  void Arrive() {
    for (; arrived_ < arrivals_.size() && ArrivalOf(arrived_) <= now_; ++arrived_) {
      Enqueue(*high_, 0);
      requests_.push_back({ArrivalOf(arrived_), last_launch_});
    }
  }

  void Enqueue(const Job& job, std::size_t client) {
    for (const Kernel& kernel : job.kernels) {
      front_->Enqueue({.id = ++last_launch_, .client = client, .kernel = kernel}, now_);
    }
    outcome_.launches += job.kernels.size();
  }

  void StartStep() {
    low_first_ = last_launch_ + 1;
    Enqueue(*low_, low_client_);
    low_last_ = last_launch_;
  }

  void OnFinished(const Finished& finished) {
    if (!front_->OnFinished(finished, now_)) return;
    if (low_ != nullptr && finished.id >= low_first_ && finished.id <= low_last_) {
      ++low_kernels_;
      if (finished.id == low_last_) StartStep();
      return;
    }
    if (finished.id != requests_.front().last_launch) return;
    outcome_.request_times.push_back(now_ - requests_.front().arrival);
    requests_.pop_front();
  }

  const std::unique_ptr<GpuDevice> device_;
  const std::unique_ptr<Front> front_;
  const Job* const high_;
  const std::vector<double>& arrivals_;
  const Job* const low_;
  const Duration end_;

  TimePoint now_{};
  std::size_t arrived_ = 0;
  std::deque<Request> requests_;  // Open, as they arrived.
  std::uint64_t last_launch_ = 0;
  std::size_t low_client_ = 0;
  std::uint64_t low_first_ = 0, low_last_ = 0;  // Of the step that runs.
  std::uint64_t low_kernels_ = 0;
  std::vector<Finished> finished_;
  Outcome outcome_;
};

Outcome RunAlone(const FrontOptions& options, const Job* high, const std::vector<double>& arrivals,
                 const Job* low) {
  return RunExperiment(*FindSetup("mps"), options, high, arrivals, low);
}

}  // namespace

Outcome RunExperiment(const SetupEntry& setup, const FrontOptions& options, const Job* high,
                      const std::vector<double>& arrivals, const Job* low, Duration low_alone) {
  return Run(setup, options, high, arrivals, low, low_alone).Go();
}

Result<std::vector<double>> MakeArrivals(const std::string& kind, std::size_t count,
                                         double mean_gap_s, std::uint32_t seed) {
  if (kind == "bursty") return samples::BurstyArrivals(count, mean_gap_s, seed);
  if (kind == "poisson") {
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> gap(1 / mean_gap_s);
    std::vector<double> arrivals(count);
    double at = 0;
    for (double& arrival : arrivals) arrival = at += gap(random);
    return arrivals;
  }
  try {
    return samples::TraceArrivals(kind, count, mean_gap_s, seed);
  } catch (const std::runtime_error& error) {
    return Status(StatusCode::kInvalidArgument, error.what());
  }
}

Duration Percentile(std::vector<Duration> times, double fraction) {
  const auto rank = static_cast<std::size_t>(fraction * static_cast<double>(times.size() - 1));
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

Result<std::vector<Row>> RunCell(const CellOptions& options,
                                 const std::vector<SetupEntry>& contestants) {
  // A request alone, from its arrival to the client knowing its end.
  const double service_s =
      Seconds(RunAlone(options.front, &options.high, {0.0}, nullptr).request_times.front());
  const Result<std::vector<double>> arrivals =
      MakeArrivals(options.arrivals, options.requests, service_s / options.load, options.seed);
  if (!arrivals.ok()) return arrivals.status();
  const Outcome high_alone = RunAlone(options.front, &options.high, *arrivals, nullptr);
  const Outcome low_alone = RunAlone(options.front, nullptr, {}, &options.low);
  const double p99_alone_s = Seconds(Percentile(high_alone.request_times, 0.99));

  std::vector<Row> rows;
  for (const SetupEntry& contestant : contestants) {
    const Outcome shared =
        RunExperiment(contestant, options.front, &options.high, *arrivals, &options.low);
    std::vector<Duration> added(shared.request_times);
    for (std::size_t i = 0; i < added.size(); ++i) added[i] -= high_alone.request_times[i];
    const double low_throughput = shared.low_steps_per_s / low_alone.low_steps_per_s;
    rows.push_back(
        {.policy = std::string(contestant.name),
         .high = options.high.name,
         .low = options.low.name,
         .arrivals = options.arrivals,
         .load = options.load,
         .p99_alone_ms = 1e3 * p99_alone_s,
         .p99_inflation = Seconds(Percentile(shared.request_times, 0.99)) / p99_alone_s - 1,
         .p99_added_ms = 1e3 * Seconds(Percentile(added, 0.99)),
         .gap_used = low_throughput / (1 - options.load),
         .high_throughput = shared.requests_per_s / high_alone.requests_per_s,
         .low_throughput = low_throughput,
         .launches = shared.launches});
  }
  return rows;
}

}  // namespace gpushared::simulation
