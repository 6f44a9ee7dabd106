// SPDX-License-Identifier: Apache-2.0
// cvt between f16, bf16 and every other type.
#include "server/device/cpu/executor/ops/half_float.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

template <typename D, typename H>
D Widen(H a) {
  return static_cast<D>(ToFloat(a));
}
// Subnormals of bf16 are subnormals of f32; those of f16 are not.
template <typename H>
float WidenFlushed(H a) {
  return FlushSubnormal(ToFloat(a));
}

template <typename H, Rounding R, bool Relu>
H FromFloat(float a) {
  const float value = Relu && !(a > 0) && a == a ? 0.0f : a;
  return NarrowBy<H, R>(value);
}
_Float16 FromFloatSaturated(float a) {
  const float low = a > 0 ? a : 0.0f;
  return Narrow<_Float16>(low < 1 ? low : 1.0f);
}
template <typename H>
H FromDouble(double a) {
  return NarrowDouble<H>(a);
}

// Integers above 2^53 are not exact in double, so their low bits are replaced by a sticky bit,
// which suffices for rounding to fewer bits.
template <typename H, typename A>
H FromInteger(A a) {
  if constexpr (sizeof(A) == 8) {
    constexpr u64 kLowBits = 0x7ff;
    const bool negative = std::is_signed_v<A> && a < 0;
    const u64 magnitude = negative ? u64{0} - static_cast<u64>(a) : static_cast<u64>(a);
    const u64 sticky = (magnitude & kLowBits) != 0 ? kLowBits + 1 : 0;
    const u64 kept = magnitude >> 53 != 0 ? (magnitude & ~kLowBits) | sticky : magnitude;
    const double value = static_cast<double>(kept);
    return NarrowDouble<H>(negative ? -value : value);
  } else {
    return NarrowDouble<H>(static_cast<double>(a));
  }
}

template <typename H, Rounding R>
GPUSHARED_INLINE float Integral(H a) {
  const float value = ToFloat(a);
  const float magnitude = FloatAbs<float, false>(value);
  if (!(magnitude < 8388608.0f)) return value;
  const float nearest = CopySign<float>(value, (magnitude + 8388608.0f) - 8388608.0f);
  if (R == Rounding::kDown) return nearest > value ? nearest - 1 : nearest;
  if (R == Rounding::kUp) return nearest < value ? nearest + 1 : nearest;
  if (R == Rounding::kZero) {
    const float size = FloatAbs<float, false>(nearest);
    return CopySign<float>(value, size > magnitude ? size - 1 : size);
  }
  return nearest;
}

template <typename D, typename H, Rounding R>
D ToInteger(H a) {
  const double value = Integral<H, R>(a);
  constexpr bool kIsSigned = std::is_signed_v<D>;
  constexpr u32 kBitCount = sizeof(D) * 8;
  constexpr double kLimit = static_cast<double>(u64{1} << (kBitCount - 1)) * (kIsSigned ? 1 : 2);
  constexpr D kHighest =
      static_cast<D>(kIsSigned ? ~u64{0} >> (65 - kBitCount) : ~u64{0} >> (64 - kBitCount));
  if (value != value) return kBitCount == 64 ? static_cast<D>(u64{1} << 63) : D{0};
  if (value >= kLimit) return kHighest;
  if (value < (kIsSigned ? -kLimit : 0.0)) return kIsSigned ? static_cast<D>(-kHighest - 1) : D{0};
  return static_cast<D>(value);
}

template <typename H, Rounding R>
H RoundInPlace(H a) {
  return Narrow<H>(CopySign<float>(ToFloat(a), Integral<H, R>(a)));
}
template <typename H>
H Same(H a) {
  return a;
}

// cvt.rn.f16x2.f32 d, a, b: a becomes the upper half.
template <typename H, Rounding R, bool Relu>
u32 FromTwo(float a, float b) {
  return GetPair(FromFloat<H, R, Relu>(b), FromFloat<H, R, Relu>(a));
}

template <typename H, typename I>
void AddInteger(const OpSink& sink, const char* half, const char* type) {
  using enum Rounding;
  AddOp(sink, kRows, UnarySeldom<H, I, FromInteger<H, I>>, "cvt.rn", half, type);
  AddOp(sink, kRows, UnarySeldom<I, H, ToInteger<I, H, kNearest>>, "cvt.rni", type, half);
  AddOp(sink, kRows, UnarySeldom<I, H, ToInteger<I, H, kZero>>, "cvt.rzi", type, half);
  AddOp(sink, kRows, UnarySeldom<I, H, ToInteger<I, H, kDown>>, "cvt.rmi", type, half);
  AddOp(sink, kRows, UnarySeldom<I, H, ToInteger<I, H, kUp>>, "cvt.rpi", type, half);
}

template <typename H, bool Relu>
void AddFromFloat(const OpSink& sink, const char* relu, const char* half, const char* pair) {
  using enum Rounding;
  AddOp(sink, kRows, Unary<H, float, FromFloat<H, kNearest, Relu>>, "cvt.rn", relu, half, "f32");
  AddOp(sink, kRows, Unary<H, float, FromFloat<H, kZero, Relu>>, "cvt.rz", relu, half, "f32");
  if constexpr (!Relu) {
    AddOp(sink, kRows, Unary<H, float, FromFloat<H, kDown, false>>, "cvt.rm", half, "f32");
    AddOp(sink, kRows, Unary<H, float, FromFloat<H, kUp, false>>, "cvt.rp", half, "f32");
  }
  AddOp(sink, kRows, Binary<u32, float, float, FromTwo<H, kNearest, Relu>>, "cvt.rn", relu, pair,
        "f32");
  AddOp(sink, kRows, Binary<u32, float, float, FromTwo<H, kZero, Relu>>, "cvt.rz", relu, pair,
        "f32");
}

template <typename H>
void AddHalfConversions(const OpSink& sink, const char* half, const char* pair) {
  using enum Rounding;
  AddOp(sink, kRows, Unary<float, H, Widen<float, H>>, "cvt.f32", half);
  AddOp(sink, kRows, Unary<float, H, WidenFlushed<H>>, "cvt.ftz.f32", half);
  AddOp(sink, kRows, Unary<double, H, Widen<double, H>>, "cvt.f64", half);
  AddFromFloat<H, false>(sink, "", half, pair);
  AddFromFloat<H, true>(sink, "relu", half, pair);
  AddOp(sink, kRows, Unary<H, double, FromDouble<H>>, "cvt.rn", half, "f64");
  AddOp(sink, kRows, UnarySeldom<H, H, RoundInPlace<H, kNearest>>, "cvt.rni", half, half);
  AddOp(sink, kRows, UnarySeldom<H, H, RoundInPlace<H, kZero>>, "cvt.rzi", half, half);
  AddOp(sink, kRows, UnarySeldom<H, H, RoundInPlace<H, kDown>>, "cvt.rmi", half, half);
  AddOp(sink, kRows, UnarySeldom<H, H, RoundInPlace<H, kUp>>, "cvt.rpi", half, half);
  AddOp(sink, kRows, Unary<H, H, Same<H>>, "cvt", half, half);
  AddInteger<H, u8>(sink, half, "u8");
  AddInteger<H, s8>(sink, half, "s8");
  AddInteger<H, u16>(sink, half, "u16");
  AddInteger<H, s16>(sink, half, "s16");
  AddInteger<H, u32>(sink, half, "u32");
  AddInteger<H, s32>(sink, half, "s32");
  AddInteger<H, u64>(sink, half, "u64");
  AddInteger<H, s64>(sink, half, "s64");
}

bf16 HalfToBf16(_Float16 a) { return Narrow<bf16>(ToFloat(a)); }
_Float16 Bf16ToHalf(bf16 a) { return Narrow<_Float16>(ToFloat(a)); }

}  // namespace

void AddHalfConvertOps(const OpSink& sink) {
  AddHalfConversions<_Float16>(sink, "f16", "f16x2");
  AddHalfConversions<bf16>(sink, "bf16", "bf16x2");
  AddOp(sink, kRows, Unary<_Float16, float, FromFloatSaturated>, "cvt.rn.sat.f16.f32");
  AddOp(sink, kRows, Unary<bf16, _Float16, HalfToBf16>, "cvt.rn.bf16.f16");
  AddOp(sink, kRows, Unary<_Float16, bf16, Bf16ToHalf>, "cvt.rn.f16.bf16");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
