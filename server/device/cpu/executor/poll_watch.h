// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_POLL_WATCH_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_POLL_WATCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace gpushared::device::executor {

// Tells a block that waits for another one, with a barrier in each round of its poll, from one
// that works. Work may poll, too (a lock, a counter that blocks share). So the block's state
// decides: whether it comes back within a few rounds. Where something counts the rounds, their
// number decides.
class PollWatch {
 public:
  enum class Verdict : std::uint8_t {
    kWorks,
    kMayWait,  // It has polled every few rounds for kLong. Said now and then.
    kWaits,    // Its state repeats.
  };

  // To be called after each round, with whether some warp polled in it. `state` is asked for
  // rarely.
  Verdict Note(bool polled, const std::function<std::uint64_t()>& state);
  // Time in which the block did not run.
  void Skip(std::chrono::nanoseconds time) { since_ += time; }

 private:
  using Clock = std::chrono::steady_clock;
  // Rounds without a poll after which the block works.
  static constexpr std::uint32_t kBetweenPolls = 16;
  // Rounds until the first look at the state. Each further one comes after twice as many, or so
  // many more.
  static constexpr std::uint64_t kFirstLook = 256, kBetweenLooks = 4096;
  static constexpr std::chrono::seconds kLong{1};

  bool IsSeen(std::uint64_t state) const;
  void Restart();

  std::uint64_t rounds_ = 0;  // Counted in a block that may wait.
  std::uint32_t without_poll_ = 0;
  std::uint64_t next_look_ = kFirstLook;
  bool repeats_ = false;
  std::vector<std::uint64_t> seen_;  // States of the rounds since a look.
  Clock::time_point since_;
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_POLL_WATCH_H_
