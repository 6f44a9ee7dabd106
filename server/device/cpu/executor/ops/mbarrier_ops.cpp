// SPDX-License-Identifier: Apache-2.0
// mbarrier: barriers in shared memory, in an opaque 64-bit format. Because kernels can overwrite
// the bits, every value is valid. One thread executes all warps of a block, so accesses need not be
// atomic.
#include "server/device/cpu/executor/ops/memory.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

constexpr u32 kCountBits = 20;
constexpr u64 kCountMask = (u64{1} << kCountBits) - 1;

// State of an mbarrier: pending arrivals of the current phase, expected arrivals of each phase, and
// the number of the current phase.
struct Mbarrier {
  u64 pending = 0, expected = 0, phase = 0;

  static Mbarrier Of(u64 bits) {
    return {bits & kCountMask, bits >> kCountBits & kCountMask, bits >> (2 * kCountBits)};
  }
  u64 bits() const { return pending | expected << kCountBits | phase << (2 * kCountBits); }
  // Ignores arrivals beyond the pending ones, which PTX does not define.
  void Arrive(u64 count, bool drops) {
    pending -= count < pending ? count : pending;
    if (drops) expected -= count < expected ? count : expected;
    if (pending != 0) return;
    pending = expected;
    ++phase;
  }
};

// Calls visit(lane, place) for each lane after checking that all places are in shared memory.
// Returns false after raising a fault.
template <typename Visit>
bool VisitPlaces(Warp& w, const MicroOp* op, u32 lanes, Visit visit) {
  std::byte* places[kLanes] = {};
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    places[l] = Checked<Space::kShared>(w, op, l, GetAddress<u64>(w.frame + op->a, op, l), 8);
    if (places[l] == nullptr) return false;
  }
  for (u32 rest = lanes; rest != 0; rest &= rest - 1) {
    const u32 l = static_cast<u32>(__builtin_ctz(rest));
    visit(l, places[l]);
  }
  return true;
}

const MicroOp* Init(Warp& w, const MicroOp* op) {
  const bool is_done = VisitPlaces(w, op, Lanes(w, op), [&](u32 l, std::byte* place) {
    const u64 count = Get<u32>(w.frame + op->b, l) & kCountMask;
    Write<u64>(place, Mbarrier{.pending = count, .expected = count}.bits());
  });
  return is_done ? op + 1 : nullptr;
}

const MicroOp* Invalidate(Warp& w, const MicroOp* op) {
  const auto clear = [](u32, std::byte* place) { Write<u64>(place, 0); };
  return VisitPlaces(w, op, Lanes(w, op), clear) ? op + 1 : nullptr;
}

// Arrives and returns the previous state, whose phase a wait compares.
template <bool kDrops>
const MicroOp* Arrive(Warp& w, const MicroOp* op) {
  const bool is_done = VisitPlaces(w, op, Lanes(w, op), [&](u32 l, std::byte* place) {
    const u64 count = Get<u32>(w.frame + op->b, l);
    const u64 before = Read<u64>(place);
    Mbarrier barrier = Mbarrier::Of(before);
    barrier.Arrive(count, kDrops);
    Write<u64>(place, barrier.bits());
    Put<u64>(w.frame + op->destination, l, before);
  });
  return is_done ? op + 1 : nullptr;
}

// Returns whether the phase with the given state or parity has ended.
template <bool kByParity>
const MicroOp* TestWait(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  Polled(w);
  u32 ended = 0;
  const bool is_done = VisitPlaces(w, op, lanes, [&](u32 l, std::byte* place) {
    const u64 phase = Mbarrier::Of(Read<u64>(place)).phase;
    const u64 difference = kByParity ? (phase ^ Get<u32>(w.frame + op->b, l)) & 1
                                     : phase ^ Mbarrier::Of(Get<u64>(w.frame + op->b, l)).phase;
    if (difference != 0) ended |= kBit[l];
  });
  if (!is_done) return nullptr;
  SetPredicate(w, op->destination, lanes, ended);
  return op + 1;
}

u32 PendingCount(u64 state) { return static_cast<u32>(Mbarrier::Of(state).pending); }

}  // namespace

void AddMbarrierOps(const OpSink& sink) {
  AddOp(sink, kRows, Init, "mbarrier.init");
  AddOp(sink, kRows, Invalidate, "mbarrier.inval");
  AddOp(sink, kRows, Arrive<false>, "mbarrier.arrive");
  AddOp(sink, kRows, Arrive<true>, "mbarrier.arrive_drop");
  AddOp(sink, kRows.Predicates(OpRule::kDestination), TestWait<false>, "mbarrier.test_wait");
  AddOp(sink, kRows.Predicates(OpRule::kDestination), TestWait<true>, "mbarrier.test_wait.parity");
  AddOp(sink, kRows, Unary<u32, u64, PendingCount>, "mbarrier.pending_count");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
