// SPDX-License-Identifier: Apache-2.0
// f16x2 and bf16x2 arithmetic and comparison: two halves in one 32-bit word.
#include "server/device/cpu/executor/ops/half_float.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

__attribute__((noinline)) const MicroOp* OnPairs(Warp& w, const MicroOp* op, HalfFunction compute) {
  const u32 *a = Words(w, op->a), *b = Words(w, op->b), *c = Words(w, op->c);
  alignas(64) u32 upper_a[kLanes], upper_b[kLanes], upper_c[kLanes], low[kLanes], high[kLanes];
  UpperHalves(a, upper_a);
  UpperHalves(b, upper_b);
  UpperHalves(c, upper_c);
  compute(a, b, c, low);
  compute(upper_a, upper_b, upper_c, high);
  StoreLanes<u32>(w.frame + op->destination, Lanes(w, op),
                  [&](u32 l) { return high[l] << 16 | low[l]; });
  return op + 1;
}

template <HalfOp Op, typename H, bool Ftz, bool Sat, bool Relu>
const MicroOp* PairArithmetic(Warp& w, const MicroOp* op) {
  return OnPairs(w, op, ComputeRow<Op, H, Ftz, Sat, Relu>);
}

struct PairOrder {
  Order low, high;
};
template <typename H, bool Ftz>
PairOrder GetPairOrder(const Warp& w, const MicroOp* op) {
  const u32 *a = Words(w, op->a), *b = Words(w, op->b);
  alignas(64) u32 upper_a[kLanes], upper_b[kLanes];
  UpperHalves(a, upper_a);
  UpperHalves(b, upper_b);
  return {GetOrder<H, Ftz>(a, b), GetOrder<H, Ftz>(upper_a, upper_b)};
}

// Implements setp on pairs: `destination` receives the results of the low halves, rows[0] those of
// the high ones.
template <typename H, bool Ftz, u32 Outcomes>
const MicroOp* ComparePairs(Warp& w, const MicroOp* op) {
  const PairOrder order = GetPairOrder<H, Ftz>(w, op);
  const u32 lanes = Lanes(w, op);
  SetPredicate(w, op->destination, lanes, LanesWith<Outcomes>(order.low));
  SetPredicate(w, op->rows[0], lanes, LanesWith<Outcomes>(order.high));
  return op + 1;
}

// Implements set on pairs: each half becomes 0 or the immediate, which is 1.0, or 0xffff for
// integer results.
__attribute__((noinline)) const MicroOp* StorePairs(Warp& w, const MicroOp* op, u32 low, u32 high) {
  const u32 one = static_cast<u32>(op->immediate) & 0xffff;
  StoreLanes<u32>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    return ((high & kBit[l]) != 0 ? one << 16 : 0u) | ((low & kBit[l]) != 0 ? one : 0u);
  });
  return op + 1;
}
template <typename H, bool Ftz, u32 Outcomes>
const MicroOp* SetPairs(Warp& w, const MicroOp* op) {
  const PairOrder order = GetPairOrder<H, Ftz>(w, op);
  return StorePairs(w, op, LanesWith<Outcomes>(order.low), LanesWith<Outcomes>(order.high));
}

template <typename H, bool Ftz, u32 Outcomes>
void AddComparison(const OpSink& sink, const char* name, const char* type) {
  const char* ftz = Ftz ? "ftz" : "";
  AddOp(sink, kSetsPredicates, ComparePairs<H, Ftz, Outcomes>, "setp", name, ftz, type);
  AddOp(sink, kRows, SetPairs<H, Ftz, Outcomes>, "set", name, ftz, type);
}
template <typename H, bool Ftz, u32 Outcomes>
void AddRelation(const OpSink& sink, const char* name, const char* unordered, const char* type) {
  AddComparison<H, Ftz, Outcomes>(sink, name, type);
  AddComparison<H, Ftz, Outcomes | kUnordered>(sink, unordered, type);
}
template <typename H, bool Ftz>
void AddComparisons(const OpSink& sink, const char* type) {
  AddRelation<H, Ftz, kEqual>(sink, "eq", "equ", type);
  AddRelation<H, Ftz, kLess | kGreater>(sink, "ne", "neu", type);
  AddRelation<H, Ftz, kLess>(sink, "lt", "ltu", type);
  AddRelation<H, Ftz, kLess | kEqual>(sink, "le", "leu", type);
  AddRelation<H, Ftz, kGreater>(sink, "gt", "gtu", type);
  AddRelation<H, Ftz, kGreater | kEqual>(sink, "ge", "geu", type);
  AddComparison<H, Ftz, kLess | kEqual | kGreater>(sink, "num", type);
  AddComparison<H, Ftz, kUnordered>(sink, "nan", type);
}

template <typename H, bool Ftz>
void AddPairModes(const OpSink& sink, const char* ftz, const char* type) {
  using enum HalfOp;
  AddOp(sink, kRows, PairArithmetic<kAdd, H, Ftz, false, false>, "add.rn", ftz, type);
  AddOp(sink, kRows, PairArithmetic<kSub, H, Ftz, false, false>, "sub.rn", ftz, type);
  AddOp(sink, kRows, PairArithmetic<kMul, H, Ftz, false, false>, "mul.rn", ftz, type);
  AddOp(sink, kRows, PairArithmetic<kFma, H, Ftz, false, false>, "fma.rn", ftz, type);
  AddOp(sink, kRows, PairArithmetic<kFma, H, Ftz, false, true>, "fma.rn", ftz, "relu", type);
  AddOp(sink, kRows, PairArithmetic<kMin, H, Ftz, false, false>, "min", ftz, type);
  AddOp(sink, kRows, PairArithmetic<kMax, H, Ftz, false, false>, "max", ftz, type);
  AddOp(sink, kRows, PairArithmetic<kMinNan, H, Ftz, false, false>, "min", ftz, "NaN", type);
  AddOp(sink, kRows, PairArithmetic<kMaxNan, H, Ftz, false, false>, "max", ftz, "NaN", type);
  const char* const magnitude = "xorsign.abs";
  AddOp(sink, kRows, PairArithmetic<kMinMagnitude, H, Ftz, false, false>, "min", ftz, magnitude,
        type);
  AddOp(sink, kRows, PairArithmetic<kMaxMagnitude, H, Ftz, false, false>, "max", ftz, magnitude,
        type);
  AddOp(sink, kRows, PairArithmetic<kMinMagnitudeNan, H, Ftz, false, false>, "min", ftz, "NaN",
        magnitude, type);
  AddOp(sink, kRows, PairArithmetic<kMaxMagnitudeNan, H, Ftz, false, false>, "max", ftz, "NaN",
        magnitude, type);
  AddOp(sink, kRows, PairArithmetic<kNeg, H, Ftz, false, false>, "neg", ftz, type);
  AddOp(sink, kRows, PairArithmetic<kAbs, H, Ftz, false, false>, "abs", ftz, type);
}

template <typename H, bool Ftz>
void AddSaturatedPairs(const OpSink& sink, const char* ftz, const char* type) {
  using enum HalfOp;
  AddOp(sink, kRows, PairArithmetic<kAdd, H, Ftz, true, false>, "add.rn", ftz, "sat", type);
  AddOp(sink, kRows, PairArithmetic<kSub, H, Ftz, true, false>, "sub.rn", ftz, "sat", type);
  AddOp(sink, kRows, PairArithmetic<kMul, H, Ftz, true, false>, "mul.rn", ftz, "sat", type);
  AddOp(sink, kRows, PairArithmetic<kFma, H, Ftz, true, false>, "fma.rn", ftz, "sat", type);
}

// f16 supports .ftz and .sat; for bf16 only ex2 flushes, and it always does.
template <typename H>
void AddPairType(const OpSink& sink, const char* type) {
  constexpr bool kIsBf16 = std::is_same_v<H, bf16>;
  AddPairModes<H, false>(sink, "", type);
  if constexpr (!kIsBf16) {
    AddPairModes<H, true>(sink, "ftz", type);
    AddSaturatedPairs<H, false>(sink, "", type);
    AddSaturatedPairs<H, true>(sink, "ftz", type);
  }
  AddOp(sink, kRows, PairArithmetic<HalfOp::kExp2, H, kIsBf16, false, false>, "ex2.approx",
        kIsBf16 ? "ftz" : "", type);
  AddOp(sink, kRows, PairArithmetic<HalfOp::kTanh, H, false, false, false>, "tanh.approx", type);
  AddComparisons<H, false>(sink, type);
  if constexpr (!kIsBf16) AddComparisons<H, true>(sink, type);
}

}  // namespace

void AddHalfPairOps(const OpSink& sink) {
  AddPairType<_Float16>(sink, "f16x2");
  AddPairType<bf16>(sink, "bf16x2");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
