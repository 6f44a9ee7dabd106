// SPDX-License-Identifier: Apache-2.0
// f16x2 and bf16x2 arithmetic and comparison: two halves in one 32-bit word.
#include "server/executor/ops/half_float.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

template <HalfOp Op, typename H, bool Ftz, bool Sat, bool Relu>
const MicroOp* PairArithmetic(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  StoreLanes<u32>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    const u32 x = Get<u32>(a, l), y = Get<u32>(b, l), z = Get<u32>(c, l);
    return PairOf(
        Compute<Op, H, Ftz, Sat, Relu>(HalfOf<H>(x, 0), HalfOf<H>(y, 0), HalfOf<H>(z, 0)),
        Compute<Op, H, Ftz, Sat, Relu>(HalfOf<H>(x, 1), HalfOf<H>(y, 1), HalfOf<H>(z, 1)));
  });
  return op + 1;
}

enum class Relation { kEq, kNe, kLt, kLe, kGt, kGe, kAlways, kNever };

template <Relation R, bool OrUnordered>
GPUSHARED_INLINE bool Holds(float a, float b) {
  if ((a != a) | (b != b)) return OrUnordered;
  switch (R) {
    case Relation::kEq:
      return a == b;
    case Relation::kNe:
      return a != b;
    case Relation::kLt:
      return a < b;
    case Relation::kLe:
      return a <= b;
    case Relation::kGt:
      return a > b;
    case Relation::kGe:
      return a >= b;
    case Relation::kAlways:
      return true;
    case Relation::kNever:
      return false;
  }
}

template <typename H, bool Ftz>
GPUSHARED_INLINE float HalfValue(u32 pair, u32 which) {
  const H half = HalfOf<H>(pair, which);
  return ToFloat(Ftz ? FlushSubnormalHalf(half) : half);
}

// setp on pairs: `destination` for the low halves, rows[0] for the high ones.
template <typename H, bool Ftz, Relation R, bool OrUnordered>
const MicroOp* ComparePairs(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  u32 low = 0, high = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    const u32 x = Get<u32>(a, l), y = Get<u32>(b, l);
    const auto holds = [&](u32 half) {
      return Holds<R, OrUnordered>(HalfValue<H, Ftz>(x, half), HalfValue<H, Ftz>(y, half));
    };
    low |= holds(0) ? kBit[l] : 0;
    high |= holds(1) ? kBit[l] : 0;
  }
  const u32 lanes = Lanes(w, op);
  SetPredicate(w, op->destination, lanes, low);
  SetPredicate(w, op->rows[0], lanes, high);
  return op + 1;
}

// set on pairs: each half becomes 1.0 (`immediate`) or 0; for integer results the
// immediate is 0xffff.
template <typename H, bool Ftz, Relation R, bool OrUnordered>
const MicroOp* SetPairs(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const u32 one = static_cast<u32>(op->immediate) & 0xffff;
  StoreLanes<u32>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    const u32 x = Get<u32>(a, l), y = Get<u32>(b, l);
    const auto holds = [&](u32 half) {
      return Holds<R, OrUnordered>(HalfValue<H, Ftz>(x, half), HalfValue<H, Ftz>(y, half));
    };
    return (holds(1) ? one << 16 : 0u) | (holds(0) ? one : 0u);
  });
  return op + 1;
}

template <typename H, bool Ftz, Relation R, bool OrUnordered>
void AddComparison(const OpSink& sink, const char* name, const char* type) {
  const char* ftz = Ftz ? "ftz" : "";
  AddOp(sink, ComparePairs<H, Ftz, R, OrUnordered>, "setp", name, ftz, type);
  AddOp(sink, SetPairs<H, Ftz, R, OrUnordered>, "set", name, ftz, type);
}
template <typename H, bool Ftz, Relation R>
void AddRelation(const OpSink& sink, const char* name, const char* unordered, const char* type) {
  AddComparison<H, Ftz, R, false>(sink, name, type);
  AddComparison<H, Ftz, R, true>(sink, unordered, type);
}
template <typename H, bool Ftz>
void AddComparisons(const OpSink& sink, const char* type) {
  AddRelation<H, Ftz, Relation::kEq>(sink, "eq", "equ", type);
  AddRelation<H, Ftz, Relation::kNe>(sink, "ne", "neu", type);
  AddRelation<H, Ftz, Relation::kLt>(sink, "lt", "ltu", type);
  AddRelation<H, Ftz, Relation::kLe>(sink, "le", "leu", type);
  AddRelation<H, Ftz, Relation::kGt>(sink, "gt", "gtu", type);
  AddRelation<H, Ftz, Relation::kGe>(sink, "ge", "geu", type);
  AddComparison<H, Ftz, Relation::kAlways, false>(sink, "num", type);
  AddComparison<H, Ftz, Relation::kNever, true>(sink, "nan", type);
}

template <typename H, bool Ftz>
void AddPairModes(const OpSink& sink, const char* ftz, const char* type) {
  using enum HalfOp;
  AddOp(sink, PairArithmetic<kAdd, H, Ftz, false, false>, "add.rn", ftz, type);
  AddOp(sink, PairArithmetic<kSub, H, Ftz, false, false>, "sub.rn", ftz, type);
  AddOp(sink, PairArithmetic<kMul, H, Ftz, false, false>, "mul.rn", ftz, type);
  AddOp(sink, PairArithmetic<kFma, H, Ftz, false, false>, "fma.rn", ftz, type);
  AddOp(sink, PairArithmetic<kFma, H, Ftz, false, true>, "fma.rn", ftz, "relu", type);
  AddOp(sink, PairArithmetic<kMin, H, Ftz, false, false>, "min", ftz, type);
  AddOp(sink, PairArithmetic<kMax, H, Ftz, false, false>, "max", ftz, type);
  AddOp(sink, PairArithmetic<kMinNan, H, Ftz, false, false>, "min", ftz, "NaN", type);
  AddOp(sink, PairArithmetic<kMaxNan, H, Ftz, false, false>, "max", ftz, "NaN", type);
  AddOp(sink, PairArithmetic<kNeg, H, Ftz, false, false>, "neg", ftz, type);
  AddOp(sink, PairArithmetic<kAbs, H, Ftz, false, false>, "abs", ftz, type);
}

template <typename H, bool Ftz>
void AddSaturatedPairs(const OpSink& sink, const char* ftz, const char* type) {
  using enum HalfOp;
  AddOp(sink, PairArithmetic<kAdd, H, Ftz, true, false>, "add.rn", ftz, "sat", type);
  AddOp(sink, PairArithmetic<kSub, H, Ftz, true, false>, "sub.rn", ftz, "sat", type);
  AddOp(sink, PairArithmetic<kMul, H, Ftz, true, false>, "mul.rn", ftz, "sat", type);
  AddOp(sink, PairArithmetic<kFma, H, Ftz, true, false>, "fma.rn", ftz, "sat", type);
}

// .ftz and .sat belong to f16; of bf16 ex2 flushes, and has no other form.
template <typename H>
void AddPairType(const OpSink& sink, const char* type) {
  constexpr bool kIsBf16 = std::is_same_v<H, bf16>;
  AddPairModes<H, false>(sink, "", type);
  if constexpr (!kIsBf16) {
    AddPairModes<H, true>(sink, "ftz", type);
    AddSaturatedPairs<H, false>(sink, "", type);
    AddSaturatedPairs<H, true>(sink, "ftz", type);
  }
  AddOp(sink, PairArithmetic<HalfOp::kExp2, H, kIsBf16, false, false>, "ex2.approx",
        kIsBf16 ? "ftz" : "", type);
  AddOp(sink, PairArithmetic<HalfOp::kTanh, H, false, false, false>, "tanh.approx", type);
  AddComparisons<H, false>(sink, type);
  if constexpr (!kIsBf16) AddComparisons<H, true>(sink, type);
}

}  // namespace

void AddHalfPairOps(const OpSink& sink) {
  AddPairType<_Float16>(sink, "f16x2");
  AddPairType<bf16>(sink, "bf16x2");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
