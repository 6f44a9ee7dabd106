// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_STALL_WATCH_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_STALL_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "server/device/cpu/executor/resident_block.h"

namespace gpushared::device::executor {

// Detects livelocks. A launch is stalled if every block polls, registers keep their values or
// alternate between few states, and no other executor of the launch makes progress.
//
// Thread-compatible.
class StallWatch {
 public:
  explicit StallWatch(const Launch& launch) : limit_(launch.stall_limit) {}

  // Called after a round in which all blocks only polled.
  bool IsStalled(const std::vector<std::unique_ptr<ResidentBlock>>& blocks,
                 const LaunchState& state, const std::atomic<bool>& kill);
  // Excludes time in which the blocks did not run.
  void Skip(std::chrono::nanoseconds time) {
    since_ += time;
    next_sample_ += time;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::nanoseconds limit_;
  Clock::time_point next_sample_, since_;
  std::vector<std::uint64_t> seen_;  // States since `since_`, or slightly before.
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_STALL_WATCH_H_
