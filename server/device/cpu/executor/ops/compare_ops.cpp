// SPDX-License-Identifier: Apache-2.0
// Comparisons into predicates, selection by predicate, class tests.
#include "server/device/cpu/executor/ops/half_float.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

enum class Relation { kEq, kNe, kLt, kLe, kGt, kGe };

template <Relation R, typename T>
GPUSHARED_INLINE bool Holds(T a, T b) {
  if constexpr (R == Relation::kEq) return a == b;
  if constexpr (R == Relation::kNe) return a != b;
  if constexpr (R == Relation::kLt) return a < b;
  if constexpr (R == Relation::kLe) return a <= b;
  if constexpr (R == Relation::kGt) return a > b;
  if constexpr (R == Relation::kGe) return a >= b;
}

// Returns the value to compare: subnormals of f32 are flushed under .ftz.
template <typename T, bool Ftz>
GPUSHARED_INLINE T Comparable(T value) {
  if constexpr (Ftz)
    return FlushSubnormal(value);
  else
    return value;
}

template <typename T, typename F>
GPUSHARED_INLINE const MicroOp* CompareLanes(Warp& w, const MicroOp* op, F holds) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  u32 result = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    result |= holds(Get<T>(a, l), Get<T>(b, l)) ? kBit[l] : 0u;
  }
  SetPredicate(w, op->destination, Lanes(w, op), result);
  return op + 1;
}

template <Relation R, typename T, bool Ftz, bool OrUnordered>
const MicroOp* Compare(Warp& w, const MicroOp* op) {
  return CompareLanes<T>(w, op, [](T a, T b) {
    const auto x = Comparable<T, Ftz>(a), y = Comparable<T, Ftz>(b);
    if constexpr (OrUnordered) return Holds<R>(x, y) | (x != x) | (y != y);
    // For floats, plain ne is ordered: false if either operand is NaN.
    else if constexpr (R == Relation::kNe)
      return (x != y) & (x == x) & (y == y);
    else
      return Holds<R>(x, y);
  });
}

template <typename T, bool WhenNan>
const MicroOp* CompareOrder(Warp& w, const MicroOp* op) {
  return CompareLanes<T>(w, op, [](T a, T b) {
    const auto x = Comparable<T, false>(a), y = Comparable<T, false>(b);
    const bool nan = (x != x) | (y != y);
    return nan == WhenNan;
  });
}

template <typename H, u32 Outcomes>
const MicroOp* CompareHalves(Warp& w, const MicroOp* op) {
  const Order order = GetOrder<H, false>(Words(w, op->a), Words(w, op->b));
  SetPredicate(w, op->destination, Lanes(w, op), LanesWith<Outcomes>(order));
  return op + 1;
}

template <typename T>
const MicroOp* Select(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const u32 choice = Predicate(w, op->c);
  StoreLanes<T>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    const T x = Get<T>(a, l), y = Get<T>(b, l);
    return (choice & kBit[l]) != 0 ? x : y;
  });
  return op + 1;
}

enum class Class { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

template <typename Word, u32 FractionBits, Class C>
const MicroOp* TestClass(Warp& w, const MicroOp* op) {
  constexpr Word kFractionMask = (Word{1} << FractionBits) - 1;
  constexpr Word kExponentMask =
      static_cast<Word>(~(Word{1} << (sizeof(Word) * 8 - 1))) & static_cast<Word>(~kFractionMask);
  const std::byte* a = w.frame + op->a;
  u32 result = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    const Word bits = Get<Word>(a, l);
    const Word exponent = bits & kExponentMask;
    const bool fraction = (bits & kFractionMask) != 0;
    const bool special = exponent == kExponentMask;
    bool holds = false;
    switch (C) {
      case Class::kFinite:
        holds = !special;
        break;
      case Class::kInfinite:
        holds = special && !fraction;
        break;
      case Class::kNumber:
        holds = !(special && fraction);
        break;
      case Class::kNotANumber:
        holds = special && fraction;
        break;
      case Class::kNormal:
        holds = !special && exponent != 0;
        break;
      case Class::kSubnormal:
        holds = exponent == 0 && fraction;
        break;
    }
    result |= holds ? kBit[l] : 0u;
  }
  SetPredicate(w, op->destination, Lanes(w, op), result);
  return op + 1;
}

// Sets a predicate to whether a generic address is inside the window that begins at `immediate`.
const MicroOp* InWindow(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const u64 base = static_cast<u64>(op->immediate);
  u32 result = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    result |= Get<u64>(a, l) - base < kWindowBytes ? kBit[l] : 0u;
  }
  SetPredicate(w, op->destination, Lanes(w, op), result);
  return op + 1;
}

// Addresses outside of all windows are global; constant memory is handled as global memory.
const MicroOp* InGlobal(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  u32 result = 0;
  for (u32 l = 0; l < kLanes; ++l) result |= Get<u64>(a, l) < kSharedWindow ? kBit[l] : 0u;
  SetPredicate(w, op->destination, Lanes(w, op), result);
  return op + 1;
}

template <typename T>
void AddEquality(const OpSink& sink, const char* type) {
  AddOp(sink, kSetsPredicates, Compare<Relation::kEq, T, false, false>, "setp.eq", type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kNe, T, false, false>, "setp.ne", type);
}

template <typename T, bool Ftz>
void AddOrdered(const OpSink& sink, const char* ftz, const char* type) {
  AddOp(sink, kSetsPredicates, Compare<Relation::kEq, T, Ftz, false>, "setp.eq", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kNe, T, Ftz, false>, "setp.ne", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kLt, T, Ftz, false>, "setp.lt", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kLe, T, Ftz, false>, "setp.le", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kGt, T, Ftz, false>, "setp.gt", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kGe, T, Ftz, false>, "setp.ge", ftz, type);
}

template <typename T, bool Ftz>
void AddFloat(const OpSink& sink, const char* ftz, const char* type) {
  AddOrdered<T, Ftz>(sink, ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kEq, T, Ftz, true>, "setp.equ", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kNe, T, Ftz, true>, "setp.neu", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kLt, T, Ftz, true>, "setp.ltu", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kLe, T, Ftz, true>, "setp.leu", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kGt, T, Ftz, true>, "setp.gtu", ftz, type);
  AddOp(sink, kSetsPredicates, Compare<Relation::kGe, T, Ftz, true>, "setp.geu", ftz, type);
  AddOp(sink, kSetsPredicates, CompareOrder<T, false>, "setp.num", ftz, type);
  AddOp(sink, kSetsPredicates, CompareOrder<T, true>, "setp.nan", ftz, type);
}

template <typename H, u32 Outcomes>
void AddRelation(const OpSink& sink, const char* name, const char* unordered, const char* type) {
  AddOp(sink, kSetsPredicates, CompareHalves<H, Outcomes>, name, type);
  AddOp(sink, kSetsPredicates, CompareHalves<H, Outcomes | kUnordered>, unordered, type);
}
template <typename H>
void AddHalf(const OpSink& sink, const char* type) {
  AddRelation<H, kEqual>(sink, "setp.eq", "setp.equ", type);
  AddRelation<H, kLess | kGreater>(sink, "setp.ne", "setp.neu", type);
  AddRelation<H, kLess>(sink, "setp.lt", "setp.ltu", type);
  AddRelation<H, kLess | kEqual>(sink, "setp.le", "setp.leu", type);
  AddRelation<H, kGreater>(sink, "setp.gt", "setp.gtu", type);
  AddRelation<H, kGreater | kEqual>(sink, "setp.ge", "setp.geu", type);
  AddOp(sink, kSetsPredicates, CompareHalves<H, kLess | kEqual | kGreater>, "setp.num", type);
  AddOp(sink, kSetsPredicates, CompareHalves<H, kUnordered>, "setp.nan", type);
}

template <typename Word, u32 FractionBits>
void AddClasses(const OpSink& sink, const char* type) {
  using enum Class;
  AddOp(sink, kSetsPredicates, TestClass<Word, FractionBits, kFinite>, "testp.finite", type);
  AddOp(sink, kSetsPredicates, TestClass<Word, FractionBits, kInfinite>, "testp.infinite", type);
  AddOp(sink, kSetsPredicates, TestClass<Word, FractionBits, kNumber>, "testp.number", type);
  AddOp(sink, kSetsPredicates, TestClass<Word, FractionBits, kNotANumber>, "testp.notanumber",
        type);
  AddOp(sink, kSetsPredicates, TestClass<Word, FractionBits, kNormal>, "testp.normal", type);
  AddOp(sink, kSetsPredicates, TestClass<Word, FractionBits, kSubnormal>, "testp.subnormal", type);
}

}  // namespace

void AddCompareOps(const OpSink& sink) {
  AddEquality<u16>(sink, "b16");
  AddEquality<u32>(sink, "b32");
  AddEquality<u64>(sink, "b64");
  AddOrdered<u16, false>(sink, "", "u16");
  AddOrdered<s16, false>(sink, "", "s16");
  AddOrdered<u32, false>(sink, "", "u32");
  AddOrdered<s32, false>(sink, "", "s32");
  AddOrdered<u64, false>(sink, "", "u64");
  AddOrdered<s64, false>(sink, "", "s64");
  AddFloat<float, false>(sink, "", "f32");
  AddFloat<float, true>(sink, "ftz", "f32");
  AddFloat<double, false>(sink, "", "f64");
  AddHalf<_Float16>(sink, "f16");
  AddHalf<bf16>(sink, "bf16");
  AddOp(sink, kRows.Predicates(OpRule::kC), Select<u16>, "selp.b16");
  AddOp(sink, kRows.Predicates(OpRule::kC), Select<u32>, "selp.b32");
  AddOp(sink, kRows.Predicates(OpRule::kC), Select<u64>, "selp.b64");
  AddClasses<u32, 23>(sink, "f32");
  AddClasses<u64, 52>(sink, "f64");
  AddOp(sink, kSetsPredicates, InWindow, "isspacep.window");
  AddOp(sink, kSetsPredicates, InGlobal, "isspacep.global");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
