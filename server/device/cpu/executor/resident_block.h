// SPDX-License-Identifier: Apache-2.0
// A block that has started: its warps, barriers and memory. Private to the executor.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_RESIDENT_BLOCK_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_RESIDENT_BLOCK_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/device/cpu/executor/launch.h"
#include "server/device/cpu/executor/pages.h"
#include "server/device/cpu/executor/poll_watch.h"
#include "server/device/cpu/executor/warp.h"

namespace gpushared::device::executor {

// Outcome of running each warp of a block once.
enum class Round : std::uint8_t {
  kRan,
  kMayWait,   // The block ran, and has polled for so long that it may be waiting for another block.
  kSpinning,  // All warps that could run only polled, and nothing changed.
  kCut,       // The round had to be left; the next call continues it.
  kFinished,
  kKilled,
  kFaulted,
};

// State of one block and its warps. Reuses its buffers for each block. Confined to the thread of
// its executor.
class ResidentBlock {
 public:
  // Prepares the state that all blocks of a run share. Returns false and sets `*fault` if the block
  // is too large. All arguments are borrowed for the run. Returns early if the run is killed, which
  // Run then detects as well.
  bool Prepare(const Launch& launch, LaunchState* state, const std::atomic<bool>& kill,
               Fault* fault);
  // Continues after a pause. The objects that Prepare borrowed may have moved since.
  void Resume(const Launch& launch, LaunchState* state, std::chrono::nanoseconds paused);
  // Initializes block `number` of the grid, counted with x fastest.
  void Begin(std::uint64_t number);
  // Runs one round. `terms` is null if the round must not be left.
  template <bool Counted>
  Round Run(ExecutionCounts* counts, const std::atomic<bool>& kill, const PauseTerms* terms);

  bool is_finished() const { return is_finished_; }
  // After kSpinning, returns the shortest sleep time that the warps requested; 0 if any warp
  // requested no sleep.
  std::chrono::nanoseconds wanted_sleep() const { return std::chrono::nanoseconds(sleep_ns_); }
  // Returns the bytes of registers, shared and local memory.
  std::uint64_t bytes() const;
  // Returns a hash that changes when a register, a position or a set of active lanes changes.
  std::uint64_t StateHash() const;
  // Ends the block with a fault at the position of its first unfinished warp.
  void RaiseStall(std::uint64_t milliseconds);

 private:
  void PrepareWarp(std::uint32_t index);
  void SetStack(const Code& code);
  void SetWindow();
  Round ClearLocal(const std::atomic<bool>& kill, const PauseTerms* terms);
  template <bool Counted>
  void Dispatch(Warp& warp, ExecutionCounts* counts);
  template <bool Counted>
  bool RunWarp(Warp& warp, ExecutionCounts* counts, const std::atomic<bool>& kill,
               const PauseTerms* terms);
  bool ReleaseBarriers();
  void RaiseDeadlock();

  BlockContext block_;
  std::vector<Warp> warps_;
  RegisterMemory shared_;  // Aligned for the widest vector access.
  Pages local_;
  std::uint64_t local_cleared_ = 0;  // Bytes cleared for the current block.
  std::uint32_t warp_count_ = 0;
  bool is_finished_ = false;
  // Position in the current round.
  std::uint32_t next_warp_ = 0;
  bool ran_ = false;
  bool all_finished_ = false;
  bool only_polls_ = false;
  bool polled_ = false;
  PollWatch watch_;
  std::uint32_t sleep_ns_ = 0;
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_RESIDENT_BLOCK_H_
