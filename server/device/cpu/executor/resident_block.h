// SPDX-License-Identifier: Apache-2.0
// A block that has begun: its warps, barriers and memory. Private to the executor.

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

// The result of one turn for each warp of a block.
enum class Round : std::uint8_t {
  kRan,
  kMayWait,   // Ran, and has polled for so long that it may wait for another block.
  kSpinning,  // All that could run did nothing but poll, and nothing changed.
  kCut,       // It was to leave; the next call goes on with the same round.
  kFinished,
  kKilled,
  kFaulted,
};

// Keeps its buffers from block to block. Confined to the thread of its executor.
class ResidentBlock {
 public:
  // What stays the same for all blocks of a run. False, with `*fault` set, when the block
  // does not fit. All arguments are borrowed for the run. Returns early when it was killed; then
  // Run sees it, too.
  bool Prepare(const Launch& launch, LaunchState* state, const std::atomic<bool>& kill,
               Fault* fault);
  // Goes on after so long a pause. All that Prepare borrowed may lie elsewhere now.
  void Resume(const Launch& launch, LaunchState* state, std::chrono::nanoseconds paused);
  // Readies block `number` of the grid, counted with x fastest.
  void Begin(std::uint64_t number);
  // One round. `terms`: null where it is not to leave.
  template <bool Counted>
  Round Run(ExecutionCounts* counts, const std::atomic<bool>& kill, const PauseTerms* terms);

  bool is_finished() const { return is_finished_; }
  // After a round that was kSpinning: how long all that ran wants to sleep.
  std::chrono::nanoseconds wanted_sleep() const { return std::chrono::nanoseconds(sleep_ns_); }
  // Bytes of registers, shared and local memory.
  std::uint64_t bytes() const;
  // Changes when a register, a position or a set of active lanes does.
  std::uint64_t StateHash() const;
  // Ends the block with a fault at the place where its first unfinished warp is.
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
  RegisterMemory shared_;  // Aligned as the widest vector access needs.
  Pages local_;
  std::uint64_t local_cleared_ = 0;  // Bytes, for the block that has begun.
  std::uint32_t warp_count_ = 0;
  bool is_finished_ = false;
  // In this round so far.
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
