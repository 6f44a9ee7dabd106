// SPDX-License-Identifier: Apache-2.0
// Runs thread blocks of a decoded kernel on the calling thread.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "server/device/cpu/executor/launch.h"

namespace gpushared::device::executor {

// Executes blocks one after the other. A run that is told to leave inside of a block is paused: the
// object keeps it, and any thread resumes it. Blocks that wait for later ones, at a barrier of the
// grid or by polling memory, run in turns with those. Keeps its buffers (registers, shared and
// local memory) for the next run.
//
// Shared and local memory read as zero when a block begins, registers when a run begins. So
// nothing of another tenant can be seen. One thread at a time uses an object. Objects are
// independent, and several may run blocks of the same launch at the same time.
class BlockExecutor {
 public:
  BlockExecutor();
  ~BlockExecutor();
  BlockExecutor(const BlockExecutor&) = delete;
  BlockExecutor& operator=(const BlockExecutor&) = delete;

  // Runs blocks [first_block, first_block + count) of the launch, numbered with x
  // fastest, and then those that Launch::more_blocks gives. `stop` is read before each block, and
  // not while blocks wait for each other; `kill` also inside one: at every backward branch and
  // call, after kOpsPerLook operations without one, and between the parts of what takes long.
  RunOutcome Run(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                 const std::atomic<bool>& stop, const std::atomic<bool>& kill);

  // Goes on with the run that was paused; whatever `launch` points to may lie elsewhere now, but
  // for `state`. Its blocks_done counts from Run on.
  RunOutcome Resume(const Launch& launch, const std::atomic<bool>& kill);

  // As Run, and counts executed instructions (about 1.3 times slower).
  RunOutcome RunCounted(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                        const std::atomic<bool>& stop, const std::atomic<bool>& kill,
                        ExecutionCounts* counts);

  // Bytes of registers, shared and local memory, in use or kept for the next run.
  std::uint64_t memory_bytes() const;
  // Gives them back to the system, down to kKeptBytesMax. To be called between runs.
  void ReleaseMemory();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// An idle executor keeps so much memory. A block of 1,024 threads that use 256 bytes of local
// memory each needs half of it.
inline constexpr std::uint64_t kKeptBytesMax = std::uint64_t{1} << 20;

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_
