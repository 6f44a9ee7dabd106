// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/tgs_front.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gpushared::simulation {
namespace {

constexpr scheduler::Duration kPeriod = std::chrono::milliseconds(5);
constexpr double kBoundFirst = 20'000;
constexpr double kBoundStep = 1'000;
constexpr double kUnbounded = 1e12;
// A period in which the high class launches fewer blocks than this counts as idle.
constexpr double kIdleBlocks = 1'000;
constexpr int kFarPeriodsMax = 20;

}  // namespace

void TgsFront::AddClient(const scheduler::ClientSpec& spec, TimePoint now) {
  Client client;
  client.is_high = spec.scheduling_class == scheduler::SchedulingClass::kHigh;
  clients_.push_back(std::move(client));
  next_report_ = now + kPeriod;
  bound_ = kBoundFirst;
}

void TgsFront::Enqueue(const Launch& launch, TimePoint) {
  clients_[launch.client].waiting.push_back(launch);
}

void TgsFront::Act(TimePoint now) {
  for (; next_report_ <= now; next_report_ += kPeriod) Report();
  for (Client& client : clients_) {
    while (!client.waiting.empty() && (client.is_high || low_blocks_ <= bound_)) {
      const Launch launch = client.waiting.front();
      client.waiting.pop_front();
      const std::uint32_t blocks = IsCopy(launch.kernel) ? 0 : launch.kernel.blocks;
      if (client.is_high) {
        high_blocks_ += blocks;
      } else {
        low_blocks_ += blocks;
      }
      Submit(client, launch, now);
    }
  }
}

void TgsFront::Submit(Client& client, const Launch& launch, TimePoint now) {
  client.thread_free = std::max(client.thread_free, now) + options_.costs.launch_call;
  device_.Submit({.id = launch.id, .stream = launch.client, .kernel = launch.kernel},
                 client.thread_free);
}

void TgsFront::Report() {
  const double rate = std::max(static_cast<double>(high_blocks_), 1.0);
  high_blocks_ = 0;
  low_blocks_ = 0;
  std::rotate(recent_.rbegin(), recent_.rbegin() + 1, recent_.rend());
  recent_.front() = rate;
  double best = 0;
  for (std::size_t i = 1; i < recent_.size(); ++i)
    best = std::max(best, (recent_[i - 1] + recent_[i]) / 2);
  rate_alone_ = std::max(rate_alone_, best);

  const auto idle =
      std::count_if(recent_.begin(), recent_.end(), [](double each) { return each < kIdleBlocks; });
  if (idle > 2) {
    bound_ = kUnbounded;
    is_slow_start_ = true;
  } else if (bound_ >= kUnbounded) {
    bound_ = kBoundFirst;
  } else {
    Adapt(std::abs(rate - rate_alone_) / rate_alone_);
  }
}

void TgsFront::Adapt(double deviation) {
  const bool is_near = deviation <= 0.03;
  if (is_slow_start_) {
    bound_ = is_near ? bound_ * 1.5 + 1 : bound_ / 1.5;
    is_slow_start_ = is_near;
  } else {
    bound_ += is_near ? std::max(0.00025 * rate_alone_, kBoundStep)
                      : -std::max(0.08 * bound_, kBoundStep);
    if (deviation >= 0.09) {
      bound_ /= 10;
      is_slow_start_ = true;
    }
  }
  far_periods_ = deviation >= 0.12 ? far_periods_ + 1 : 0;
  if (far_periods_ == kFarPeriodsMax) {
    far_periods_ = 0;
    rate_alone_ *= 0.8;
    bound_ /= 2;
    is_slow_start_ = true;
  }
  bound_ = std::clamp(bound_, 0.0, kUnbounded / 2);
}

}  // namespace gpushared::simulation
