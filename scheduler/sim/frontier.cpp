// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/frontier.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace gpushared::simulation {
namespace {

constexpr double kTailFraction = 0.01;

// All times are in microseconds.
double Us(scheduler::Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// A way to run a low kernel: its blocks in equal waves.
struct Form {
  std::uint32_t at_once = 0;
  double waves = 0;
  double wave_us = 0;

  double time_us() const { return waves * wave_us; }
};

struct LowKernel {
  std::vector<Form> forms;  // From the fastest one to a block at a time.
  std::size_t chosen = 0;
};

class Calculation {
 public:
  Calculation(const Job& high, const Job& low, const FrontierOptions& options)
      : high_(high), options_(options), multiprocessors_(options.front.multiprocessors) {
    alone_us_ = FinishUs(0, 0);
    for (const Kernel& kernel : low.kernels) AddLow(kernel);
    for (const LowKernel& kernel : low_) fastest_us_ += kernel.forms.front().time_us();
  }

  double alone_us() const { return alone_us_; }

  // Returns the part of the gap that is used if no request may be delayed and all arrivals are
  // known. At the end of a pause, half of a wave is lost on average, because no further wave fits.
  // Kernels are weighted by their times.
  double GapUsedIfArrivalsKnown() const {
    double lost_us = 0;
    for (const LowKernel& kernel : low_) {
      const Form& form = kernel.forms.front();
      lost_us += form.time_us() * form.wave_us / 2 / fastest_us_;
    }
    const double pause_us = alone_us_ / options_.load;
    return std::max(0.0, 1 - lost_us / pause_us);
  }

  // Returns the fraction of requests that are delayed by more than the bound at full speed.
  double TailAtFullSpeed(double bound_us) {
    SetBound(bound_us);
    double exposed_us = 0;
    for (const LowKernel& kernel : low_) exposed_us += ExposedUs(kernel.forms.front());
    return Tail(exposed_us, fastest_us_);
  }

  // Returns the relative speed of the low class at which the bound holds for all but the tail.
  std::optional<double> SpeedFor(double bound_us) {
    SetBound(bound_us);
    double exposed_us = 0, total_us = fastest_us_;
    for (LowKernel& kernel : low_) {
      kernel.chosen = 0;
      exposed_us += ExposedUs(kernel.forms.front());
    }
    while (Tail(exposed_us, total_us) > kTailFraction) {
      LowKernel* best = nullptr;
      std::size_t best_form = 0;
      double best_gain = 0;
      for (LowKernel& kernel : low_) {
        const Form& now = kernel.forms[kernel.chosen];
        const double exposed_now_us = ExposedUs(now);
        if (exposed_now_us <= 0) continue;
        for (std::size_t form = kernel.chosen + 1; form < kernel.forms.size(); ++form) {
          const Form& other = kernel.forms[form];
          const double gain =
              (exposed_now_us - ExposedUs(other)) / (other.time_us() - now.time_us());
          if (gain <= best_gain) continue;
          best = &kernel;
          best_form = form;
          best_gain = gain;
        }
      }
      if (best == nullptr) return {};
      exposed_us -= ExposedUs(best->forms[best->chosen]);
      total_us -= best->forms[best->chosen].time_us();
      best->chosen = best_form;
      exposed_us += ExposedUs(best->forms[best_form]);
      total_us += best->forms[best_form].time_us();
    }
    return fastest_us_ / total_us;
  }

 private:
  void AddLow(const Kernel& kernel) {
    const scheduler::Duration solo = SoloTime(kernel, multiprocessors_);
    const std::uint32_t fit = AtOnceMax(kernel);
    LowKernel low;
    if (solo < options_.front.stop_min || kernel.is_nonpreemptible) {
      low.forms.push_back({std::min(kernel.blocks, fit), 1, Us(solo)});
    } else {
      std::uint32_t last = 0;
      for (std::uint32_t most = std::min(kernel.blocks, fit); most > 0; --most) {
        const std::uint32_t waves = (kernel.blocks + most - 1) / most;
        if (waves == last) continue;
        last = waves;
        low.forms.push_back({(kernel.blocks + waves - 1) / waves, static_cast<double>(waves),
                             Us(kernel.block_time + options_.front.costs.claim)});
      }
    }
    low_.push_back(std::move(low));
  }

  std::uint32_t AtOnceMax(const Kernel& kernel) const {
    return multiprocessors_ * kernel.blocks_per_multiprocessor;
  }

  // Probability that a request meets exposed work: requests that find the previous one open start
  // right after it, when no low work runs.
  double Tail(double exposed_us, double total_us) const {
    return (1 - options_.load) * exposed_us / total_us;
  }

  // Total time, over all waves, in which an arrival would be delayed by more than the bound.
  double ExposedUs(const Form& form) const {
    return form.waves * std::max(0.0, form.wave_us - harmless_us_.at(form.at_once));
  }

  void SetBound(double bound_us) {
    harmless_us_.assign(std::size_t{multiprocessors_} * kBlocksPerMultiprocessorMax + 1, 0);
    for (std::uint32_t part = 0; part <= multiprocessors_; ++part) {
      double low_us = 0, high_us = 1e6;
      if (DelayUs(part, high_us) <= bound_us) low_us = high_us;
      while (high_us - low_us > 1) {
        const double middle_us = (low_us + high_us) / 2;
        (DelayUs(part, middle_us) <= bound_us ? low_us : high_us) = middle_us;
      }
      harmless_us_[part] = low_us;
    }
    // Blocks that share a multiprocessor are counted as if they occupied all of it.
    for (std::size_t blocks = multiprocessors_ + 1; blocks < harmless_us_.size(); ++blocks)
      harmless_us_[blocks] = harmless_us_[multiprocessors_];
  }

  // Returns the delay of a request that finds low blocks on `part` multiprocessors. The last of the
  // blocks ends `left_us` after the arrival.
  double DelayUs(std::uint32_t part, double left_us) const {
    return FinishUs(part, left_us + Us(options_.stop)) - alone_us_;
  }

  // Returns when a request ends that begins at 0, if `part` multiprocessors are occupied until
  // `until_us`.
  double FinishUs(std::uint32_t part, double until_us) const {
    const double share = static_cast<double>(part) / multiprocessors_;
    const double contention = options_.front.costs.contention * share * share;
    double now_us = 0;
    for (const Kernel& kernel : high_.kernels) {
      double end_us = EndUs(kernel, part, now_us, std::max(now_us, until_us));
      const bool contends =
          kernel.kind == Kernel::Kind::kCompute || kernel.kind == Kernel::Kind::kMemory;
      if (contends && now_us < until_us && part < multiprocessors_) {
        const double beside_us = std::min(until_us - now_us, (end_us - now_us) * (1 + contention));
        end_us += beside_us * contention / (1 + contention);
      }
      now_us = end_us + Us(options_.front.costs.kernel_gap);
    }
    return now_us;
  }

  // Returns when equal blocks on two groups of multiprocessors have ended. The groups become free
  // at different times.
  double EndUs(const Kernel& kernel, std::uint32_t part, double now_us, double free_us) const {
    const double block_us = Us(kernel.block_time);
    const double per = kernel.blocks_per_multiprocessor;
    const double early = (multiprocessors_ - part) * per, late = part * per;
    const auto done_by = [&](double end_us) {
      constexpr double kRounding = 1e-6;
      return early * std::floor((end_us - now_us) / block_us + kRounding) +
             late * std::floor(std::max(0.0, end_us - free_us) / block_us + kRounding);
    };
    const auto first_on_grid = [&](double start_us) {
      double end_us = start_us + block_us;
      while (done_by(end_us) < kernel.blocks) end_us += block_us;
      return end_us;
    };
    double end_us = first_on_grid(free_us);
    if (early > 0) end_us = std::min(end_us, first_on_grid(now_us));
    return end_us;
  }

  const Job& high_;
  const FrontierOptions& options_;
  const std::uint32_t multiprocessors_;
  std::vector<LowKernel> low_;
  double alone_us_ = 0, fastest_us_ = 0;
  // By number of occupied multiprocessors: how much longer they may be occupied without delaying a
  // request by more than the bound.
  std::vector<double> harmless_us_;
};

}  // namespace

Frontier ComputeFrontier(const Job& high, const Job& low, std::span<const double> inflations,
                         const FrontierOptions& options) {
  Calculation calculation(high, low, options);
  const double gap = 1 - options.load;
  Frontier frontier{.low_if_arrivals_known = gap * calculation.GapUsedIfArrivalsKnown()};
  double least = 0, most = 10;
  while (most - least > 1e-4) {
    const double middle = (least + most) / 2;
    const double tail = calculation.TailAtFullSpeed(middle * calculation.alone_us());
    (tail <= kTailFraction ? most : least) = middle;
  }
  frontier.inflation_at_full_speed = most;
  for (const double inflation : inflations) {
    const std::optional<double> speed = calculation.SpeedFor(inflation * calculation.alone_us());
    frontier.low.push_back(speed ? std::optional(gap * *speed) : std::nullopt);
  }
  return frontier;
}

}  // namespace gpushared::simulation
