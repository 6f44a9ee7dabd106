// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/block_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "server/device/cpu/executor/paths.h"
#include "server/device/cpu/executor/warp.h"

namespace gpushared::device::executor {
namespace {

enum class BlockEnd { kFinished, kKilled, kFaulted };

bool ChangesPerBlock(SpecialRegister what) {
  return what == SpecialRegister::kBlockX || what == SpecialRegister::kBlockY ||
         what == SpecialRegister::kBlockZ;
}

std::uint32_t LanesOfWarp(std::uint64_t threads, std::uint32_t warp) {
  const std::uint64_t left = threads - std::uint64_t{warp} * kLanes;
  return left >= kLanes ? kAllLanes : (1u << left) - 1;
}

}  // namespace

struct BlockExecutor::State {
  BlockContext block;
  std::vector<Warp> warps;
  RegisterMemory shared;  // Aligned as the widest vector access needs.
  std::vector<std::byte> local;
  std::uint32_t warp_count = 0;
  Fault fault;

  bool Prepare(const Launch& launch);
  void PrepareWarp(const Launch& launch, std::uint32_t index);
  void BeginBlock(const Launch& launch, std::uint64_t number);
  template <bool Counted>
  void Dispatch(Warp& warp, ExecutionCounts* counts);
  template <bool Counted>
  bool RunWarp(Warp& warp, ExecutionCounts* counts, const std::atomic<bool>& kill);
  bool ReleaseBarriers();
  bool ReleaseForced();
  template <bool Counted>
  BlockEnd RunBlock(ExecutionCounts* counts, const std::atomic<bool>& kill);
  template <bool Counted>
  RunOutcome Run(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                 const std::atomic<bool>& stop, const std::atomic<bool>& kill,
                 ExecutionCounts* counts);
};

// What stays the same for all blocks of a run. False, with the fault set, when the
// block does not fit.
bool BlockExecutor::State::Prepare(const Launch& launch) {
  const Code& code = launch.program->code();
  const std::uint64_t threads = launch.block.Count();
  warp_count = static_cast<std::uint32_t>((threads + kLanes - 1) / kLanes);
  block = {};
  block.launch = &launch;
  block.code = &code;
  block.fault = &fault;
  block.parameters = launch.parameters.data();
  block.parameter_bytes = launch.parameters.size();
  block.shared_bytes = std::uint64_t{code.static_shared_bytes} + launch.dynamic_shared_bytes;
  block.local_bytes_per_thread = code.local_bytes_per_thread;
  if (shared.bytes() < block.shared_bytes) shared = RegisterMemory(block.shared_bytes);
  block.shared = shared.data();
  if (warps.size() < warp_count) warps.resize(warp_count);

  const std::uint64_t local_bytes = block.local_bytes_per_thread * kLanes * warp_count;
  if (local_bytes > kLocalBytesPerBlockMax) {
    Warp& warp = warps.front();
    warp.block = &block;
    warp.code = code.ops.data();
    RaiseFault(warp, code.ops.data(), Fault::Kind::kResources, 0, local_bytes, 0);
    return false;
  }
  if (local.size() < local_bytes) local.resize(local_bytes);
  for (std::uint32_t i = 0; i < warp_count; ++i) PrepareWarp(launch, i);
  return true;
}

void BlockExecutor::State::PrepareWarp(const Launch& launch, std::uint32_t index) {
  const Code& code = launch.program->code();
  const FunctionCode& kernel = code.functions.front();
  Warp& warp = warps[index];
  // Registers of whoever ran before must not be seen.
  if (warp.registers_used != 0) std::memset(warp.registers, 0, warp.registers_used);
  warp.registers_used = 0;
  warp.activations.clear();
  EnsureRegisters(warp, kernel.frame_bytes);
  warp.code = code.ops.data();
  warp.block = &block;
  warp.index = index;
  warp.local = local.data() + block.local_bytes_per_thread * kLanes * index;
  BeginFrame(warp, kernel, warp.registers);
}

void BlockExecutor::State::BeginBlock(const Launch& launch, std::uint64_t number) {
  block.index.x = static_cast<std::uint32_t>(number % launch.grid.x);
  block.index.y = static_cast<std::uint32_t>(number / launch.grid.x % launch.grid.y);
  block.index.z = static_cast<std::uint32_t>(number / launch.grid.x / launch.grid.y);
  block.global_base = launch.memory.base;
  // Acquire, pairs with the owner's release store after mapping: the pages exist.
  block.global_bytes = launch.memory.mapped_bytes == nullptr
                           ? 0
                           : launch.memory.mapped_bytes->load(std::memory_order_acquire);
  block.live_threads = static_cast<std::uint32_t>(launch.block.Count());
  block.barriers = {};
  if (block.shared_bytes != 0) std::memset(block.shared, 0, block.shared_bytes);
  if (block.local_bytes_per_thread != 0) {
    std::memset(local.data(), 0, block.local_bytes_per_thread * kLanes * warp_count);
  }
  const FunctionCode& kernel = block.code->functions.front();
  for (std::uint32_t i = 0; i < warp_count; ++i) {
    Warp& warp = warps[i];
    warp.active = LanesOfWarp(launch.block.Count(), i);
    warp.exited = ~warp.active;
    warp.reconvergence = kNoReconvergence;
    warp.pause = Pause::kRunnable;
    warp.together = false;
    warp.pc = kernel.entry;
    warp.stack.clear();
    warp.parked.clear();
    warp.activations.assign(1, Activation{});
    warp.frame = warp.registers;
    warp.local_base = 0;
    for (const SpecialRow& row : kernel.special_rows) {
      if (ChangesPerBlock(row.what)) FillSpecialRow(warp, row, warp.registers);
    }
  }
}

template <bool Counted>
void BlockExecutor::State::Dispatch(Warp& warp, ExecutionCounts* counts) {
  warp.turns_left = static_cast<std::int32_t>(kBranchesPerTurn);
  warp.polled = false;
  const MicroOp* op = warp.code + warp.pc;
  while (op != nullptr) {
    if constexpr (Counted) {
      std::uint32_t guard = 0;
      std::memcpy(&guard, warp.frame + (op->guard & ~1u), 4);
      guard ^= 0u - (op->guard & 1u);
      ++counts->warp_instructions;
      counts->lane_instructions +=
          static_cast<std::uint32_t>(__builtin_popcount(warp.active & guard));
    }
    op = op->handler(warp, op);
  }
}

// One turn for each path of the warp. True when something ran.
template <bool Counted>
bool BlockExecutor::State::RunWarp(Warp& warp, ExecutionCounts* counts,
                                   const std::atomic<bool>& kill) {
  bool ran = false;
  const std::size_t paths = warp.parked.size() + 1;
  for (std::size_t i = 0; i < paths; ++i) {
    if (warp.pause == Pause::kRunnable) {
      Dispatch<Counted>(warp, counts);
      ran = true;
      if (warp.pause == Pause::kFaulted || kill.load(std::memory_order_relaxed)) return true;
      SettlePath(warp);
    }
    if (!RotatePaths(warp)) break;
  }
  if (warp.pause == Pause::kConverging || !warp.parked.empty()) {
    ran |= ReleaseConverged(warp, /*forced=*/false);
  }
  return ran;
}

bool BlockExecutor::State::ReleaseBarriers() {
  bool released = false;
  for (std::uint32_t number = 0; number < kBarriers; ++number) {
    Barrier& barrier = block.barriers[number];
    if (barrier.arrived == 0) continue;
    const std::uint32_t needed = barrier.expected != 0 ? barrier.expected : block.live_threads;
    if (barrier.arrived < needed) continue;
    const Barrier complete = std::exchange(barrier, Barrier{});
    for (std::uint32_t i = 0; i < warp_count; ++i) {
      ReleaseFromBarrier(warps[i], number, complete);
    }
    released = true;
  }
  return released;
}

bool BlockExecutor::State::ReleaseForced() {
  for (std::uint32_t i = 0; i < warp_count; ++i) {
    if (ReleaseConverged(warps[i], /*forced=*/true)) return true;
  }
  return false;
}

template <bool Counted>
BlockEnd BlockExecutor::State::RunBlock(ExecutionCounts* counts, const std::atomic<bool>& kill) {
  for (;;) {
    bool ran = false, finished = true;
    for (std::uint32_t i = 0; i < warp_count; ++i) {
      Warp& warp = warps[i];
      if (IsFinished(warp)) continue;
      ran |= RunWarp<Counted>(warp, counts, kill);
      if (warp.pause == Pause::kFaulted) return BlockEnd::kFaulted;
      if (kill.load(std::memory_order_relaxed)) return BlockEnd::kKilled;
      finished &= IsFinished(warp);
    }
    if (finished) return BlockEnd::kFinished;
    ran |= ReleaseBarriers();
    if (ran || ReleaseForced()) continue;
    for (std::uint32_t i = 0; i < warp_count; ++i) {
      Warp& warp = warps[i];
      if (IsFinished(warp)) continue;
      const std::uint32_t lane = static_cast<std::uint32_t>(__builtin_ctz(warp.active));
      RaiseFault(warp, warp.code + warp.pc, Fault::Kind::kDeadlock, lane, 0, 0);
      return BlockEnd::kFaulted;
    }
  }
}

template <bool Counted>
RunOutcome BlockExecutor::State::Run(const Launch& launch, std::uint64_t first_block,
                                     std::uint64_t count, const std::atomic<bool>& stop,
                                     const std::atomic<bool>& kill, ExecutionCounts* counts) {
  RunOutcome outcome;
  if (!Prepare(launch)) {
    outcome.end = RunOutcome::End::kFaulted;
    outcome.fault = fault;
    return outcome;
  }
  for (; outcome.blocks_done < count; ++outcome.blocks_done) {
    if (kill.load(std::memory_order_relaxed)) {
      outcome.end = RunOutcome::End::kKilled;
      return outcome;
    }
    if (stop.load(std::memory_order_relaxed)) {
      outcome.end = RunOutcome::End::kStopped;
      return outcome;
    }
    BeginBlock(launch, first_block + outcome.blocks_done);
    const BlockEnd end = RunBlock<Counted>(counts, kill);
    if (end == BlockEnd::kFinished) continue;
    outcome.end = end == BlockEnd::kKilled ? RunOutcome::End::kKilled : RunOutcome::End::kFaulted;
    if (end == BlockEnd::kFaulted) outcome.fault = fault;
    return outcome;
  }
  return outcome;
}

BlockExecutor::BlockExecutor() : state_(std::make_unique<State>()) {}
BlockExecutor::~BlockExecutor() = default;

RunOutcome BlockExecutor::Run(const Launch& launch, std::uint64_t first_block, std::uint64_t count,
                              const std::atomic<bool>& stop, const std::atomic<bool>& kill) {
  return state_->Run<false>(launch, first_block, count, stop, kill, nullptr);
}

RunOutcome BlockExecutor::RunCounted(const Launch& launch, std::uint64_t first_block,
                                     std::uint64_t count, const std::atomic<bool>& stop,
                                     const std::atomic<bool>& kill, ExecutionCounts* counts) {
  return state_->Run<true>(launch, first_block, count, stop, kill, counts);
}

}  // namespace gpushared::device::executor
