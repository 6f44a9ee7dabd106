// SPDX-License-Identifier: Apache-2.0
// State that micro-ops work on: a block, its barriers and its warps.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_WARP_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_WARP_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/device/cpu/executor/code.h"
#include "server/device/cpu/executor/launch.h"

namespace gpushared::device::executor {

inline constexpr std::uint32_t kBarriers = 16;
// Number of backward branches after a poll until the warp yields. Above 32, so that a loop of
// atomic compare-and-swaps in which the lanes of a warp succeed one by one completes within one
// turn.
inline constexpr std::int32_t kPollsPerTurn = 64;

enum class Pause : std::uint8_t {
  kRunnable,    // The warp is not paused, or its turn was over.
  kAtBarrier,   // Arrived at barrier Warp::barrier.
  kConverging,  // Some lanes wait for others of the warp that their member masks name.
  kAligning,    // The path waits for all lanes of the warp at this instruction.
  kFinished,    // No lane of this path is left.
  kFaulted,     // BlockContext::fault holds the reason.
};

struct Barrier {
  std::uint32_t arrived = 0;   // Number of threads that have arrived.
  std::uint32_t expected = 0;  // Number of expected threads; 0 means all live threads.
  std::uint32_t predicate_count = 0;
  bool all = true;
  bool any = false;
};

struct BlockContext {
  // The window, where accesses are checked first: the client's mapped memory, or a piece of the
  // launch's access set.
  std::uint64_t global_base = 0;
  std::uint64_t global_bytes = 0;
  bool has_reach = false;  // Whether the launch may access only a part of the mapped memory.
  std::uint64_t mapped_bytes = 0;
  std::byte* shared = nullptr;
  std::uint64_t shared_bytes = 0;
  const std::byte* parameters = nullptr;
  std::uint64_t parameter_bytes = 0;
  std::uint64_t local_bytes_per_thread = 0;
  std::uint64_t call_depth_max = 0;
  std::uint64_t register_bytes_per_warp_max = 0;
  const Launch* launch = nullptr;
  LaunchState* state = nullptr;
  const Code* code = nullptr;
  Dim3 index;                      // %ctaid
  std::uint32_t live_threads = 0;  // Number of threads that have not exited.
  std::array<Barrier, kBarriers> barriers;
  Fault* fault = nullptr;
};

// Continuation of a warp when its active lanes reach their reconvergence point.
struct StackEntry {
  std::uint32_t pc = 0;
  std::uint32_t reconvergence = kNoReconvergence;
  std::uint32_t mask = 0;
  bool is_call = false;  // Whether popping the entry also leaves the running function.
};

// A function activation. The first is the kernel's.
struct Activation {
  std::uint32_t function = 0;
  std::uint64_t frame_offset = 0;  // Offset in Warp::registers.
  std::uint64_t local_base = 0;    // Offset in each thread's local memory.
};

// Lanes that run separately from the rest of their warp: their position, divergence stack and calls
// while another path of the warp runs. Paths that were split inside a call share its frame, in
// which each lane has its own element.
struct Path {
  std::uint32_t pc = 0;
  std::uint32_t active = 0;
  std::uint32_t reconvergence = kNoReconvergence;
  Pause pause = Pause::kRunnable;
  std::uint32_t barrier = 0;
  std::vector<StackEntry> stack;
  std::vector<Activation> activations;
};

// Register memory of one warp, aligned for vector loads and initially zero.
class RegisterMemory {
 public:
  static constexpr std::size_t kAlignment = 64;
  RegisterMemory() = default;
  explicit RegisterMemory(std::uint64_t bytes);
  ~RegisterMemory();
  RegisterMemory(RegisterMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  RegisterMemory& operator=(RegisterMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

struct Warp {
  // Frame of the running function, which every micro-op reads and writes.
  std::byte* frame = nullptr;
  std::uint32_t active = 0;  // Lanes that execute.
  std::uint32_t exited = 0;  // Lanes that have exited or never existed.
  std::uint32_t reconvergence = kNoReconvergence;
  std::int32_t turns_left = 0;  // Remaining backward branches, calls and the like in this turn.
  const MicroOp* code = nullptr;
  const std::atomic<bool>* kill = nullptr;  // Borrowed from the run.
  // Borrowed from the run; null if the warp must not leave a block.
  const PauseTerms* pause_terms = nullptr;
  BlockContext* block = nullptr;
  std::byte* local = nullptr;    // local_bytes_per_thread bytes for each lane.
  std::uint64_t local_base = 0;  // Activation::local_base of the running function.
  // Stack pointer of each thread: the offset in its local memory at which its stack allocations
  // begin; and the lowest of all stack pointers.
  std::array<std::uint64_t, kLanes> stack_pointers = {};
  std::uint64_t lowest_stack = 0;
  bool polled = false;         // Whether an executed operation may be waiting for another thread.
  std::uint32_t sleep_ns = 0;  // Sleep time requested at the end of the turn.
  // Whether the wait of the op at pc is over, so that the op must not wait again.
  bool together = false;
  std::uint32_t barrier_count = 0;  // Result of a barrier reduction, once it is complete.
  bool barrier_all = false;
  bool barrier_any = false;
  Pause pause = Pause::kRunnable;
  std::uint32_t pc = 0;       // Op at which to continue; valid while paused.
  std::uint32_t barrier = 0;  // Valid while kAtBarrier.
  std::uint32_t index = 0;    // Index in the block.
  std::vector<StackEntry> stack;
  std::vector<Activation> activations;
  std::vector<Path> waiting;  // Other paths of this warp; usually empty.
  std::byte* registers = nullptr;
  std::uint64_t registers_used = 0;  // Bytes written since they were last cleared.
  RegisterMemory register_memory;
};

// Ends the run with a fault of the lane; returns null so that a handler can
// `return RaiseFault(...)`. Defined in fault.cpp.
const MicroOp* RaiseFault(Warp& warp, const MicroOp* op, Fault::Kind kind, std::uint32_t lane,
                          std::uint64_t address, std::uint32_t bytes);

// Moves the window of a block with an access set to the piece that contains the address, as far as
// it is mapped. Returns false, without changes, if the window already contains the address or no
// piece does.
bool MoveWindow(BlockContext& block, std::uint64_t address);

// Kind of an access. Generic addresses of parameters are invalid for kWrite, because parameters are
// read-only.
enum class Access : std::uint8_t { kRead, kWrite };

// Returns the host address of `bytes` bytes at a lane's generic address. Returns null after raising
// a fault if the access is outside of every space or not aligned to `alignment`.
std::byte* ResolveGeneric(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t address,
                          std::uint32_t bytes, std::uint32_t alignment, Access access);

// Pauses the warp before `op` until its other lanes arrive. Returns null for a handler to return.
const MicroOp* WaitAt(Warp& warp, const MicroOp* op, Pause pause);

// Initializes a new frame of the function: constants and special registers.
void BeginFrame(const Warp& warp, const FunctionCode& function, std::byte* frame);

// Writes the value of a special register into its row.
void FillSpecialRow(const Warp& warp, const SpecialRow& row, std::byte* frame);

// Continues with the next path on the divergence stack: restores the mask, the reconvergence point
// and, after the last lane of a call, the caller's frame. Returns null if no lane is left.
const MicroOp* PopStack(Warp& warp);

// Returns the first offset in the register memory after the frames of all paths.
std::uint64_t FreeFrameOffset(const Warp& warp);

// Allocates at least the first `bytes` bytes of the warp's register memory. Returns false if this
// exceeds register_bytes_per_warp_max. May move the memory and updates `frame`.
bool EnsureRegisters(Warp& warp, std::uint64_t bytes);

// Returns the lanes of the running path that wait on its divergence stack for the active ones.
std::uint32_t WaitingLanes(const Warp& warp);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_WARP_H_
