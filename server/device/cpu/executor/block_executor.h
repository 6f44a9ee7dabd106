// SPDX-License-Identifier: Apache-2.0
// Runs thread blocks of a decoded kernel on the calling thread.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/device/cpu/executor/launch.h"

namespace gpushared::device::executor {

// Executes blocks one after the other. A run that is interrupted inside a block is paused: the
// object keeps its state, and any thread may resume it. Blocks that wait for later ones, at a grid
// barrier or by polling memory, are interleaved with the later ones. Keeps its buffers (registers,
// shared and local memory) for the next run.
//
// Shared and local memory read as zero when a block starts, registers when a run starts, so data of
// other clients cannot be observed. Used by one thread at a time. Objects are independent, and
// several may run blocks of the same launch at the same time.
class BlockExecutor {
 public:
  BlockExecutor();
  ~BlockExecutor();
  BlockExecutor(const BlockExecutor&) = delete;
  BlockExecutor& operator=(const BlockExecutor&) = delete;

  // Runs blocks [first_block, first_block + count) of the launch, numbered with x fastest, and then
  // those from Launch::more_blocks. `stop` is read before each block, but not while blocks wait for
  // each other; `kill` is also read inside a block: at every backward branch and call, after
  // kOpsPerCheck operations without one, and between the parts of long operations.
  RunOutcome Run(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                 const std::atomic<bool>& stop, const std::atomic<bool>& kill);

  // Continues the paused run. Except for `state`, the objects that `launch` points to may have
  // moved since. blocks_done counts from the call of Run.
  RunOutcome Resume(const Launch& launch, const std::atomic<bool>& kill);

  // Like Run, and counts executed instructions (about 1.3 times slower).
  RunOutcome RunCounted(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                        const std::atomic<bool>& stop, const std::atomic<bool>& kill,
                        ExecutionCounts* counts);

  // Returns the bytes of registers, shared and local memory, in use or kept for the next run.
  std::uint64_t memory_bytes() const;
  // Frees kept memory down to kKeptBytesMax. Called between runs.
  void ReleaseMemory();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Limit of the memory kept by an idle executor.
inline constexpr std::uint64_t kKeptBytesMax = std::uint64_t{1} << 20;

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_
