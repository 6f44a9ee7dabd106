// SPDX-License-Identifier: Apache-2.0
// f16 and bf16 values. Arithmetic uses double, whose result is rounded once.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_HALF_FLOAT_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_HALF_FLOAT_H_

#include "server/device/cpu/executor/ops/float_ops.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {

template <typename H>
struct HalfTraits;
template <>
struct HalfTraits<_Float16> {
  static constexpr u16 kNan = 0x7fff;
  static constexpr u16 kInfinity = 0x7c00;  // Infinity, and also the mask of the exponent.
};
template <>
struct HalfTraits<bf16> {
  static constexpr u16 kNan = 0x7fff;
  static constexpr u16 kInfinity = 0x7f80;
};

GPUSHARED_INLINE float ToFloat(_Float16 value) { return static_cast<float>(value); }
GPUSHARED_INLINE float ToFloat(bf16 value) { return Bits<float>(u32{value.bits} << 16); }

// Replaces a subnormal by zero with the same sign.
template <typename H>
GPUSHARED_INLINE H FlushSubnormalHalf(H value) {
  const u16 bits = Bits<u16>(value);
  return Bits<H>((bits & HalfTraits<H>::kInfinity) == 0 ? static_cast<u16>(bits & 0x8000) : bits);
}

// Converts float to half, rounding to nearest even.
template <typename H>
GPUSHARED_INLINE H Narrow(float value) {
  if constexpr (std::is_same_v<H, _Float16>) {
    const u16 bits = Bits<u16>(static_cast<_Float16>(value));
    return Bits<_Float16>(value != value ? HalfTraits<H>::kNan : bits);
  } else {
    const u32 bits = Bits<u32>(value);
    const u32 rounded = bits + 0x7fff + (bits >> 16 & 1);
    return bf16{value != value ? HalfTraits<H>::kNan : static_cast<u16>(rounded >> 16)};
  }
}

// Converts double to float, rounding to odd, so that a later rounding to fewer bits gives the same
// result as rounding the exact value.
GPUSHARED_INLINE float ToOddFloat(double value) {
  const float nearest = static_cast<float>(value);
  const u32 bits = Bits<u32>(nearest);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  const double magnitude = value < 0 ? -value : value, near_magnitude = back < 0 ? -back : back;
  const u32 truncated = near_magnitude > magnitude ? bits - 1 : bits;
  return Bits<float>(truncated | 1);
}

template <typename H>
GPUSHARED_INLINE H NarrowDouble(double value) {
  return Narrow<H>(ToOddFloat(value));
}

// Rounds towards zero: bf16 by truncation, f16 by correcting the nearest value.
template <typename H>
GPUSHARED_INLINE H NarrowTowardZero(float value) {
  if (value != value) return Bits<H>(HalfTraits<H>::kNan);
  if constexpr (std::is_same_v<H, bf16>) {
    return bf16{static_cast<u16>(Bits<u32>(value) >> 16)};
  } else {
    const _Float16 nearest = static_cast<_Float16>(value);
    const float back = static_cast<float>(nearest);
    const float a = value < 0 ? -value : value, b = back < 0 ? -back : back;
    const bool infinite = (Bits<u32>(value) & 0x7fffffffu) == 0x7f800000u;
    return b > a && !infinite ? Bits<_Float16>(static_cast<u16>(Bits<u16>(nearest) - 1)) : nearest;
  }
}
template <typename H, bool Up>
GPUSHARED_INLINE H NarrowDirected(float value) {
  const H cut = NarrowTowardZero<H>(value);
  const bool away = Up ? value > 0 : value < 0;
  if (!away || ToFloat(cut) == value) return cut;
  return Bits<H>(static_cast<u16>(Bits<u16>(cut) + 1));
}
template <typename H, Rounding R>
GPUSHARED_INLINE H NarrowBy(float value) {
  if constexpr (R == Rounding::kNearest) return Narrow<H>(value);
  if constexpr (R == Rounding::kZero) return NarrowTowardZero<H>(value);
  if constexpr (R == Rounding::kUp) return NarrowDirected<H, true>(value);
  if constexpr (R == Rounding::kDown) return NarrowDirected<H, false>(value);
}

// Returns the sum rounded to odd: the last bit of an inexact sum is set, so that a later rounding
// to a half finds a tie only if the exact sum is one.
GPUSHARED_INLINE double AddToOdd(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  const double lost = (a - (sum - b_part)) + (b - b_part);  // The exact rounding error of `sum`.
  const u64 bits = Bits<u64>(sum);
  // False for infinities and NaN, whose `lost` is NaN.
  const bool inexact = (lost > 0) | (lost < 0);
  // A sum that was rounded away from zero is first decremented in magnitude.
  const bool away = (lost < 0) == (sum > 0);
  const u64 odd = (away ? bits - 1 : bits) | 1;
  return inexact ? Bits<double>(odd) : sum;
}

enum class HalfOp {
  kAdd,
  kSub,
  kMul,
  kFma,
  kMin,
  kMax,
  kMinNan,
  kMaxNan,
  kMinMagnitude,  // .xorsign.abs
  kMaxMagnitude,
  kMinMagnitudeNan,
  kMaxMagnitudeNan,
  kNeg,
  kAbs,
  kExp2,
  kTanh
};

template <HalfOp Op, typename H, bool Ftz, bool Sat, bool Relu>
GPUSHARED_INLINE H Compute(H a, H b, H c) {
  if constexpr (Ftz) {
    return FlushSubnormalHalf(Compute<Op, H, false, Sat, Relu>(
        FlushSubnormalHalf(a), FlushSubnormalHalf(b), FlushSubnormalHalf(c)));
  }
  const double x = ToFloat(a), y = ToFloat(b), z = ToFloat(c);
  if constexpr (Op == HalfOp::kNeg) return Bits<H>(static_cast<u16>(Bits<u16>(a) ^ 0x8000));
  if constexpr (Op == HalfOp::kAbs) return Bits<H>(static_cast<u16>(Bits<u16>(a) & 0x7fff));
  if constexpr (Op == HalfOp::kMin) {
    return Narrow<H>(Extreme<float, true, false>(ToFloat(a), ToFloat(b)));
  }
  if constexpr (Op == HalfOp::kMax) {
    return Narrow<H>(Extreme<float, false, false>(ToFloat(a), ToFloat(b)));
  }
  if constexpr (Op == HalfOp::kMinNan) {
    return Narrow<H>(Extreme<float, true, true>(ToFloat(a), ToFloat(b)));
  }
  if constexpr (Op == HalfOp::kMaxNan) {
    return Narrow<H>(Extreme<float, false, true>(ToFloat(a), ToFloat(b)));
  }
  if constexpr (Op == HalfOp::kMinMagnitude) {
    return Narrow<H>(SignedMagnitude<float, true, false>(ToFloat(a), ToFloat(b)));
  }
  if constexpr (Op == HalfOp::kMaxMagnitude) {
    return Narrow<H>(SignedMagnitude<float, false, false>(ToFloat(a), ToFloat(b)));
  }
  if constexpr (Op == HalfOp::kMinMagnitudeNan) {
    return Narrow<H>(SignedMagnitude<float, true, true>(ToFloat(a), ToFloat(b)));
  }
  if constexpr (Op == HalfOp::kMaxMagnitudeNan) {
    return Narrow<H>(SignedMagnitude<float, false, true>(ToFloat(a), ToFloat(b)));
  }
  double result = 0;
  if constexpr (Op == HalfOp::kAdd) result = x + y;
  if constexpr (Op == HalfOp::kSub) result = x - y;
  if constexpr (Op == HalfOp::kMul) result = x * y;
  if constexpr (Op == HalfOp::kFma) result = AddToOdd(x * y, z);
  if constexpr (Op == HalfOp::kExp2) result = __builtin_exp2(x);
  if constexpr (Op == HalfOp::kTanh) result = __builtin_tanh(x);
  if constexpr (Sat) {
    result = result > 0 ? result : 0;
    result = result < 1 ? result : 1;
  }
  if constexpr (Relu) result = result > 0 || result != result ? result : 0;
  return NarrowDouble<H>(result);
}

// An operation on one half of each lane, in words whose upper halves are ignored. Shared by single
// halves and pairs, because the code is large. The result must not overlap another row.
using HalfFunction = void (*)(const u32* a, const u32* b, const u32* c, u32* result);
template <HalfOp Op, typename H, bool Ftz, bool Sat, bool Relu>
__attribute__((noinline)) void ComputeRow(const u32* a, const u32* b, const u32* c, u32* result) {
  const auto half = [](u32 word) { return Bits<H>(static_cast<u16>(word)); };
#pragma GCC ivdep
  for (u32 l = 0; l < kLanes; ++l) {
    result[l] = Bits<u16>(Compute<Op, H, Ftz, Sat, Relu>(half(a[l]), half(b[l]), half(c[l])));
  }
}

GPUSHARED_INLINE const u32* Words(const Warp& w, u32 row) {
  return reinterpret_cast<const u32*>(w.frame + row);
}
// Extracts the upper halves of pairs.
GPUSHARED_INLINE void UpperHalves(const u32* pairs, u32* result) {
  for (u32 l = 0; l < kLanes; ++l) result[l] = pairs[l] >> 16;
}

// Masks of lanes by the result of comparing their values. Lanes in none of the three masks are
// unordered.
struct Order {
  u32 less = 0, equal = 0, greater = 0;
};
enum Outcome : u32 { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

// Returns the lanes whose result is among `Outcomes`.
template <u32 Outcomes>
GPUSHARED_INLINE u32 LanesWith(const Order& order) {
  u32 lanes = 0;
  if (Outcomes & kLess) lanes |= order.less;
  if (Outcomes & kEqual) lanes |= order.equal;
  if (Outcomes & kGreater) lanes |= order.greater;
  if (Outcomes & kUnordered) lanes |= ~(order.less | order.equal | order.greater);
  return lanes;
}

// Compares halves in words whose upper halves are ignored.
template <typename H, bool Ftz>
__attribute__((noinline)) Order GetOrder(const u32* a, const u32* b) {
  const auto value = [](u32 word) {
    const H half = Bits<H>(static_cast<u16>(word));
    return ToFloat(Ftz ? FlushSubnormalHalf(half) : half);
  };
  Order order;
  for (u32 l = 0; l < kLanes; ++l) {
    const float x = value(a[l]), y = value(b[l]);
    order.less |= x < y ? kBit[l] : 0;
    order.equal |= x == y ? kBit[l] : 0;
    order.greater |= x > y ? kBit[l] : 0;
  }
  return order;
}

template <typename H>
GPUSHARED_INLINE H GetHalf(u32 pair, u32 which) {
  return Bits<H>(static_cast<u16>(pair >> (16 * which)));
}
template <typename H>
GPUSHARED_INLINE u32 GetPair(H low, H high) {
  return u32{Bits<u16>(high)} << 16 | Bits<u16>(low);
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_HALF_FLOAT_H_
