// SPDX-License-Identifier: Apache-2.0
// Branches, calls, returns, barriers and other operations that affect the position of a warp.
// Compiled once, for any x86-64.
//
// Divergence: a branch that splits the active lanes pushes the waiting lanes (the other side and,
// below it, the reconvergence point of both) and runs one side. `reconverge` ops are placed where
// lanes can meet; there the warp pops the next entry.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "server/device/cpu/executor/device_heap.h"
#include "server/device/cpu/executor/ops/lanes.h"
#include "server/device/cpu/executor/print.h"

namespace gpushared::device::executor {
namespace {

using baseline::Get;
using baseline::kBit;
using baseline::Lanes;
using baseline::Predicate;
using baseline::Put;
using baseline::SetPredicate;
using baseline::StoreLanes;
using std::uint32_t;
using std::uint64_t;

// Costs of kOpsPerCheck operations and of one lane's printf, in branches.
constexpr std::int32_t kCheckBranches = 64, kPrintBranches = 16;

uint32_t GetIndex(const Warp& w, const MicroOp* op) { return static_cast<uint32_t>(op - w.code); }

// Ends the warp's turn; its next one continues at `next`.
const MicroOp* EndTurn(Warp& w, const MicroOp* next) {
  w.pc = GetIndex(w, next);
  w.pause = Pause::kRunnable;
  return nullptr;
}

bool IsKilled(const Warp& w) {
  // Relaxed, because no other data depends on the flag.
  return w.kill->load(std::memory_order_relaxed);
}

// Charges `branches` to the warp's turn. Returns true if the turn is over. A pause request does not
// end a turn at its first check, because some operations check before they do anything.
bool IsTurnOver(Warp& w, std::int32_t branches = 1) {
  const bool is_first = w.turns_left == static_cast<std::int32_t>(kBranchesPerTurn);
  w.turns_left -= branches;
  return w.turns_left < 0 || IsKilled(w) || (!is_first && IsDue(w.pause_terms));
}

const MicroOp* Jump(Warp& w, const MicroOp* from, const MicroOp* to) {
  if (to <= from && IsTurnOver(w)) return EndTurn(w, to);
  return to;
}

// Checks for a kill. The decoder inserts this op into long code without branches.
const MicroOp* CheckKill(Warp& w, const MicroOp* op) {
  return IsTurnOver(w, kCheckBranches) ? EndTurn(w, op + 1) : op + 1;
}

const MicroOp* Branch(Warp& w, const MicroOp* op) { return Jump(w, op, w.code + op->target); }

// Makes the active lanes reconverge at `point`.
void MeetAt(Warp& w, uint32_t point) {
  if (w.reconvergence == point) return;
  w.stack.push_back({point, w.reconvergence, w.active, false});
  w.reconvergence = point;
}

const MicroOp* BranchIf(Warp& w, const MicroOp* op) {
  const uint32_t taken = Lanes(w, op);
  if (taken == 0) return op + 1;
  const MicroOp* target = w.code + op->target;
  if (taken == w.active) return Jump(w, op, target);
  const uint32_t point = op->reconvergence;
  // Checks for a kill here, because the side that branches backward runs only when the stack is
  // popped, and popping makes no checks. Without this check, a loop that one lane leaves in each
  // round would never detect a kill.
  if (target <= op && GetIndex(w, op + 1) != point && IsTurnOver(w)) return EndTurn(w, op);
  const uint32_t others = w.active & ~taken;
  MeetAt(w, point);
  if (op->target == point) {
    w.active = others;
    return op + 1;
  }
  if (GetIndex(w, op + 1) == point) {
    w.active = taken;
    return Jump(w, op, target);
  }
  w.stack.push_back({op->target, point, taken, false});
  w.active = others;
  return op + 1;
}

// Implements brx.idx. The row of the index is in a, the number of the table in the immediate.
const MicroOp* BranchIndexed(Warp& w, const MicroOp* op) {
  const auto& table = w.block->code->branch_tables[static_cast<std::size_t>(op->immediate)];
  uint32_t rest = Lanes(w, op);
  if (rest == 0) return op + 1;
  if (IsTurnOver(w)) return EndTurn(w, op);
  if (w.stack.size() > kSplitsMax) {
    return RaiseFault(w, op, Fault::Kind::kSplitDepth, static_cast<uint32_t>(__builtin_ctz(rest)),
                      w.stack.size(), 0);
  }
  const uint32_t idle = w.active & ~rest;
  MeetAt(w, op->reconvergence);
  if (idle != 0) w.stack.push_back({GetIndex(w, op + 1), op->reconvergence, idle, false});
  while (rest != 0) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint32_t index = Get<uint32_t>(w.frame + op->a, lane);
    if (index >= table.size()) {
      return RaiseFault(w, op, Fault::Kind::kInvalidOperand, lane, index, 0);
    }
    uint32_t same = 0;
    for (uint32_t l = lane; l < kLanes; ++l) {
      const bool equal = (rest & kBit[l]) != 0 && Get<uint32_t>(w.frame + op->a, l) == index;
      same |= equal ? kBit[l] : 0;
    }
    rest &= ~same;
    w.stack.push_back({table[index], op->reconvergence, same, false});
  }
  return PopStack(w);
}

const MicroOp* Reconverge(Warp& w, const MicroOp* op) {
  return w.reconvergence == GetIndex(w, op) ? PopStack(w) : op + 1;
}

const MicroOp* Exit(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  w.exited |= lanes;
  w.block->live_threads -= static_cast<uint32_t>(__builtin_popcount(lanes));
  if (lanes == w.active) return PopStack(w);
  w.active &= ~lanes;
  return op + 1;
}

std::byte* GetArea(const Warp& w, const FunctionCode& function, uint64_t frame_offset,
                   uint32_t lane) {
  return w.registers + frame_offset + function.area_offset + uint64_t{lane} * function.area_bytes;
}

// Copies between the parameter areas of a caller and the called function: `outer_slots` are those
// of the call, `inner_slots` those of the function.
void CopyArguments(const Warp& w, const std::vector<AreaSlot>& outer_slots,
                   const std::vector<AreaSlot>& inner_slots, const Activation& caller,
                   const Activation& callee, uint32_t lanes, bool to_callee) {
  const Code& code = *w.block->code;
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    std::byte* outer = GetArea(w, code.functions[caller.function], caller.frame_offset, lane);
    std::byte* inner = GetArea(w, code.functions[callee.function], callee.frame_offset, lane);
    for (std::size_t i = 0; i < outer_slots.size(); ++i) {
      std::byte* in_caller = outer + outer_slots[i].offset;
      std::byte* in_callee = inner + inner_slots[i].offset;
      if (to_callee) {
        std::memcpy(in_callee, in_caller, outer_slots[i].bytes);
      } else {
        std::memcpy(in_caller, in_callee, outer_slots[i].bytes);
      }
    }
  }
}

const CallSite& GetSite(const Warp& w, const MicroOp* op) {
  return w.block->code->call_sites[static_cast<std::size_t>(op->immediate)];
}

// Makes `lanes` enter the function; the other active lanes wait after the call.
const MicroOp* Enter(Warp& w, const MicroOp* op, uint32_t target, uint32_t lanes) {
  const Code& code = *w.block->code;
  const CallSite& site = GetSite(w, op);
  const FunctionCode& function = code.functions[target];
  const Activation caller = w.activations.back();
  const FunctionCode& from = code.functions[caller.function];
  const Activation callee = {target, FreeFrameOffset(w), caller.local_base + from.local_bytes};
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(lanes));
  if (w.activations.size() > w.block->call_depth_max ||
      callee.local_base + function.local_bytes > w.lowest_stack ||
      !EnsureRegisters(w, callee.frame_offset + function.frame_bytes)) {
    return RaiseFault(w, op, Fault::Kind::kCallDepth, first, w.activations.size(), 0);
  }
  w.stack.push_back({GetIndex(w, op + 1), w.reconvergence, w.active, true});
  w.activations.push_back(callee);
  w.active = lanes;
  w.reconvergence = kNoReconvergence;
  w.frame = w.registers + callee.frame_offset;
  w.local_base = callee.local_base;
  BeginFrame(w, function, w.frame);
  CopyArguments(w, site.arguments, function.arguments, caller, callee, lanes, true);
  return w.code + function.entry;
}

const MicroOp* Call(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (IsTurnOver(w)) return EndTurn(w, op);
  return Enter(w, op, GetSite(w, op).function, lanes);
}

bool SameSizes(const std::vector<AreaSlot>& a, const std::vector<AreaSlot>& b) {
  return std::ranges::equal(a, b, {}, &AreaSlot::bytes, &AreaSlot::bytes);
}

// Returns the function at a lane's address; no value after raising a fault.
std::optional<uint32_t> GetTarget(Warp& w, const MicroOp* op, uint32_t lane, uint64_t address) {
  const Code& code = *w.block->code;
  const CallSite& site = GetSite(w, op);
  const auto found =
      std::ranges::lower_bound(code.callable, address, {}, &CallableFunction::address);
  const auto& listed = code.target_lists[site.target_list];
  const bool known = found != code.callable.end() && found->address == address;
  if (!known || (site.target_list != 0 && !std::ranges::binary_search(listed, address))) {
    RaiseFault(w, op, Fault::Kind::kCallTarget, lane, address, 0);
    return std::nullopt;
  }
  const FunctionCode& function = code.functions[found->function];
  if (!SameSizes(function.arguments, site.arguments) ||
      !SameSizes(function.results, site.results)) {
    RaiseFault(w, op, Fault::Kind::kCallPrototype, lane, address, 0);
    return std::nullopt;
  }
  return found->function;
}

uint32_t LanesAt(const Warp& w, const MicroOp* op, uint32_t lanes, uint64_t address) {
  uint32_t same = 0;
  for (uint32_t l = 0; l < kLanes; ++l) {
    same |= Get<uint64_t>(w.frame + op->a, l) == address ? lanes & kBit[l] : 0;
  }
  return same;
}

// Row a holds the addresses. Lanes that call a different function than the first lane wait at this
// op, which is executed again for them. Lanes that have returned wait at the following
// `reconverge`.
const MicroOp* CallIndirect(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (IsTurnOver(w)) return EndTurn(w, op);
  uint32_t first_target = 0, first_lanes = 0;
  // All addresses are checked first, because no lane may call anything if one of them faults.
  for (uint32_t rest = lanes; rest != 0;) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint64_t address = Get<uint64_t>(w.frame + op->a, lane);
    const std::optional<uint32_t> target = GetTarget(w, op, lane, address);
    if (!target) return nullptr;
    const uint32_t same = LanesAt(w, op, rest, address);
    if (first_lanes == 0) first_target = *target, first_lanes = same;
    rest &= ~same;
  }
  if (first_lanes != lanes) {
    MeetAt(w, GetIndex(w, op + 1));
    w.stack.push_back({GetIndex(w, op), w.reconvergence, lanes & ~first_lanes, false});
    w.active = first_lanes;
  }
  return Enter(w, op, first_target, first_lanes);
}

// Implements ret in a .func: the lanes leave the call and wait until the others have left it as
// well.
const MicroOp* Return(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  const Activation callee = w.activations.back();
  const Activation caller = w.activations[w.activations.size() - 2];
  std::size_t entry = w.stack.size() - 1;
  for (; !w.stack[entry].is_call; --entry) w.stack[entry].mask &= ~lanes;
  const MicroOp* call = w.code + w.stack[entry].pc - 1;
  const FunctionCode& function = w.block->code->functions[callee.function];
  CopyArguments(w, GetSite(w, call).results, function.results, caller, callee, lanes, false);
  if (lanes == w.active) return PopStack(w);
  w.active &= ~lanes;
  return op + 1;
}

// ---- alloca, stacksave and stackrestore: each thread's stack grows down from the end of its local
// memory towards the frames of its functions. Its pointer is only a number, because loads and
// stores check all addresses.

// Frames of functions that are called later must not overlap the stack of any lane.
void RecordLowestStack(Warp& w) {
  w.lowest_stack =
      std::min(w.block->local_bytes_per_thread, *std::ranges::min_element(w.stack_pointers));
}

const MicroOp* SaveStack(Warp& w, const MicroOp* op) {
  for (uint32_t rest = Lanes(w, op); rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    Put<uint64_t>(w.frame + op->destination, lane, w.stack_pointers[lane]);
  }
  return op + 1;
}

const MicroOp* RestoreStack(Warp& w, const MicroOp* op) {
  for (uint32_t rest = Lanes(w, op); rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    w.stack_pointers[lane] = Get<uint64_t>(w.frame + op->a, lane);
  }
  RecordLowestStack(w);
  return op + 1;
}

// Allocates on the stack; `immediate` is the alignment.
const MicroOp* AllocateStack(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  const FunctionCode& function = w.block->code->functions[w.activations.back().function];
  const uint64_t floor = w.local_base + function.local_bytes;
  const uint64_t mask = ~(static_cast<uint64_t>(op->immediate) - 1);
  for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint64_t size = Get<uint64_t>(w.frame + op->a, lane), top = w.stack_pointers[lane];
    const uint64_t pointer = (top - size) & mask;
    const bool fits = size <= top && top <= w.block->local_bytes_per_thread && pointer >= floor;
    if (!fits) return RaiseFault(w, op, Fault::Kind::kStackSpace, lane, size, 0);
    w.stack_pointers[lane] = pointer;
    Put<uint64_t>(w.frame + op->destination, lane, pointer);
  }
  RecordLowestStack(w);
  return op + 1;
}

// Describes an access to the parameter area of the running function. The immediate is the offset.
// `extra` contains the size of an element in bits 0..7, the number of elements in bits 8..15, and
// whether they are sign-extended in bit 16.
struct AreaAccess {
  uint32_t bytes, count;
  bool is_signed;
  explicit AreaAccess(const MicroOp* op)
      : bytes(op->extra & 0xff), count(op->extra >> 8 & 0xff), is_signed((op->extra >> 16) != 0) {}
};

std::byte* AreaAt(Warp& w, const MicroOp* op, uint32_t lane) {
  const Activation& here = w.activations.back();
  return GetArea(w, w.block->code->functions[here.function], here.frame_offset, lane) +
         op->immediate;
}

const MicroOp* LoadArea(Warp& w, const MicroOp* op) {
  const AreaAccess access(op);
  for (uint32_t rest = Lanes(w, op); rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const std::byte* from = AreaAt(w, op, lane);
    for (uint32_t i = 0; i < access.count; ++i) {
      uint64_t value = 0;
      std::memcpy(&value, from + std::size_t{i} * access.bytes, access.bytes);
      if (access.is_signed) {
        const uint32_t shift = 64 - access.bytes * 8;
        value = static_cast<uint64_t>(static_cast<std::int64_t>(value << shift) >> shift);
      }
      std::byte* row = w.frame + op->rows[i];
      if (access.bytes == 8) {
        Put<uint64_t>(row, lane, value);
      } else {
        Put<uint32_t>(row, lane, static_cast<uint32_t>(value));
      }
    }
  }
  return op + 1;
}

const MicroOp* StoreArea(Warp& w, const MicroOp* op) {
  const AreaAccess access(op);
  for (uint32_t rest = Lanes(w, op); rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    std::byte* to = AreaAt(w, op, lane);
    for (uint32_t i = 0; i < access.count; ++i) {
      const std::byte* row = w.frame + op->rows[i];
      const uint64_t value =
          access.bytes == 8 ? Get<uint64_t>(row, lane) : uint64_t{Get<uint32_t>(row, lane)};
      std::memcpy(to + std::size_t{i} * access.bytes, &value, access.bytes);
    }
  }
  return op + 1;
}

uint64_t AreaWord(Warp& w, const MicroOp* op, uint32_t lane, uint32_t offset, uint32_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, AreaAt(w, op, lane) + offset, bytes);
  return value;
}

// vprintf(format, arguments): rows[0] and rows[1] are the area offsets of both, rows[2] is that of
// the result if the call has one.
template <bool kHasResult>
const MicroOp* Print(Warp& w, const MicroOp* op) {
  for (uint32_t rest = Lanes(w, op); rest != 0; rest &= rest - 1) {
    // Checked before printing, so that a killed warp has no further effects.
    if (IsKilled(w)) return EndTurn(w, op);
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint64_t format = AreaWord(w, op, lane, op->rows[0], 8);
    const uint64_t arguments = AreaWord(w, op, lane, op->rows[1], 8);
    std::int32_t conversions = 0;
    if (!PrintFormatted(w, op, lane, format, arguments, &conversions)) return nullptr;
    if constexpr (kHasResult) {
      std::memcpy(AreaAt(w, op, lane) + op->rows[2], &conversions, sizeof(conversions));
    }
    w.turns_left -= kPrintBranches;
  }
  return IsTurnOver(w, 0) ? EndTurn(w, op + 1) : op + 1;
}

// __assertfail(message, file, line, function, size): MicroOp::rows holds the area offsets of the
// first four arguments.
const MicroOp* Assert(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
  RaiseAssert(w, op, lane, AreaWord(w, op, lane, op->rows[0], 8),
              AreaWord(w, op, lane, op->rows[1], 8),
              static_cast<uint32_t>(AreaWord(w, op, lane, op->rows[2], 4)),
              AreaWord(w, op, lane, op->rows[3], 8));
  return nullptr;
}

// malloc(bytes): rows[0] is the area offset of the size, rows[1] that of the result.
const MicroOp* HeapAllocate(Warp& w, const MicroOp* op) {
  DeviceHeap* const heap = w.block->launch->heap;
  for (uint32_t rest = Lanes(w, op); rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint64_t bytes = AreaWord(w, op, lane, op->rows[0], 8);
    const uint64_t address = heap == nullptr ? 0 : heap->Allocate(bytes).value_or(0);
    std::memcpy(AreaAt(w, op, lane) + op->rows[1], &address, sizeof(address));
  }
  return op + 1;
}

// free(address): rows[0] is the area offset of the address.
const MicroOp* HeapFree(Warp& w, const MicroOp* op) {
  DeviceHeap* const heap = w.block->launch->heap;
  for (uint32_t rest = Lanes(w, op); rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint64_t address = AreaWord(w, op, lane, op->rows[0], 8);
    if (address == 0 || (heap != nullptr && heap->Free(address))) continue;
    return RaiseFault(w, op, Fault::Kind::kFreedAddress, lane, address, 0);
  }
  return op + 1;
}

enum class BarrierResult { kNone, kCount, kAll, kAny };

// Returns the number of threads that this arrival represents. As in hardware, a counted barrier
// counts whole warps when every live lane of the warp arrives.
uint32_t ArrivingThreads(const Warp& w, bool counted) {
  if (counted && (w.active | w.exited) == kAllLanes) return kLanes;
  return static_cast<uint32_t>(__builtin_popcount(w.active));
}

// Arrives at the barrier whose number is in row a; the thread count is in row b if extra != 0.
// Returns false after raising a fault.
bool Arrive(Warp& w, const MicroOp* op, uint32_t lanes, uint32_t predicate) {
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(lanes));
  const uint32_t number = Get<uint32_t>(w.frame + op->a, first);
  const uint32_t count = op->extra != 0 ? Get<uint32_t>(w.frame + op->b, first) : 0;
  if (number >= kBarriers || (op->extra != 0 && (count == 0 || count > kThreadsPerBlockMax))) {
    RaiseFault(w, op, Fault::Kind::kInvalidOperand, first, number, 0);
    return false;
  }
  Barrier& barrier = w.block->barriers[number];
  barrier.arrived += ArrivingThreads(w, op->extra != 0);
  barrier.expected = count;
  barrier.predicate_count += static_cast<uint32_t>(__builtin_popcount(predicate & w.active));
  barrier.any |= (predicate & w.active) != 0;
  barrier.all &= (predicate & w.active) == w.active;
  w.barrier = number;
  return true;
}

const MicroOp* BarrierArrive(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  if (lanes != 0 && !Arrive(w, op, lanes, 0)) return nullptr;
  return op + 1;
}

template <BarrierResult R>
const MicroOp* BarrierSync(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  if (!w.together) {
    const uint32_t predicate = R == BarrierResult::kNone ? 0 : Predicate(w, op->c);
    if (!Arrive(w, op, lanes, predicate)) return nullptr;
    w.pc = GetIndex(w, op);
    w.pause = Pause::kAtBarrier;
    return nullptr;
  }
  w.together = false;
  if constexpr (R == BarrierResult::kCount) {
    StoreLanes<uint32_t>(w.frame + op->destination, lanes,
                         [&](uint32_t) { return w.barrier_count; });
  }
  if constexpr (R == BarrierResult::kAll) {
    SetPredicate(w, op->destination, lanes, w.barrier_all ? kAllLanes : 0);
  }
  if constexpr (R == BarrierResult::kAny) {
    SetPredicate(w, op->destination, lanes, w.barrier_any ? kAllLanes : 0);
  }
  return op + 1;
}

const MicroOp* Trap(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  return RaiseFault(w, op, Fault::Kind::kTrap, static_cast<uint32_t>(__builtin_ctz(lanes)), 0, 0);
}

const MicroOp* Nothing(Warp& /*w*/, const MicroOp* op) { return op + 1; }

// Placed after the last op of each function. Lanes that reach it fault, regardless of their guard.
const MicroOp* End(Warp& w, const MicroOp* op) {
  return RaiseFault(w, op, Fault::Kind::kTrap, static_cast<uint32_t>(__builtin_ctz(w.active)), 0,
                    0);
}

const MicroOp* MemoryFence(Warp& /*w*/, const MicroOp* op) {
  // Uses an instruction instead of the C++ fence. Tsan does not support fences, so gcc rejects a
  // C++ fence in a build with tsan.
  __builtin_ia32_mfence();
  return op + 1;
}

// A sleeping warp yields to the others. The caller decides how long the warp sleeps, depending on
// other work, but at most for the shortest sleep among its lanes.
const MicroOp* Sleep(Warp& w, const MicroOp* op) {
  const uint32_t lanes = Lanes(w, op);
  if (lanes == 0) return op + 1;
  w.polled = true;
  w.sleep_ns = UINT32_MAX;
  for (uint32_t l = 0; l < kLanes; ++l) {
    const auto wanted = Get<uint32_t>(w.frame + op->a, l);
    if ((lanes >> l & 1) != 0 && wanted < w.sleep_ns) w.sleep_ns = wanted;
  }
  return EndTurn(w, op + 1);
}

template <typename T, int Shift>
const MicroOp* Clock(Warp& w, const MicroOp* op) {
  const T now = static_cast<T>(__builtin_ia32_rdtsc() >> Shift);
  StoreLanes<T>(w.frame + op->destination, Lanes(w, op), [&](uint32_t) { return now; });
  return op + 1;
}

template <typename T, int Shift>
const MicroOp* GlobalTimer(Warp& w, const MicroOp* op) {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
  const T now = static_cast<T>(static_cast<uint64_t>(ns) >> Shift);
  StoreLanes<T>(w.frame + op->destination, Lanes(w, op), [&](uint32_t) { return now; });
  return op + 1;
}

}  // namespace

void AddControlOps(const OpSink& sink) {
  using baseline::AddOp;
  static constexpr OpRule kVotes = kRows.Predicates(OpRule::kDestination | OpRule::kC);
  AddOp(sink, OpRule(OpRule::kBranch), Branch, "bra");
  AddOp(sink, OpRule(OpRule::kSplit), BranchIf, "bra.if");
  AddOp(sink, OpRule(OpRule::kIndexed), BranchIndexed, "brx.idx");
  AddOp(sink, OpRule(OpRule::kCheckKill), CheckKill, "look");
  AddOp(sink, kRows, Reconverge, "reconverge");
  AddOp(sink, kRows, Exit, "exit");
  AddOp(sink, OpRule(OpRule::kCall), Call, "call");
  AddOp(sink, OpRule(OpRule::kIndirectCall), CallIndirect, "call.indirect");
  AddOp(sink, OpRule(OpRule::kReturn), Return, "return");
  AddOp(sink, kRows, SaveStack, "stack.save");
  AddOp(sink, kRows, RestoreStack, "stack.restore");
  AddOp(sink, kRows, AllocateStack, "stack.allocate");
  AddOp(sink, OpRule(OpRule::kArea), LoadArea, "ld.area");
  AddOp(sink, OpRule(OpRule::kArea), StoreArea, "st.area");
  AddOp(sink, AreaWords({8, 8, 4}), Print<true>, "vprintf");
  AddOp(sink, AreaWords({8, 8}), Print<false>, "vprintf.unread");
  AddOp(sink, AreaWords({8, 8, 4, 8}), Assert, "__assertfail");
  AddOp(sink, AreaWords({8, 8}), HeapAllocate, "malloc");
  AddOp(sink, AreaWords({8}), HeapFree, "free");
  AddOp(sink, kRows, BarrierArrive, "bar.arrive");
  AddOp(sink, kRows, BarrierSync<BarrierResult::kNone>, "bar.sync");
  AddOp(sink, kRows.Predicates(OpRule::kC), BarrierSync<BarrierResult::kCount>, "bar.red.popc");
  AddOp(sink, kVotes, BarrierSync<BarrierResult::kAll>, "bar.red.and");
  AddOp(sink, kVotes, BarrierSync<BarrierResult::kAny>, "bar.red.or");
  AddOp(sink, kRows, Trap, "trap");
  AddOp(sink, kRows, Nothing, "nothing");
  AddOp(sink, OpRule(OpRule::kEnd), End, "end");
  AddOp(sink, kRows, MemoryFence, "membar");
  AddOp(sink, kRows, Sleep, "nanosleep");
  AddOp(sink, kRows, Clock<uint32_t, 0>, "clock.b32");
  AddOp(sink, kRows, Clock<uint32_t, 32>, "clock_hi.b32");
  AddOp(sink, kRows, Clock<uint64_t, 0>, "clock.b64");
  AddOp(sink, kRows, GlobalTimer<uint64_t, 0>, "globaltimer.b64");
  AddOp(sink, kRows, GlobalTimer<uint32_t, 0>, "globaltimer_lo.b32");
  AddOp(sink, kRows, GlobalTimer<uint32_t, 32>, "globaltimer_hi.b32");
}

}  // namespace gpushared::device::executor
