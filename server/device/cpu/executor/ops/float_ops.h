// SPDX-License-Identifier: Apache-2.0
// Scalar float and double arithmetic as templates of type, rounding, flushing and
// saturation; float_ops.cpp and double_ops.cpp instantiate them.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_FLOAT_OPS_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_FLOAT_OPS_H_

#include "server/device/cpu/executor/ops/lanes.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {

template <typename T>
struct FloatBits;
template <>
struct FloatBits<float> {
  using Word = u32;
  static constexpr Word kSign = 0x80000000u;
  static constexpr Word kNan = 0x7fffffffu;  // The NaN that hardware produces.
};
template <>
struct FloatBits<double> {
  using Word = u64;
  static constexpr Word kSign = 0x8000000000000000u;
  static constexpr Word kNan = 0xfff8000000000000u;
};

// Flushes inputs and results and clamps results according to the modifiers.
template <typename T, bool Ftz, bool Sat>
struct Mode {
  GPUSHARED_INLINE static T In(T value) {
    if constexpr (Ftz)
      return FlushSubnormal(value);
    else
      return value;
  }
  GPUSHARED_INLINE static T Out(T value) {
    T result = In(value);
    if constexpr (Sat) {
      result = result > T{0} ? result : T{0};  // NaN and -0 become +0.
      result = result < T{1} ? result : T{1};
    }
    return result;
  }
};

template <typename T>
GPUSHARED_INLINE T FusedMultiplyAdd(T a, T b, T c) {
  if constexpr (sizeof(T) == 4)
    return __builtin_fmaf(a, b, c);
  else
    return __builtin_fma(a, b, c);
}
template <typename T>
GPUSHARED_INLINE T SquareRoot(T a) {
  if constexpr (sizeof(T) == 4)
    return __builtin_sqrtf(a);
  else
    return __builtin_sqrt(a);
}

enum class FloatOp { kAdd, kSub, kMul, kDiv, kFma, kSqrt, kRcp };

template <FloatOp Op, typename T, bool Ftz, bool Sat>
__attribute__((noinline)) const MicroOp* FloatArithmetic(Warp& w, const MicroOp* op) {
  using M = Mode<T, Ftz, Sat>;
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  StoreLanes<T>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    const T x = M::In(Get<T>(a, l));
    if constexpr (Op == FloatOp::kSqrt) return M::Out(SquareRoot(x));
    if constexpr (Op == FloatOp::kRcp) return M::Out(T{1} / x);
    const T y = M::In(Get<T>(b, l));
    if constexpr (Op == FloatOp::kAdd) return M::Out(x + y);
    if constexpr (Op == FloatOp::kSub) return M::Out(x - y);
    if constexpr (Op == FloatOp::kMul) return M::Out(x * y);
    if constexpr (Op == FloatOp::kDiv) return M::Out(x / y);
    if constexpr (Op == FloatOp::kFma) {
      return M::Out(FusedMultiplyAdd(x, y, M::In(Get<T>(c, l))));
    }
  });
  return op + 1;
}

// If one operand is NaN, returns the other one; with PropagateNan, returns kNan. If both are NaN,
// returns kNan. min(-0, +0) = -0.
template <typename T, bool Minimum, bool PropagateNan>
GPUSHARED_INLINE T Extreme(T a, T b) {
  using B = FloatBits<T>;
  const auto x = Bits<typename B::Word>(a), y = Bits<typename B::Word>(b);
  const bool a_wins = Minimum ? a < b : a > b;
  T result = a_wins ? a : b;
  const T zero = Bits<T>(Minimum ? (x | y) : (x & y));
  result = a == b ? zero : result;
  if constexpr (PropagateNan) {
    result = ((a != a) | (b != b)) ? Bits<T>(B::kNan) : result;
  } else {
    result = a != a ? b : result;
    result = b != b ? a : result;
    result = ((a != a) & (b != b)) ? Bits<T>(B::kNan) : result;
  }
  return result;
}

template <typename T, bool Ftz, bool Minimum, bool PropagateNan>
T GetExtreme(T a, T b) {
  using M = Mode<T, Ftz, false>;
  return Extreme<T, Minimum, PropagateNan>(M::In(a), M::In(b));
}
// Implements .xorsign.abs: minimum or maximum of the magnitudes, with the sign of the product.
template <typename T, bool Minimum, bool PropagateNan>
GPUSHARED_INLINE T SignedMagnitude(T a, T b) {
  using B = FloatBits<T>;
  const auto x = Bits<typename B::Word>(a), y = Bits<typename B::Word>(b);
  const T extreme =
      Extreme<T, Minimum, PropagateNan>(Bits<T>(x & ~B::kSign), Bits<T>(y & ~B::kSign));
  return extreme != extreme ? extreme
                            : Bits<T>(Bits<typename B::Word>(extreme) | ((x ^ y) & B::kSign));
}
template <typename T, bool Ftz, bool Minimum, bool PropagateNan>
T GetSignedMagnitude(T a, T b) {
  using M = Mode<T, Ftz, false>;
  return SignedMagnitude<T, Minimum, PropagateNan>(M::In(a), M::In(b));
}
template <typename T, bool Ftz>
T FloatNeg(T a) {
  const auto word = Bits<typename FloatBits<T>::Word>(Mode<T, Ftz, false>::In(a));
  return Bits<T>(word ^ FloatBits<T>::kSign);
}
template <typename T, bool Ftz>
T FloatAbs(T a) {
  const auto word = Bits<typename FloatBits<T>::Word>(Mode<T, Ftz, false>::In(a));
  return Bits<T>(word & ~FloatBits<T>::kSign);
}
template <typename T>
T CopySign(T sign, T magnitude) {
  using B = FloatBits<T>;
  const auto s = Bits<typename B::Word>(sign), m = Bits<typename B::Word>(magnitude);
  return Bits<T>((s & B::kSign) | (m & ~B::kSign));
}

template <typename T, Rounding R, bool Ftz, bool Sat>
void AddRounded(const OpSink& sink, const char* rounding, const char* ftz, const char* sat,
                const char* type) {
  AddOp(sink, kRows, kRounded<R, FloatArithmetic<FloatOp::kAdd, T, Ftz, Sat>>, "add", rounding, ftz,
        sat, type);
  AddOp(sink, kRows, kRounded<R, FloatArithmetic<FloatOp::kSub, T, Ftz, Sat>>, "sub", rounding, ftz,
        sat, type);
  AddOp(sink, kRows, kRounded<R, FloatArithmetic<FloatOp::kMul, T, Ftz, Sat>>, "mul", rounding, ftz,
        sat, type);
  AddOp(sink, kRows, kRounded<R, FloatArithmetic<FloatOp::kFma, T, Ftz, Sat>>, "fma", rounding, ftz,
        sat, type);
  if constexpr (!Sat) {
    AddOp(sink, kRows, kRounded<R, FloatArithmetic<FloatOp::kDiv, T, Ftz, false>>, "div", rounding,
          ftz, type);
    AddOp(sink, kRows, kRounded<R, FloatArithmetic<FloatOp::kSqrt, T, Ftz, false>>, "sqrt",
          rounding, ftz, type);
    AddOp(sink, kRows, kRounded<R, FloatArithmetic<FloatOp::kRcp, T, Ftz, false>>, "rcp", rounding,
          ftz, type);
  }
}

template <typename T, bool Ftz>
void AddFloatCommon(const OpSink& sink, const char* ftz, const char* type) {
  AddRounded<T, Rounding::kNearest, Ftz, false>(sink, "rn", ftz, "", type);
  AddRounded<T, Rounding::kZero, Ftz, false>(sink, "rz", ftz, "", type);
  AddRounded<T, Rounding::kDown, Ftz, false>(sink, "rm", ftz, "", type);
  AddRounded<T, Rounding::kUp, Ftz, false>(sink, "rp", ftz, "", type);
  AddOp(sink, kRows, Binary<T, T, T, GetExtreme<T, Ftz, true, false>>, "min", ftz, type);
  AddOp(sink, kRows, Binary<T, T, T, GetExtreme<T, Ftz, false, false>>, "max", ftz, type);
  if constexpr (sizeof(T) == 4) {
    AddOp(sink, kRows, Binary<T, T, T, GetExtreme<T, Ftz, true, true>>, "min", ftz, "NaN", type);
    AddOp(sink, kRows, Binary<T, T, T, GetExtreme<T, Ftz, false, true>>, "max", ftz, "NaN", type);
    const char* const magnitude = "xorsign.abs";
    AddOp(sink, kRows, Binary<T, T, T, GetSignedMagnitude<T, Ftz, true, false>>, "min", ftz,
          magnitude, type);
    AddOp(sink, kRows, Binary<T, T, T, GetSignedMagnitude<T, Ftz, false, false>>, "max", ftz,
          magnitude, type);
    AddOp(sink, kRows, Binary<T, T, T, GetSignedMagnitude<T, Ftz, true, true>>, "min", ftz, "NaN",
          magnitude, type);
    AddOp(sink, kRows, Binary<T, T, T, GetSignedMagnitude<T, Ftz, false, true>>, "max", ftz, "NaN",
          magnitude, type);
  }
  AddOp(sink, kRows, Unary<T, T, FloatNeg<T, Ftz>>, "neg", ftz, type);
  AddOp(sink, kRows, Unary<T, T, FloatAbs<T, Ftz>>, "abs", ftz, type);
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_OPS_FLOAT_OPS_H_
