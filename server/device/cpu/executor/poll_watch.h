// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_POLL_WATCH_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_POLL_WATCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace gpushared::device::executor {

// Distinguishes a block that spins on another block, with a barrier in each round, from one that
// does useful work. Because useful work may poll as well (a lock, a counter shared by blocks), the
// decision is based on whether the block's state repeats within a few rounds. A block that counts
// its rounds never repeats a state and is only assumed to wait after it has polled for kLong.
class PollWatch {
 public:
  enum class Verdict : std::uint8_t {
    kWorks,
    kMayWait,  // The block has polled every few rounds for kLong. Returned only from time to time.
    kWaits,    // The block's state repeats.
  };

  // Called after each round; `polled`: whether a warp polled in the round. `state` is called
  // rarely.
  Verdict Note(bool polled, const std::function<std::uint64_t()>& state);
  // Excludes time in which the block did not run.
  void Skip(std::chrono::nanoseconds time) { since_ += time; }

 private:
  using Clock = std::chrono::steady_clock;
  // Number of rounds without a poll after which the block is considered to be working.
  static constexpr std::uint32_t kBetweenPolls = 16;
  // Rounds until the first check of the state. The interval then doubles up to a maximum.
  static constexpr std::uint64_t kFirstCheck = 256, kBetweenChecks = 4096;
  static constexpr std::chrono::seconds kLong{1};

  bool IsSeen(std::uint64_t state) const;
  void Restart();

  std::uint64_t rounds_ = 0;  // Rounds since the block may have begun to wait.
  std::uint32_t without_poll_ = 0;
  std::uint64_t next_check_ = kFirstCheck;
  bool repeats_ = false;
  std::vector<std::uint64_t> seen_;  // States after each round since the last check.
  Clock::time_point since_;
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_POLL_WATCH_H_
