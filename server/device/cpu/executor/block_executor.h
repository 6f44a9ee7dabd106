// SPDX-License-Identifier: Apache-2.0
// Runs thread blocks of a decoded kernel on the calling thread.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/device/cpu/executor/program.h"
#include "server/device/device.h"

namespace gpushared::device::executor {

struct MemoryPiece {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};

// The client's memory. Device addresses are host addresses: every global or generic
// access must lie wholly in [base, base + *mapped_bytes), wholly in
// [variables_base, variables_base + variables_bytes), or wholly in one further piece. The
// mapped size is read when a block begins; memory may grow while a kernel runs and must not
// shrink.
struct MemoryWindow {
  std::uint64_t base = 0;
  const std::atomic<std::uint64_t>* mapped_bytes = nullptr;
  // The variables of the launched module, which lie outside the mapped part (above it);
  // 0 bytes when it has none.
  std::uint64_t variables_base = 0;
  std::uint64_t variables_bytes = 0;
  // Looked at last. Borrowed.
  std::span<const MemoryPiece> further = {};
  // Of those; null when none holds the address.
  const MemoryPiece* FurtherAt(std::uint64_t address) const {
    for (const MemoryPiece& piece : further) {
      if (address - piece.base < piece.bytes) return &piece;
    }
    return nullptr;
  }
};

// Why a kernel ended early. `message` is the whole sentence; the fields are its parts.
struct Fault {
  enum class Kind : std::uint8_t {
    kGlobalAddress,  // Outside the client's memory.
    kSharedAddress,  // Outside the block's shared memory.
    kLocalAddress,   // Outside the thread's local memory.
    kParameterAddress,
    kMisaligned,
    kTrap,
    kAssert,
    kCallDepth,       // More nested calls or more call stack than kCallDepthMax allows.
    kResources,       // The block needs more local memory than kLocalBytesPerBlockMax.
    kDeadlock,        // Every thread of the block waits at a barrier.
    kStalled,         // All that can run polls memory that nobody changes.
    kInvalidOperand,  // A barrier number above 15 and the like.
  };
  Kind kind = Kind::kTrap;
  Dim3 block{0, 0, 0};      // %ctaid of the thread.
  Dim3 thread{0, 0, 0};     // %tid of the thread.
  std::uint32_t line = 0;   // PTX line.
  std::string instruction;  // "st.global.f32"
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
  std::string message;
};

// Receives each formatted line (or part of one) of a kernel's printf, in the order in
// which this executor ran it. Called on the executing thread.
using PrintFunction = std::function<void(std::string_view text)>;

inline constexpr std::chrono::seconds kStallLimit{10};

// What all executors that run blocks of one launch share.
struct LaunchState {
  // Where %envreg1 and %envreg2 point: the driver's workspace for barriers of the grid.
  alignas(64) std::array<std::byte, 64> grid_workspace = {};
  // Grows while blocks get on.
  std::atomic<std::uint64_t> progress = 0;

  void Reset() {
    grid_workspace = {};
    progress = 0;
  }
};

// Everything about a launch that its blocks share. Borrowed; must outlive Run.
struct Launch {
  const Program* program = nullptr;        // Its info().unsupported is empty.
  Dim3 grid, block;                        // block.Count() <= kThreadsPerBlockMax.
  std::uint32_t dynamic_shared_bytes = 0;  // With the static part <= kSharedBytesMax.
  std::span<const std::byte> parameters;   // info().parameter_bytes bytes.
  MemoryWindow memory;
  std::uint32_t multiprocessor = 0;      // What %smid reads.
  std::uint32_t multiprocessors = 1;     // What %nsmid reads.
  std::uint64_t grid_id = 0;             // What %gridid reads.
  const PrintFunction* print = nullptr;  // Null drops printed text.
  // Null when one run executes the whole grid.
  LaunchState* state = nullptr;
  // Called when all blocks that have begun wait for others and the run has no more: true
  // hands over the block behind its last. Null: never any.
  const std::function<bool()>* more_blocks = nullptr;
  // Sleeps so long, on the calling thread. Null: std::this_thread::sleep_for.
  const std::function<void(std::chrono::nanoseconds)>* sleep = nullptr;
  // A launch whose blocks only poll, without a change to any register, for so long faults.
  std::chrono::nanoseconds stall_limit = kStallLimit;
  // Every byte of shared and local memory when a block begins. On a GPU that is what other kernels
  // left there; tests of what hides it set it.
  std::uint8_t leftover = 0;
};

inline constexpr std::uint32_t kThreadsPerBlockMax = 1024;
inline constexpr std::uint32_t kSharedBytesMax = 227 * 1024;
// Blocks that run at once because they wait for each other, and bytes of their memory.
inline constexpr std::size_t kResidentBlocksMax = 1024;
inline constexpr std::uint64_t kResidentBytesMax = std::uint64_t{1} << 30;
// Nested calls of one thread, bytes of registers of one warp (all its active calls),
// and bytes of local memory of one thread and of one block.
inline constexpr std::uint32_t kCallDepthMax = 256;
inline constexpr std::uint64_t kRegisterBytesPerWarpMax = std::uint64_t{4} << 20;
inline constexpr std::uint64_t kLocalBytesPerThreadMax = std::uint64_t{512} << 10;
inline constexpr std::uint64_t kLocalBytesPerBlockMax = std::uint64_t{128} << 20;
// Local memory of each thread for the calls of a kernel that recurses.
inline constexpr std::uint64_t kRecursionLocalBytes = std::uint64_t{8} << 10;
// Bytes that one printf call may produce; longer text is cut.
inline constexpr std::size_t kPrintBytesMax = 4096;

struct RunOutcome {
  enum class End : std::uint8_t {
    kFinished,  // All blocks asked for have run.
    kStopped,   // `stop` was seen before a block.
    kKilled,    // `kill` was seen, possibly inside a block.
    kFaulted,
  };
  End end = End::kFinished;
  // Blocks that ran to their end, counted from first_block. More than were asked for when
  // Launch::more_blocks gave more.
  std::uint64_t blocks_done = 0;
  std::optional<Fault> fault;  // Set exactly when end is kFaulted.
};

// Work done by an executor since it was made.
struct ExecutionCounts {
  std::uint64_t warp_instructions = 0;
  std::uint64_t lane_instructions = 0;
};

// Executes blocks one after the other; blocks that wait for later ones, at a barrier of the
// grid or by polling memory, are run in turns with those. Keeps its buffers (registers,
// shared and local memory) for the next run.
//
// Shared and local memory read as zero when a block begins, registers when a run
// begins, so nothing of another tenant can be seen. One object per thread; objects
// are independent, and several may run blocks of the same launch at the same time.
class BlockExecutor {
 public:
  BlockExecutor();
  ~BlockExecutor();
  BlockExecutor(const BlockExecutor&) = delete;
  BlockExecutor& operator=(const BlockExecutor&) = delete;

  // Runs blocks [first_block, first_block + count) of the launch, numbered with x
  // fastest. `stop` is read before each block, and not while
  // blocks wait for each other; `kill` also inside one, at the latest
  // after kBranchesPerTurn backward branches or calls of a warp.
  RunOutcome Run(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                 const std::atomic<bool>& stop, const std::atomic<bool>& kill);

  // As Run, and counts executed instructions (about 1.3 times slower).
  RunOutcome RunCounted(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                        const std::atomic<bool>& stop, const std::atomic<bool>& kill,
                        ExecutionCounts* counts);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Backward branches (and calls) a warp takes before the next warp has its turn.
inline constexpr std::uint32_t kBranchesPerTurn = 4096;

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_BLOCK_EXECUTOR_H_
