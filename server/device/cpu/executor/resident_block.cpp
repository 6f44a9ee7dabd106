// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/executor/resident_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "server/device/cpu/executor/paths.h"

namespace gpushared::device::executor {
namespace {

// Local memory is cleared in pieces of this size, with a check for a kill between them.
constexpr std::uint64_t kClearedAtOnce = std::uint64_t{1} << 20;

bool ChangesPerBlock(SpecialRegister what) {
  return what == SpecialRegister::kBlockX || what == SpecialRegister::kBlockY ||
         what == SpecialRegister::kBlockZ;
}

std::uint32_t LanesOfWarp(std::uint64_t threads, std::uint32_t warp) {
  const std::uint64_t left = threads - std::uint64_t{warp} * kLanes;
  return left >= kLanes ? kAllLanes : (1u << left) - 1;
}

}  // namespace

bool ResidentBlock::Prepare(const Launch& launch, LaunchState* state, const std::atomic<bool>& kill,
                            Fault* fault) {
  const Code& code = launch.program->code();
  const std::uint64_t threads = launch.block.Count();
  warp_count_ = static_cast<std::uint32_t>((threads + kLanes - 1) / kLanes);
  block_ = {};
  block_.launch = &launch;
  block_.state = state;
  block_.code = &code;
  block_.fault = fault;
  block_.parameters = launch.parameters.data();
  block_.parameter_bytes = launch.parameters.size();
  const std::uint64_t asked = std::uint64_t{code.static_shared_bytes} + launch.dynamic_shared_bytes;
  block_.shared_bytes =
      (asked + kSharedGranuleBytes - 1) / kSharedGranuleBytes * kSharedGranuleBytes;
  SetStack(code);
  if (shared_.bytes() < block_.shared_bytes) shared_ = RegisterMemory(block_.shared_bytes);
  block_.shared = shared_.data();
  if (warps_.size() < warp_count_) warps_.resize(warp_count_);

  const std::uint64_t local_bytes = block_.local_bytes_per_thread * kLanes * warp_count_;
  if (local_bytes <= kLocalBytesPerBlockMax && local_.bytes() < local_bytes) {
    local_ = Pages();
    local_ = Pages(local_bytes);
  }
  // The size exceeds the limit of a block, or the allocation failed.
  if (local_.bytes() < local_bytes) {
    Warp& warp = warps_.front();
    warp.block = &block_;
    warp.code = code.ops.data();
    RaiseFault(warp, code.ops.data(), Fault::Kind::kResources, 0, local_bytes, 0);
    return false;
  }
  // Clearing up to register_bytes_per_warp_max for each warp takes long, so a kill is checked
  // between warps.
  for (std::uint32_t i = 0; i < warp_count_ && !kill.load(std::memory_order_relaxed); ++i) {
    PrepareWarp(i);
  }
  return true;
}

// Scales the limits with the stack, relative to kRecursionLocalBytes.
void ResidentBlock::SetStack(const Code& code) {
  const std::uint64_t stack = code.uses_stack ? block_.launch->stack_bytes : kRecursionLocalBytes;
  block_.local_bytes_per_thread = code.local_bytes_per_thread + stack - kRecursionLocalBytes;
  block_.call_depth_max = kCallDepthMax * stack / kRecursionLocalBytes;
  block_.register_bytes_per_warp_max = std::max(
      kRegisterBytesPerWarpMax, std::min(kRegisterBytesPerWarpMax * stack / kRecursionLocalBytes,
                                         kRegisterBytesPerBlockMax / warp_count_));
}

void ResidentBlock::Resume(const Launch& launch, LaunchState* state,
                           std::chrono::nanoseconds paused) {
  watch_.Skip(paused);
  block_.launch = &launch;
  block_.state = state;
  block_.parameters = launch.parameters.data();
  SetWindow();
}

void ResidentBlock::SetWindow() {
  const MemoryWindow& memory = block_.launch->memory;
  // Acquire: pairs with the owner's release store after mapping, so the pages exist.
  block_.mapped_bytes =
      memory.mapped_bytes == nullptr ? 0 : memory.mapped_bytes->load(std::memory_order_acquire);
  block_.has_reach = memory.reach != nullptr && !memory.reach->is_everything();
  block_.global_base = memory.base;
  // Empty for a launch with an access set: its first access moves the window.
  block_.global_bytes = block_.has_reach ? 0 : block_.mapped_bytes;
}

void ResidentBlock::PrepareWarp(std::uint32_t index) {
  const Code& code = *block_.code;
  const FunctionCode& kernel = code.functions.front();
  Warp& warp = warps_[index];
  // Clears the registers of the previous run, because that run may have been another client's.
  if (warp.registers_used != 0) std::memset(warp.registers, 0, warp.registers_used);
  warp.registers_used = 0;
  warp.activations.clear();
  warp.block = &block_;
  EnsureRegisters(warp, kernel.frame_bytes);
  warp.code = code.ops.data();
  warp.index = index;
  warp.local = local_.data() + block_.local_bytes_per_thread * kLanes * index;
  BeginFrame(warp, kernel, warp.registers);
}

void ResidentBlock::Begin(std::uint64_t number) {
  const Launch& launch = *block_.launch;
  is_finished_ = false;
  block_.index.x = static_cast<std::uint32_t>(number % launch.grid.x);
  block_.index.y = static_cast<std::uint32_t>(number / launch.grid.x % launch.grid.y);
  block_.index.z = static_cast<std::uint32_t>(number / launch.grid.x / launch.grid.y);
  SetWindow();
  block_.live_threads = static_cast<std::uint32_t>(launch.block.Count());
  block_.barriers = {};
  if (block_.shared_bytes != 0) {
    std::memset(block_.shared, launch.leftover, block_.shared_bytes);
  }
  local_cleared_ = 0;
  next_warp_ = 0;
  watch_ = PollWatch();
  const FunctionCode& kernel = block_.code->functions.front();
  for (std::uint32_t i = 0; i < warp_count_; ++i) {
    Warp& warp = warps_[i];
    warp.active = LanesOfWarp(launch.block.Count(), i);
    warp.exited = ~warp.active;
    warp.reconvergence = kNoReconvergence;
    warp.pause = Pause::kRunnable;
    warp.together = false;
    warp.pc = kernel.entry;
    warp.stack.clear();
    warp.waiting.clear();
    warp.activations.assign(1, Activation{});
    warp.frame = warp.registers;
    warp.local_base = 0;
    warp.stack_pointers.fill(block_.local_bytes_per_thread);
    warp.lowest_stack = block_.local_bytes_per_thread;
    for (const SpecialRow& row : kernel.special_rows) {
      if (ChangesPerBlock(row.what)) FillSpecialRow(warp, row, warp.registers);
    }
  }
}

// Returns kRan when everything is cleared.
Round ResidentBlock::ClearLocal(const std::atomic<bool>& kill, const PauseTerms* terms) {
  const std::uint64_t bytes = block_.local_bytes_per_thread * kLanes * warp_count_;
  while (local_cleared_ < bytes) {
    if (kill.load(std::memory_order_relaxed)) return Round::kKilled;
    const std::uint64_t piece = std::min(kClearedAtOnce, bytes - local_cleared_);
    std::memset(local_.data() + local_cleared_, block_.launch->leftover, piece);
    local_cleared_ += piece;
    if (local_cleared_ < bytes && IsDue(terms)) return Round::kCut;
  }
  return Round::kRan;
}

template <bool Counted>
void ResidentBlock::Dispatch(Warp& warp, ExecutionCounts* counts) {
  warp.turns_left = static_cast<std::int32_t>(kBranchesPerTurn);
  warp.polled = false;
  warp.sleep_ns = 0;
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
  // A turn that polled and was used up ran a loop that may be waiting.
  only_polls_ &= warp.polled && warp.pause == Pause::kRunnable;
  polled_ |= warp.polled;
  sleep_ns_ = std::min(sleep_ns_, warp.sleep_ns);
}

// Runs one turn for each path of the warp. Returns true if anything ran.
template <bool Counted>
bool ResidentBlock::RunWarp(Warp& warp, ExecutionCounts* counts, const std::atomic<bool>& kill,
                            const PauseTerms* terms) {
  bool ran = false;
  const std::size_t paths = warp.waiting.size() + 1;
  for (std::size_t i = 0; i < paths; ++i) {
    if (warp.pause == Pause::kRunnable) {
      warp.kill = &kill;
      warp.pause_terms = terms;
      Dispatch<Counted>(warp, counts);
      ran = true;
      if (warp.pause == Pause::kFaulted || kill.load(std::memory_order_relaxed)) return true;
      SettlePath(warp);
    }
    if (!RotatePaths(warp) || (ran && IsDue(terms))) break;
  }
  const bool released = ReleaseConverged(warp);
  only_polls_ &= !released;
  return ran || released;
}

bool ResidentBlock::ReleaseBarriers() {
  bool released = false;
  for (std::uint32_t number = 0; number < kBarriers; ++number) {
    Barrier& barrier = block_.barriers[number];
    if (barrier.arrived == 0) continue;
    const std::uint32_t needed = barrier.expected != 0 ? barrier.expected : block_.live_threads;
    if (barrier.arrived < needed) continue;
    const Barrier complete = std::exchange(barrier, Barrier{});
    for (std::uint32_t i = 0; i < warp_count_; ++i) {
      ReleaseFromBarrier(warps_[i], number, complete);
    }
    released = true;
  }
  return released;
}

void ResidentBlock::RaiseDeadlock() {
  for (std::uint32_t i = 0; i < warp_count_; ++i) {
    if (RaiseMissingLanes(warps_[i])) return;
  }
  for (std::uint32_t i = 0; i < warp_count_; ++i) {
    Warp& warp = warps_[i];
    if (IsFinished(warp)) continue;
    const std::uint32_t lane = static_cast<std::uint32_t>(__builtin_ctz(warp.active));
    RaiseFault(warp, warp.code + warp.pc, Fault::Kind::kDeadlock, lane, 0, 0);
    return;
  }
}

template <bool Counted>
Round ResidentBlock::Run(ExecutionCounts* counts, const std::atomic<bool>& kill,
                         const PauseTerms* terms) {
  if (kill.load(std::memory_order_relaxed)) return Round::kKilled;
  if (const Round cleared = ClearLocal(kill, terms); cleared != Round::kRan) return cleared;
  if (next_warp_ == 0) {
    ran_ = false;
    all_finished_ = only_polls_ = true;
    polled_ = false;
    sleep_ns_ = UINT32_MAX;
  }
  // Leaves only after at least one warp has advanced, so that each call makes progress.
  for (bool got_on = false; next_warp_ < warp_count_; ++next_warp_) {
    Warp& warp = warps_[next_warp_];
    if (IsFinished(warp)) continue;
    if (got_on && IsDue(terms)) return Round::kCut;
    got_on |= RunWarp<Counted>(warp, counts, kill, terms);
    ran_ |= got_on;
    if (warp.pause == Pause::kFaulted) return Round::kFaulted;
    if (kill.load(std::memory_order_relaxed)) return Round::kKilled;
    all_finished_ &= IsFinished(warp);
  }
  next_warp_ = 0;
  if (all_finished_) {
    is_finished_ = true;
    return Round::kFinished;
  }
  const bool released = ReleaseBarriers();
  if (!released && !ran_) {
    RaiseDeadlock();
    return Round::kFaulted;
  }
  if (!released && only_polls_) return Round::kSpinning;
  switch (watch_.Note(polled_, [this] { return StateHash(); })) {
    case PollWatch::Verdict::kWaits:
      return Round::kSpinning;
    case PollWatch::Verdict::kMayWait:
      return Round::kMayWait;
    case PollWatch::Verdict::kWorks:
      break;
  }
  return Round::kRan;
}

template Round ResidentBlock::Run<false>(ExecutionCounts*, const std::atomic<bool>&,
                                         const PauseTerms*);
template Round ResidentBlock::Run<true>(ExecutionCounts*, const std::atomic<bool>&,
                                        const PauseTerms*);

std::uint64_t ResidentBlock::bytes() const {
  std::uint64_t bytes = shared_.bytes() + local_.bytes();
  for (const Warp& warp : warps_) bytes += warp.register_memory.bytes();
  return bytes;
}

std::uint64_t ResidentBlock::StateHash() const {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (std::uint32_t i = 0; i < warp_count_; ++i) {
    const Warp& warp = warps_[i];
    mix(warp.pc);
    mix(warp.active);
    for (std::uint64_t at = 0; at + 8 <= warp.registers_used; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, warp.registers + at, sizeof word);
      mix(word);
    }
  }
  return hash;
}

void ResidentBlock::RaiseStall(std::uint64_t milliseconds) {
  Warp* at = nullptr;
  for (std::uint32_t i = 0; i < warp_count_; ++i) {
    Warp& warp = warps_[i];
    if (IsFinished(warp) || (at != nullptr && warp.pause != Pause::kRunnable)) continue;
    at = &warp;
    if (warp.pause == Pause::kRunnable) break;
  }
  const std::uint32_t lane = static_cast<std::uint32_t>(__builtin_ctz(at->active));
  RaiseFault(*at, at->code + at->pc, Fault::Kind::kStalled, lane, milliseconds, 0);
}

}  // namespace gpushared::device::executor
