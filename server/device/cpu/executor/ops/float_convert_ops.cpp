// SPDX-License-Identifier: Apache-2.0
// cvt from f32 and f64 to integers and to each other.
#include "server/device/cpu/executor/ops/float_ops.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

template <typename T>
GPUSHARED_INLINE T RoundToIntegral(T value, Rounding rounding) {
#if defined(__SSE4_1__)
  if constexpr (sizeof(T) == 4) {
    switch (rounding) {
      case Rounding::kNearest:
        return __builtin_roundevenf(value);
      case Rounding::kZero:
        return __builtin_truncf(value);
      case Rounding::kDown:
        return __builtin_floorf(value);
      case Rounding::kUp:
        return __builtin_ceilf(value);
    }
  } else {
    switch (rounding) {
      case Rounding::kNearest:
        return __builtin_roundeven(value);
      case Rounding::kZero:
        return __builtin_trunc(value);
      case Rounding::kDown:
        return __builtin_floor(value);
      case Rounding::kUp:
        return __builtin_ceil(value);
    }
  }
  return value;
#else
  // Without SSE4.1 the C functions are calls; this arithmetic can be vectorized instead. Adding and
  // removing 2^23 (2^52) rounds to nearest even.
  constexpr T kMagic = sizeof(T) == 4 ? T{8388608.0} : T{4503599627370496.0};
  const T magnitude = FloatAbs<T, false>(value);
  const T rounded = CopySign<T>(value, (magnitude + kMagic) - kMagic);
  T result = rounded;
  if (rounding == Rounding::kDown) result = rounded > value ? rounded - T{1} : rounded;
  if (rounding == Rounding::kUp) result = rounded < value ? rounded + T{1} : rounded;
  if (rounding == Rounding::kZero) {
    const T shrunk = CopySign<T>(value, FloatAbs<T, false>(rounded) - T{1});
    result = FloatAbs<T, false>(rounded) > magnitude ? shrunk : rounded;
  }
  result = CopySign<T>(value, result);
  return magnitude < kMagic ? result : value;  // Large values and NaN are returned unchanged.
#endif
}

// Saturates out-of-range values. NaN becomes 0; from f64, or for 64-bit results, it becomes a value
// with only the highest bit set.
template <typename D, typename T>
GPUSHARED_INLINE D ToInteger(T value) {
  constexpr bool kIsSigned = std::is_signed_v<D>;
  constexpr u32 kBitCount = sizeof(D) * 8;
  constexpr T kLimit = static_cast<T>(u64{1} << (kBitCount - 1)) * (kIsSigned ? T{1} : T{2});
  constexpr D kHighest =
      static_cast<D>(kIsSigned ? ~u64{0} >> (65 - kBitCount) : ~u64{0} >> (64 - kBitCount));
  constexpr D kLowest = kIsSigned ? static_cast<D>(-kHighest - 1) : D{0};
  constexpr bool kMarksNan = kBitCount == 64 || sizeof(T) == 8;
  if (value != value) return kMarksNan ? static_cast<D>(u64{1} << (kBitCount - 1)) : D{0};
  if (value >= kLimit) return kHighest;
  if (value < (kIsSigned ? -kLimit : T{0})) return kLowest;
  return static_cast<D>(value);
}

template <typename D, typename T, Rounding R, bool Ftz>
D RoundToInteger(T value) {
  return ToInteger<D>(RoundToIntegral(Mode<T, Ftz, false>::In(value), R));
}

template <typename T, Rounding R, bool Ftz, bool Sat>
T RoundInPlace(T value) {
  using M = Mode<T, Ftz, Sat>;
  return M::Out(RoundToIntegral(M::In(value), R));
}

template <typename T, bool Ftz, bool Sat>
T Same(T value) {
  return Mode<T, Ftz, Sat>::Out(value);
}

template <typename D, typename A, bool Ftz, bool Sat>
__attribute__((noinline)) const MicroOp* Resize(Warp& w, const MicroOp* op) {
  using In = Mode<A, Ftz && sizeof(A) == 4, false>;
  using Out = Mode<D, Ftz && sizeof(D) == 4, Sat>;
  const std::byte* a = w.frame + op->a;
  StoreLanes<D>(w.frame + op->destination, Lanes(w, op),
                [&](u32 l) { return Out::Out(static_cast<D>(In::In(Get<A>(a, l)))); });
  return op + 1;
}

// tf32 keeps 10 fraction bits, rounding ties away from zero.
float ToTf32(float value) {
  const u32 bits = Bits<u32>(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return Bits<float>(finite ? (bits + 0x1000u) & 0xffffe000u : bits);
}

template <typename D, typename T, Rounding R, bool Ftz>
constexpr Handler IntegerHandler() {
  if constexpr (sizeof(D) < 4) {
    return UnarySeldom<D, T, RoundToInteger<D, T, R, Ftz>>;
  } else {
    return Unary<D, T, RoundToInteger<D, T, R, Ftz>>;
  }
}

// Rounding to nearest or towards zero maps a subnormal to 0, so flushing makes no difference.
template <typename D, typename T, bool Ftz>
void AddTo(const OpSink& sink, const char* ftz, const char* to, const char* from) {
  using enum Rounding;
  AddOp(sink, kRows, IntegerHandler<D, T, kNearest, false>(), "cvt.rni", ftz, to, from);
  AddOp(sink, kRows, IntegerHandler<D, T, kZero, false>(), "cvt.rzi", ftz, to, from);
  AddOp(sink, kRows, IntegerHandler<D, T, kDown, Ftz>(), "cvt.rmi", ftz, to, from);
  AddOp(sink, kRows, IntegerHandler<D, T, kUp, Ftz>(), "cvt.rpi", ftz, to, from);
}

template <typename T, bool Ftz>
void AddFrom(const OpSink& sink, const char* ftz, const char* from) {
  AddTo<u8, T, Ftz>(sink, ftz, "u8", from);
  AddTo<s8, T, Ftz>(sink, ftz, "s8", from);
  AddTo<u16, T, Ftz>(sink, ftz, "u16", from);
  AddTo<s16, T, Ftz>(sink, ftz, "s16", from);
  AddTo<u32, T, Ftz>(sink, ftz, "u32", from);
  AddTo<s32, T, Ftz>(sink, ftz, "s32", from);
  AddTo<u64, T, Ftz>(sink, ftz, "u64", from);
  AddTo<s64, T, Ftz>(sink, ftz, "s64", from);
}

template <typename T, bool Ftz, bool Sat>
void AddInPlace(const OpSink& sink, const char* ftz, const char* sat, const char* type) {
  const auto add = [&](Handler handler, const char* rounding) {
    AddOp(sink, kRows, handler, "cvt", rounding, ftz, sat, type, type);
  };
  add(Unary<T, T, RoundInPlace<T, Rounding::kNearest, Ftz, Sat>>, "rni");
  add(Unary<T, T, RoundInPlace<T, Rounding::kZero, Ftz, Sat>>, "rzi");
  add(Unary<T, T, RoundInPlace<T, Rounding::kDown, Ftz, Sat>>, "rmi");
  add(Unary<T, T, RoundInPlace<T, Rounding::kUp, Ftz, Sat>>, "rpi");
  add(Unary<T, T, Same<T, Ftz, Sat>>, "");
}

template <bool Ftz, bool Sat>
void AddResize(const OpSink& sink, const char* ftz, const char* sat) {
  using enum Rounding;
  AddOp(sink, kRows, kRounded<kNearest, Resize<double, float, Ftz, Sat>>, "cvt", ftz, sat,
        "f64.f32");
  AddOp(sink, kRows, kRounded<kNearest, Resize<float, double, Ftz, Sat>>, "cvt.rn", ftz, sat,
        "f32.f64");
  AddOp(sink, kRows, kRounded<kZero, Resize<float, double, Ftz, Sat>>, "cvt.rz", ftz, sat,
        "f32.f64");
  AddOp(sink, kRows, kRounded<kDown, Resize<float, double, Ftz, Sat>>, "cvt.rm", ftz, sat,
        "f32.f64");
  AddOp(sink, kRows, kRounded<kUp, Resize<float, double, Ftz, Sat>>, "cvt.rp", ftz, sat, "f32.f64");
}

}  // namespace

void AddFloatConvertOps(const OpSink& sink) {
  AddFrom<float, false>(sink, "", "f32");
  AddFrom<float, true>(sink, "ftz", "f32");
  AddFrom<double, false>(sink, "", "f64");
  AddInPlace<float, false, false>(sink, "", "", "f32");
  AddInPlace<float, true, false>(sink, "ftz", "", "f32");
  AddInPlace<float, false, true>(sink, "", "sat", "f32");
  AddInPlace<float, true, true>(sink, "ftz", "sat", "f32");
  AddInPlace<double, false, false>(sink, "", "", "f64");
  AddInPlace<double, false, true>(sink, "", "sat", "f64");
  AddResize<false, false>(sink, "", "");
  AddResize<true, false>(sink, "ftz", "");
  AddResize<false, true>(sink, "", "sat");
  AddResize<true, true>(sink, "ftz", "sat");
  AddOp(sink, kRows, Unary<float, float, ToTf32>, "cvt.rna.tf32.f32");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
