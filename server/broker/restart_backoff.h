// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_RESTART_BACKOFF_H_
#define GPUSHARED_SERVER_BROKER_RESTART_BACKOFF_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gpushared::server {

// Delay before a device's next worker: none after an occasional death, and increasing while each
// new worker dies soon after its start.
//
// Thread-compatible.
class RestartBackoff {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr std::chrono::seconds kHealthyLife{10};
  static constexpr std::chrono::milliseconds kFirst{100};
  static constexpr std::chrono::milliseconds kMax{5000};

  // Returns the delay after the death of a worker that lived this long.
  std::chrono::milliseconds OnDeath(Duration life) {
    quick_deaths_ = life >= kHealthyLife ? 0 : quick_deaths_ + 1;
    if (quick_deaths_ <= 1) return std::chrono::milliseconds(0);
    const std::uint32_t doublings = std::min(quick_deaths_ - 2, 6U);
    return std::min(kFirst * (1U << doublings), kMax);
  }

 private:
  std::uint32_t quick_deaths_ = 0;  // Consecutive deaths soon after a start.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_RESTART_BACKOFF_H_
