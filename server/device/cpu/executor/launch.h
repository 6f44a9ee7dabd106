// SPDX-License-Identifier: Apache-2.0
// A launch as the executor gets it, and what becomes of it.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_LAUNCH_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_LAUNCH_H_

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
#include "server/device/memory_pieces.h"
#include "server/device/reach.h"

namespace gpushared::device::executor {

using device::MemoryPiece;

class DeviceHeap;  // device_heap.h

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
  // Looked at last; by address, none overlapping. Borrowed.
  std::span<const MemoryPiece> further = {};
  // The part of the mapped memory that the launch may touch; null: all of it. Borrowed. Its pieces
  // may lie anywhere: what is not mapped is not touched.
  const Reach* reach = nullptr;
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
    kStackSpace,      // An alloca of more than is left of a thread's local memory.
    kCallDepth,       // More nested calls or more call stack than kCallDepthMax allows.
    kSplitDepth,      // More branches in each other than kSplitsMax allows.
    kResources,       // The block needs more local memory than kLocalBytesPerBlockMax.
    kDeadlock,        // Every thread of the block waits at a barrier.
    kNotAMember,      // A lane names lanes of its warp without itself.
    kMissingLanes,    // Lanes wait for others of their warp, which can never come.
    kStalled,         // All that can run polls memory that nobody changes.
    kInvalidOperand,  // A barrier number above 15 and the like.
    kCallTarget,      // An indirect call of what is no function that it may reach.
    kCallPrototype,   // An indirect call of a function with other parameters or results.
    kFreedAddress,    // Freed, and not the start of what the device heap holds.
    kTextureRecord,   // No texture is there as gpushared/texture_record.h describes it.
    kSurfaceCoordinate,
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

// A client is told this of it.
FaultKind GetKind(Fault::Kind kind);

// Receives each formatted line (or part of one) of a kernel's printf, in the order in
// which this executor ran it. Called on the executing thread.
using PrintFunction = std::function<void(std::string_view text)>;

inline constexpr std::chrono::seconds kStallLimit{10};

// Shared by all executors that run blocks of one launch.
struct LaunchState {
  // The driver's workspace for barriers of the grid, of cooperative launches.
  alignas(64) std::array<std::byte, 64> grid_workspace = {};
  // Grows while blocks get on.
  std::atomic<std::uint64_t> progress = 0;

  void Reset() {
    grid_workspace = {};
    progress = 0;
  }
};

// When a run is to leave its thread inside of a block, for other work, and go on later. Others
// write the three words. Relaxed: they are advice, nothing is read because of them.
struct PauseTerms {
  const std::atomic<bool>& stop;  // Raised: leave.
  // Work of a rank below own_rank waits: leave.
  const std::atomic<std::uint64_t>& first_rank;
  std::uint64_t own_rank = 0;
  // Runs of the launch that are paused. A run whose blocks all wait leaves its thread to them.
  const std::atomic<std::uint32_t>& paused_runs;
  // Whether the run may be kept with so many bytes of memory; where not, it goes on to the end of
  // its blocks. Called on the executing thread.
  const std::function<bool(std::uint64_t bytes)>& may_pause;

  bool IsDue() const {
    return stop.load(std::memory_order_relaxed) ||
           first_rank.load(std::memory_order_relaxed) < own_rank;
  }
};
inline bool IsDue(const PauseTerms* terms) { return terms != nullptr && terms->IsDue(); }

// Local memory of each thread for the calls of a kernel that recurses, unless a launch says more.
inline constexpr std::uint64_t kRecursionLocalBytes = std::uint64_t{8} << 10;
inline constexpr std::uint64_t kStackBytesMax = std::uint64_t{256} << 10;

// Everything about a launch that its blocks share. Borrowed; must outlive Run and Resume.
struct Launch {
  const Program* program = nullptr;        // Its info().unsupported is empty.
  Dim3 grid, block;                        // block.Count() <= kThreadsPerBlockMax.
  std::uint32_t dynamic_shared_bytes = 0;  // With the static part <= kSharedBytesMax.
  std::span<const std::byte> parameters;   // info().parameter_bytes bytes.
  MemoryWindow memory;
  // Added to the addresses of module variables: DecodeModule's `variables_base` and this together
  // are where they lie.
  std::uint64_t variables_at = 0;
  // Its grid has the workspace to which %envreg1 and %envreg2 point. In other launches both are 0,
  // as on a GPU: the barriers of cooperative groups trap there.
  bool is_cooperative = false;
  std::uint32_t multiprocessor = 0;      // Value of %smid.
  std::uint32_t multiprocessors = 1;     // Value of %nsmid.
  std::uint64_t grid_id = 0;             // Value of %gridid.
  const PrintFunction* print = nullptr;  // Null drops printed text.
  // Null when one run executes the whole grid.
  LaunchState* state = nullptr;
  // Gives a run that has no more blocks the number of a further one: after its last has ended,
  // and beside those that have begun when all of these wait for others. Null: never any.
  const std::function<std::optional<std::uint64_t>(bool beside_waiting)>* more_blocks = nullptr;
  // Null: the run leaves between two blocks only.
  const PauseTerms* pause = nullptr;
  // Sleeps so long, on the calling thread. Null: std::this_thread::sleep_for.
  const std::function<void(std::chrono::nanoseconds)>* sleep = nullptr;
  // What malloc and free of the kernel work on. Its memory is one of memory.further. Null: malloc
  // gives nothing.
  DeviceHeap* heap = nullptr;
  // Local memory of each thread for calls, where functions call themselves, and for alloca: at
  // least kRecursionLocalBytes, at most kStackBytesMax.
  std::uint64_t stack_bytes = kRecursionLocalBytes;
  // A launch whose blocks only poll, without a change to any register, for so long faults.
  std::chrono::nanoseconds stall_limit = kStallLimit;
  // Every byte of shared and local memory when a block begins. On a GPU that is what other kernels
  // left there; tests of what hides it set it.
  std::uint8_t leftover = 0;
};

inline constexpr std::uint32_t kThreadsPerBlockMax = 1024;
inline constexpr std::uint32_t kSharedBytesMax = 227 * 1024;
// Blocks get shared memory in these steps, as on GPUs. Compilers count on it: an access may be
// wider than what it uses.
inline constexpr std::uint32_t kSharedGranuleBytes = 128;
// Blocks that run at once because they wait for each other, and bytes of their memory.
inline constexpr std::size_t kResidentBlocksMax = 1024;
inline constexpr std::uint64_t kResidentBytesMax = std::uint64_t{1} << 30;
// Nested calls of one thread with a stack of kRecursionLocalBytes; more with a larger one.
inline constexpr std::uint32_t kCallDepthMax = 256;
// Entries of one warp's divergence stack. Decoded code needs a few for each branch in another one.
inline constexpr std::size_t kSplitsMax = std::size_t{1} << 16;
// Bytes of registers of one warp, with all its active calls; with a larger stack than
// kRecursionLocalBytes, more, but no more than this for a block's warps together.
inline constexpr std::uint64_t kRegisterBytesPerWarpMax = std::uint64_t{4} << 20;
inline constexpr std::uint64_t kRegisterBytesPerBlockMax = std::uint64_t{128} << 20;
// Bytes of local memory of one thread, and of one block.
inline constexpr std::uint64_t kLocalBytesPerThreadMax = std::uint64_t{512} << 10;
inline constexpr std::uint64_t kLocalBytesPerBlockMax = std::uint64_t{128} << 20;
// Local memory of each thread that kernels with alloca get beyond that of their functions,
// likewise.
inline constexpr std::uint64_t kStackBytes = std::uint64_t{8} << 10;
// Bytes that one printf call may produce; longer text is cut.
inline constexpr std::size_t kPrintBytesMax = 4096;

struct RunOutcome {
  enum class End : std::uint8_t {
    kFinished,  // All blocks asked for have run.
    kStopped,   // `stop` was seen before a block.
    kPaused,    // Launch::pause was due inside of a block. Resume goes on.
    kKilled,    // `kill` was seen, possibly inside a block.
    kFaulted,
  };
  End end = End::kFinished;
  // Blocks that ran to their end: from first_block on, then those that Launch::more_blocks gave.
  std::uint64_t blocks_done = 0;
  std::optional<Fault> fault;  // Set exactly when end is kFaulted.
};

// Work done by an executor since it was made.
struct ExecutionCounts {
  std::uint64_t warp_instructions = 0;
  std::uint64_t lane_instructions = 0;
};

// Backward branches (and calls) a warp takes before the next warp has its turn. Matrix
// instructions and printing count as many.
inline constexpr std::uint32_t kBranchesPerTurn = 4096;
// Operations without a branch or call until a warp looks whether it was killed: 20 us of most
// kinds, 1 ms of the slowest one.
inline constexpr std::uint32_t kOpsPerLook = 1024;

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_LAUNCH_H_
