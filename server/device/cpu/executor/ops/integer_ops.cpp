// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic.
#include "server/device/cpu/executor/ops/lanes.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;
template <typename T>
inline constexpr bool kSigned = std::is_signed_v<T>;
template <typename T>
inline constexpr u32 kBits = sizeof(T) * 8;

// Type with twice the width.
template <typename T>
struct GetWide;
// clang-format off
template <> struct GetWide<u16> { using Type = u32; };
template <> struct GetWide<s16> { using Type = s32; };
template <> struct GetWide<u32> { using Type = u64; };
template <> struct GetWide<s32> { using Type = s64; };
__extension__ template <> struct GetWide<u64> { using Type = unsigned __int128; };
__extension__ template <> struct GetWide<s64> { using Type = __int128; };
// clang-format on
template <typename T>
using Wide = typename GetWide<T>::Type;

template <typename T>
T Add(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) + static_cast<u64>(b));
}
template <typename T>
T Sub(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) - static_cast<u64>(b));
}
template <typename T>
T MulLow(T a, T b) {
  // Narrow types are multiplied as u32, because 0xffff * 0xffff would overflow int.
  using Work = std::conditional_t<sizeof(T) == 8, u64, u32>;
  return static_cast<T>(static_cast<Work>(a) * static_cast<Work>(b));
}
template <typename T>
Wide<T> MulWide(T a, T b) {
  if constexpr (std::is_same_v<T, u16>)
    return static_cast<u32>(a) * static_cast<u32>(b);
  else
    return static_cast<Wide<T>>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
}
template <typename T>
T MulHigh(T a, T b) {
  return static_cast<T>(MulWide(a, b) >> kBits<T>);
}
template <typename T>
T MadLow(T a, T b, T c) {
  return Add(MulLow(a, b), c);
}
template <typename T>
T MadHigh(T a, T b, T c) {
  return Add(MulHigh(a, b), c);
}
template <typename T>
Wide<T> MadWide(T a, T b, Wide<T> c) {
  using U = Unsigned<Wide<T>>;
  return static_cast<Wide<T>>(static_cast<U>(MulWide(a, b)) + static_cast<U>(c));
}

s32 Saturate32(s64 value) {
  return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : static_cast<s32>(value);
}
s32 AddSaturated(s32 a, s32 b) { return Saturate32(s64{a} + s64{b}); }
s32 SubSaturated(s32 a, s32 b) { return Saturate32(s64{a} - s64{b}); }
s32 MadHighSaturated(s32 a, s32 b, s32 c) { return Saturate32(s64{MulHigh(a, b)} + s64{c}); }

// Division by zero returns all ones, and its remainder is the dividend; the most negative value
// divided by -1 wraps. The host's division would trap in these cases.
template <typename T>
T Div(T a, T b) {
  if (b == 0) return static_cast<T>(-1);
  if constexpr (kSigned<T>) {
    if (b == -1) return Sub(T{0}, a);
  }
  return static_cast<T>(a / b);
}
template <typename T>
T Rem(T a, T b) {
  if (b == 0) return a;
  if constexpr (kSigned<T>) {
    if (b == -1) return 0;
  }
  return static_cast<T>(a % b);
}
template <typename T>
T Min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T Max(T a, T b) {
  return a < b ? b : a;
}
// Implements .relu: replaces a negative result by zero.
template <typename T>
T MinPositive(T a, T b) {
  return Max(Min(a, b), T{0});
}
template <typename T>
T MaxPositive(T a, T b) {
  return Max(Max(a, b), T{0});
}
template <typename T>
T Neg(T a) {
  return Sub(T{0}, a);
}
template <typename T>
T Abs(T a) {
  return a < 0 ? Neg(a) : a;
}
template <typename T>
T Sad(T a, T b, T c) {
  return Add(c, a < b ? Sub(b, a) : Sub(a, b));
}

template <typename T>
s64 Low24(T a) {
  if constexpr (kSigned<T>)
    return static_cast<s32>(static_cast<u32>(a) << 8) >> 8;
  else
    return a & 0xffffff;
}
template <typename T>
T Mul24Low(T a, T b) {
  return static_cast<T>(Low24(a) * Low24(b));
}
template <typename T>
T Mul24High(T a, T b) {
  return static_cast<T>((Low24(a) * Low24(b)) >> 16);
}
template <typename T>
T Mad24Low(T a, T b, T c) {
  return Add(Mul24Low(a, b), c);
}
template <typename T>
T Mad24High(T a, T b, T c) {
  return Add(Mul24High(a, b), c);
}

s32 Mad24HighSaturated(s32 a, s32 b, s32 c) { return Saturate32(s64{Mul24High(a, b)} + s64{c}); }

// Returns the dot product of four bytes (or two halfwords of A with two bytes of B) plus c.
template <typename A, typename B>
u32 Dot4(u32 a, u32 b, u32 c) {
  u32 sum = c;
  for (u32 i = 0; i < 32; i += 8) {
    sum += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> i)) *
                            static_cast<s32>(static_cast<B>(b >> i)));
  }
  return sum;
}
template <typename A, typename B, u32 Shift>
u32 Dot2(u32 a, u32 b, u32 c) {
  u32 sum = c;
  for (u32 i = 0; i < 2; ++i) {
    sum += static_cast<u32>(static_cast<s32>(static_cast<A>(a >> (16 * i))) *
                            static_cast<s32>(static_cast<B>(b >> (8 * i + Shift))));
  }
  return sum;
}

template <typename T, T (*F)(T, T)>
u32 Pairwise(u32 a, u32 b) {
  const u32 low = static_cast<u16>(F(static_cast<T>(a), static_cast<T>(b)));
  const u32 high = static_cast<u16>(F(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
  return high << 16 | low;
}

// Addition and subtraction with the condition code. `immediate` bit 0: reads it, bit 1: writes it.
// As in hardware, a subtraction is a + ~b + 1, so its carry is 1 if there was no borrow. Chains may
// mix additions and subtractions, because both use the same carry.
template <typename T, bool Subtract>
const MicroOp* WithCarry(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  std::byte* d = w.frame + op->destination;
  const u32 carry_unread = Subtract ? ~u32{0} : 0;
  const u32 carry_in = (op->immediate & 1) != 0 ? Predicate(w, kCarry) : carry_unread;
  u32 carry_out = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    const T x = Get<T>(a, l);
    const T y = Subtract ? static_cast<T>(~Get<T>(b, l)) : Get<T>(b, l);
    T sum, result;
    bool out = __builtin_add_overflow(x, y, &sum);
    out |= __builtin_add_overflow(sum, static_cast<T>(carry_in >> l & 1), &result);
    carry_out |= out ? kBit[l] : 0;
    if ((lanes & kBit[l]) != 0) Put<T>(d, l, result);
  }
  if ((op->immediate & 2) != 0) SetPredicate(w, kCarry, lanes, carry_out);
  return op + 1;
}

template <typename T, bool High>
const MicroOp* MadWithCarry(Warp& w, const MicroOp* op) {
  const u32 lanes = Lanes(w, op);
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  std::byte* d = w.frame + op->destination;
  const u32 carry_in = (op->immediate & 1) != 0 ? Predicate(w, kCarry) : 0;
  u32 carry_out = 0;
  for (u32 l = 0; l < kLanes; ++l) {
    const T product =
        High ? MulHigh(Get<T>(a, l), Get<T>(b, l)) : MulLow(Get<T>(a, l), Get<T>(b, l));
    using U = Unsigned<T>;
    U sum, result;
    bool out = __builtin_add_overflow(static_cast<U>(product), static_cast<U>(Get<T>(c, l)), &sum);
    out |= __builtin_add_overflow(sum, static_cast<U>(carry_in >> l & 1), &result);
    carry_out |= out ? kBit[l] : 0;
    if ((lanes & kBit[l]) != 0) Put<T>(d, l, static_cast<T>(result));
  }
  if ((op->immediate & 2) != 0) SetPredicate(w, kCarry, lanes, carry_out);
  return op + 1;
}

template <typename T>
void AddCommon(const OpSink& sink, const char* type) {
  AddOp(sink, kRows, Binary<T, T, T, Add<T>>, "add", type);
  AddOp(sink, kRows, Binary<T, T, T, Sub<T>>, "sub", type);
  AddOp(sink, kRows, Binary<T, T, T, MulLow<T>>, "mul.lo", type);
  AddOp(sink, kRows, Binary<T, T, T, MulHigh<T>>, "mul.hi", type);
  AddOp(sink, kRows, Ternary<T, T, T, T, MadLow<T>>, "mad.lo", type);
  AddOp(sink, kRows, Ternary<T, T, T, T, MadHigh<T>>, "mad.hi", type);
  AddOp(sink, kRows, BinaryScalar<T, T, T, Div<T>>, "div", type);
  AddOp(sink, kRows, BinaryScalar<T, T, T, Rem<T>>, "rem", type);
  AddOp(sink, kRows, Binary<T, T, T, Min<T>>, "min", type);
  AddOp(sink, kRows, Binary<T, T, T, Max<T>>, "max", type);
  AddOp(sink, kRows, Ternary<T, T, T, T, Sad<T>>, "sad", type);
  if constexpr (kSigned<T>) {
    AddOp(sink, kRows, Unary<T, T, Abs<T>>, "abs", type);
    AddOp(sink, kRows, Unary<T, T, Neg<T>>, "neg", type);
  }
  if constexpr (sizeof(T) < 8) {
    AddOp(sink, kRows, Binary<Wide<T>, T, T, MulWide<T>>, "mul.wide", type);
    AddOp(sink, kRows, Ternary<Wide<T>, T, T, Wide<T>, MadWide<T>>, "mad.wide", type);
  }
  if constexpr (sizeof(T) >= 4) {
    using U = Unsigned<T>;
    AddOp(sink, kRows, WithCarry<U, false>, "addc", type);
    AddOp(sink, kRows, WithCarry<U, true>, "subc", type);
    AddOp(sink, kRows, MadWithCarry<T, false>, "madc.lo", type);
    AddOp(sink, kRows, MadWithCarry<T, true>, "madc.hi", type);
  }
}

template <typename T>
void Add24(const OpSink& sink, const char* type) {
  AddOp(sink, kRows, Binary<T, T, T, Mul24Low<T>>, "mul24.lo", type);
  AddOp(sink, kRows, Binary<T, T, T, Mul24High<T>>, "mul24.hi", type);
  AddOp(sink, kRows, Ternary<T, T, T, T, Mad24Low<T>>, "mad24.lo", type);
  AddOp(sink, kRows, Ternary<T, T, T, T, Mad24High<T>>, "mad24.hi", type);
}

template <typename A, typename B>
void AddDot(const OpSink& sink, const char* types) {
  using A16 = std::conditional_t<kSigned<A>, s16, u16>;
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, Dot4<A, B>>, "dp4a", types);
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, Dot2<A16, B, 0>>, "dp2a.lo", types);
  AddOp(sink, kRows, Ternary<u32, u32, u32, u32, Dot2<A16, B, 16>>, "dp2a.hi", types);
}

template <typename T>
void AddPairs(const OpSink& sink, const char* type) {
  AddOp(sink, kRows, Binary<u32, u32, u32, Pairwise<T, Add<T>>>, "add", type);
  AddOp(sink, kRows, Binary<u32, u32, u32, Pairwise<T, Min<T>>>, "min", type);
  AddOp(sink, kRows, Binary<u32, u32, u32, Pairwise<T, Max<T>>>, "max", type);
}

}  // namespace

void AddIntegerOps(const OpSink& sink) {
  AddCommon<u16>(sink, "u16");
  AddCommon<s16>(sink, "s16");
  AddCommon<u32>(sink, "u32");
  AddCommon<s32>(sink, "s32");
  AddCommon<u64>(sink, "u64");
  AddCommon<s64>(sink, "s64");
  Add24<u32>(sink, "u32");
  Add24<s32>(sink, "s32");
  AddDot<u8, u8>(sink, "u32.u32");
  AddDot<s8, s8>(sink, "s32.s32");
  AddDot<u8, s8>(sink, "u32.s32");
  AddDot<s8, u8>(sink, "s32.u32");
  AddPairs<u16>(sink, "u16x2");
  AddPairs<s16>(sink, "s16x2");
  AddOp(sink, kRows, Binary<u32, u32, u32, Pairwise<s16, MinPositive<s16>>>, "min.relu.s16x2");
  AddOp(sink, kRows, Binary<u32, u32, u32, Pairwise<s16, MaxPositive<s16>>>, "max.relu.s16x2");
  AddOp(sink, kRows, Binary<s32, s32, s32, MinPositive<s32>>, "min.relu.s32");
  AddOp(sink, kRows, Binary<s32, s32, s32, MaxPositive<s32>>, "max.relu.s32");
  AddOp(sink, kRows, Binary<s32, s32, s32, AddSaturated>, "add.sat.s32");
  AddOp(sink, kRows, Binary<s32, s32, s32, SubSaturated>, "sub.sat.s32");
  AddOp(sink, kRows, Ternary<s32, s32, s32, s32, MadHighSaturated>, "mad.hi.sat.s32");
  AddOp(sink, kRows, Ternary<s32, s32, s32, s32, Mad24HighSaturated>, "mad24.hi.sat.s32");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
