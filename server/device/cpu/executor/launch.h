// SPDX-License-Identifier: Apache-2.0
// Description of a launch for the executor, and its outcome.

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

class DeviceHeap;  // Declared in device_heap.h.

// Memory that a launch may access. Device addresses are host addresses: every global or generic
// access must be completely inside [base, base + *mapped_bytes), [variables_base, variables_base +
// variables_bytes), or a further piece. The mapped size is read when a block starts; memory may
// grow while a kernel runs and must not shrink.
struct MemoryWindow {
  std::uint64_t base = 0;
  const std::atomic<std::uint64_t>* mapped_bytes = nullptr;
  // Variables of the launched module, which are above the mapped part; 0 bytes if it has none.
  std::uint64_t variables_base = 0;
  std::uint64_t variables_bytes = 0;
  // Further pieces, such as chunks and the heap; checked last. Sorted by address, without overlaps.
  // Borrowed.
  std::span<const MemoryPiece> further = {};
  // The part of the mapped memory that the launch may access; null for all of it. Borrowed. Its
  // pieces are arbitrary; unmapped parts of them are not accessed.
  const Reach* reach = nullptr;
};

// Reason why a kernel ended early. `message` contains all of the other members.
struct Fault {
  enum class Kind : std::uint8_t {
    kGlobalAddress,  // Outside the client's memory.
    kSharedAddress,  // Outside the block's shared memory.
    kLocalAddress,   // Outside the thread's local memory.
    kParameterAddress,
    kMisaligned,
    kTrap,
    kAssert,
    kStackSpace,      // alloca of more than the remaining local memory of the thread.
    kCallDepth,       // Too many nested calls, or too little register or local memory for them.
    kSplitDepth,      // More nested branches than kSplitsMax allows.
    kResources,       // The block needs more local memory than kLocalBytesPerBlockMax.
    kDeadlock,        // Every thread of the block that has not exited waits at a barrier.
    kNotAMember,      // A lane is not in its own member mask.
    kMissingLanes,    // Lanes wait for others of their warp that can never arrive.
    kStalled,         // Everything that can run only polls memory that does not change.
    kInvalidOperand,  // For example, a barrier number above 15.
    kCallTarget,      // An indirect call to an address that is not an allowed function.
    kCallPrototype,   // An indirect call to a function with different parameters or results.
    kFreedAddress,    // Free of an address that is not an allocated piece of the device heap.
    kTextureRecord,   // No valid texture record (gpushared/texture_record.h).
    kSurfaceCoordinate,
  };
  Kind kind = Kind::kTrap;
  Dim3 block{0, 0, 0};      // %ctaid of the thread.
  Dim3 thread{0, 0, 0};     // %tid of the thread.
  std::uint32_t line = 0;   // PTX line.
  std::string instruction;  // "st.global.f32"
  // Range of the invalid access; for faults without an access, the numbers in the message.
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
  std::string message;
};

// Returns the kind that is reported to clients.
FaultKind GetKind(Fault::Kind kind);

// Receives each formatted line (or part of one) of a kernel's printf, in the order in which the
// calling executor runs the printf calls. Called on the executing thread.
using PrintFunction = std::function<void(std::string_view text)>;

inline constexpr std::chrono::seconds kStallLimit{10};

// Shared by all executors that run blocks of one launch.
struct LaunchState {
  // Workspace for grid barriers of cooperative launches, which on a GPU the driver provides.
  alignas(64) std::array<std::byte, 64> grid_workspace = {};
  // Increases while blocks make progress.
  std::atomic<std::uint64_t> progress = 0;

  void Reset() {
    grid_workspace = {};
    progress = 0;
  }
};

// Conditions under which a run leaves its thread inside a block, to be resumed later. The three
// words are written by other threads. Relaxed: they are advice, and no other data depends on them.
struct PauseTerms {
  const std::atomic<bool>& stop;  // The run leaves if this is true.
  // The run leaves if work with a rank below own_rank is waiting.
  const std::atomic<std::uint64_t>& first_rank;
  std::uint64_t own_rank = 0;
  // Number of paused runs of the launch. A run whose blocks all wait leaves its thread to one of
  // these runs.
  const std::atomic<std::uint32_t>& paused_runs;
  // Returns whether the run may be paused with its `bytes` of memory. A run that may not be paused
  // continues to the end of its blocks. Called on the executing thread.
  const std::function<bool(std::uint64_t bytes)>& may_pause;

  bool IsDue() const {
    return stop.load(std::memory_order_relaxed) ||
           first_rank.load(std::memory_order_relaxed) < own_rank;
  }
};
inline bool IsDue(const PauseTerms* terms) { return terms != nullptr && terms->IsDue(); }

// Local memory of each thread for the calls of a recursive kernel, unless a launch specifies more.
inline constexpr std::uint64_t kRecursionLocalBytes = std::uint64_t{8} << 10;
inline constexpr std::uint64_t kStackBytesMax = std::uint64_t{256} << 10;

// Description of a launch, the same for all of its blocks. The objects that it points to are
// borrowed until Run or Resume returns.
struct Launch {
  const Program* program = nullptr;  // Must be runnable: info().unsupported is empty.
  Dim3 grid, block;                  // block.Count() is at most kThreadsPerBlockMax.
  // Together with the static part, at most kSharedBytesMax.
  std::uint32_t dynamic_shared_bytes = 0;
  std::span<const std::byte> parameters;  // Exactly info().parameter_bytes bytes.
  MemoryWindow memory;
  // Added to the addresses of module variables: their actual location is DecodeModule's
  // `variables_base` plus this value.
  std::uint64_t variables_at = 0;
  // Whether %envreg1 and %envreg2 point to the workspace for grid barriers. In other launches both
  // are 0, as on a GPU, where the barriers of cooperative groups then trap.
  bool is_cooperative = false;
  std::uint32_t multiprocessor = 0;      // Value of %smid.
  std::uint32_t multiprocessors = 1;     // Value of %nsmid.
  std::uint64_t grid_id = 0;             // Value of %gridid.
  const PrintFunction* print = nullptr;  // If null, printed text is dropped.
  // Null if one run executes the whole grid.
  LaunchState* state = nullptr;
  // Called when a run has no more blocks, to get the number of a further one: after its last block
  // has ended, and, with `while_waiting`, when all started blocks wait for others. If null, there
  // are no further blocks.
  const std::function<std::optional<std::uint64_t>(bool while_waiting)>* more_blocks = nullptr;
  // If null, the run leaves between two blocks only.
  const PauseTerms* pause = nullptr;
  // Sleeps on the calling thread. If null, the executor uses std::this_thread::sleep_for.
  const std::function<void(std::chrono::nanoseconds)>* sleep = nullptr;
  // Heap for malloc and free of the kernel. Its memory is a piece of memory.further. If null,
  // malloc returns null.
  DeviceHeap* heap = nullptr;
  // Local memory of each thread for recursive calls and alloca: at least kRecursionLocalBytes, at
  // most kStackBytesMax.
  std::uint64_t stack_bytes = kRecursionLocalBytes;
  // A launch whose blocks only poll, without reaching new states (StallWatch), faults after this
  // time.
  std::chrono::nanoseconds stall_limit = kStallLimit;
  // Initial value of every byte of shared and local memory. On a GPU these contain data of earlier
  // kernels. Tests set a value in order to check that kernels do not observe such data.
  std::uint8_t leftover = 0;
};

inline constexpr std::uint32_t kThreadsPerBlockMax = 1024;
inline constexpr std::uint32_t kSharedBytesMax = 227 * 1024;
// Shared memory is allocated in these units, as on GPUs. Compilers rely on this: an access may be
// wider than the part that it uses.
inline constexpr std::uint32_t kSharedGranuleBytes = 128;
// Limits for blocks that run interleaved because they wait for each other, and for their memory.
inline constexpr std::size_t kResidentBlocksMax = 1024;
inline constexpr std::uint64_t kResidentBytesMax = std::uint64_t{1} << 30;
// Limit of nested calls of a thread with a stack of kRecursionLocalBytes; more with a larger stack.
inline constexpr std::uint32_t kCallDepthMax = 256;
// Limit of the entries of a warp's divergence stack. Decoded code needs a few for each nested
// branch.
inline constexpr std::size_t kSplitsMax = std::size_t{1} << 16;
// Limit of the registers of a warp with all its active calls. A stack larger than
// kRecursionLocalBytes allows a warp more, as long as all warps of the block together stay within
// kRegisterBytesPerBlockMax.
inline constexpr std::uint64_t kRegisterBytesPerWarpMax = std::uint64_t{4} << 20;
inline constexpr std::uint64_t kRegisterBytesPerBlockMax = std::uint64_t{128} << 20;
// Limits of the local memory of a thread and of a block.
inline constexpr std::uint64_t kLocalBytesPerThreadMax = std::uint64_t{512} << 10;
inline constexpr std::uint64_t kLocalBytesPerBlockMax = std::uint64_t{128} << 20;
// Local memory of each thread for alloca, in addition to the local memory of the frames.
inline constexpr std::uint64_t kStackBytes = std::uint64_t{8} << 10;
// Limit of the text of one lane's printf call; longer text is truncated.
inline constexpr std::size_t kPrintBytesMax = 4096;

struct RunOutcome {
  enum class End : std::uint8_t {
    kFinished,  // All requested blocks have run.
    kStopped,   // `stop` was set before a block.
    kPaused,    // Launch::pause required leaving a block. Continue with Resume.
    kKilled,    // `kill` was set, possibly inside a block.
    kFaulted,
  };
  End end = End::kFinished;
  // Number of blocks that ran to their end: those from first_block on, then those from
  // Launch::more_blocks.
  std::uint64_t blocks_done = 0;
  std::optional<Fault> fault;  // Set if and only if `end` is kFaulted.
};

// Executed instructions, to which each RunCounted adds.
struct ExecutionCounts {
  std::uint64_t warp_instructions = 0;
  std::uint64_t lane_instructions = 0;
};

// Backward branches (and calls) until a warp yields to the next one. Matrix instructions and
// printing are counted as several.
inline constexpr std::uint32_t kBranchesPerTurn = 4096;
// Operations without a branch or call until a warp checks whether it was killed: 20 us for most
// operations, 1 ms for the slowest one.
inline constexpr std::uint32_t kOpsPerCheck = 1024;

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_LAUNCH_H_
