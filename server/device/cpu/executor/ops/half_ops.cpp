// SPDX-License-Identifier: Apache-2.0
// Scalar f16 and bf16 arithmetic.
#include "server/device/cpu/executor/ops/half_float.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// Unused operands alias the first row, so that all forms have the same signature.
__attribute__((noinline)) const MicroOp* OnHalves(Warp& w, const MicroOp* op,
                                                  HalfFunction compute) {
  alignas(64) u32 result[kLanes];
  compute(Words(w, op->a), Words(w, op->b), Words(w, op->c), result);
  StoreLanes<u32>(w.frame + op->destination, Lanes(w, op), [&](u32 l) { return result[l]; });
  return op + 1;
}

template <HalfOp Op, typename H, bool Ftz, bool Sat, bool Relu>
const MicroOp* HalfArithmetic(Warp& w, const MicroOp* op) {
  return OnHalves(w, op, ComputeRow<Op, H, Ftz, Sat, Relu>);
}

template <typename H, bool Ftz>
void AddHalfModes(const OpSink& sink, const char* ftz, const char* type) {
  using enum HalfOp;
  AddOp(sink, kRows, HalfArithmetic<kAdd, H, Ftz, false, false>, "add.rn", ftz, type);
  AddOp(sink, kRows, HalfArithmetic<kSub, H, Ftz, false, false>, "sub.rn", ftz, type);
  AddOp(sink, kRows, HalfArithmetic<kMul, H, Ftz, false, false>, "mul.rn", ftz, type);
  AddOp(sink, kRows, HalfArithmetic<kFma, H, Ftz, false, false>, "fma.rn", ftz, type);
  AddOp(sink, kRows, HalfArithmetic<kFma, H, Ftz, false, true>, "fma.rn", ftz, "relu", type);
  AddOp(sink, kRows, HalfArithmetic<kMin, H, Ftz, false, false>, "min", ftz, type);
  AddOp(sink, kRows, HalfArithmetic<kMax, H, Ftz, false, false>, "max", ftz, type);
  AddOp(sink, kRows, HalfArithmetic<kMinNan, H, Ftz, false, false>, "min", ftz, "NaN", type);
  AddOp(sink, kRows, HalfArithmetic<kMaxNan, H, Ftz, false, false>, "max", ftz, "NaN", type);
  const char* const magnitude = "xorsign.abs";
  AddOp(sink, kRows, HalfArithmetic<kMinMagnitude, H, Ftz, false, false>, "min", ftz, magnitude,
        type);
  AddOp(sink, kRows, HalfArithmetic<kMaxMagnitude, H, Ftz, false, false>, "max", ftz, magnitude,
        type);
  AddOp(sink, kRows, HalfArithmetic<kMinMagnitudeNan, H, Ftz, false, false>, "min", ftz, "NaN",
        magnitude, type);
  AddOp(sink, kRows, HalfArithmetic<kMaxMagnitudeNan, H, Ftz, false, false>, "max", ftz, "NaN",
        magnitude, type);
  AddOp(sink, kRows, HalfArithmetic<kNeg, H, Ftz, false, false>, "neg", ftz, type);
  AddOp(sink, kRows, HalfArithmetic<kAbs, H, Ftz, false, false>, "abs", ftz, type);
}

template <typename H, bool Ftz>
void AddSaturatedHalves(const OpSink& sink, const char* ftz, const char* type) {
  using enum HalfOp;
  AddOp(sink, kRows, HalfArithmetic<kAdd, H, Ftz, true, false>, "add.rn", ftz, "sat", type);
  AddOp(sink, kRows, HalfArithmetic<kSub, H, Ftz, true, false>, "sub.rn", ftz, "sat", type);
  AddOp(sink, kRows, HalfArithmetic<kMul, H, Ftz, true, false>, "mul.rn", ftz, "sat", type);
  AddOp(sink, kRows, HalfArithmetic<kFma, H, Ftz, true, false>, "fma.rn", ftz, "sat", type);
}

// f16 supports .ftz and .sat; for bf16 only ex2 flushes, and it always does.
template <typename H>
void AddHalfType(const OpSink& sink, const char* type) {
  constexpr bool kIsBf16 = std::is_same_v<H, bf16>;
  AddHalfModes<H, false>(sink, "", type);
  if constexpr (!kIsBf16) {
    AddHalfModes<H, true>(sink, "ftz", type);
    AddSaturatedHalves<H, false>(sink, "", type);
    AddSaturatedHalves<H, true>(sink, "ftz", type);
  }
  AddOp(sink, kRows, HalfArithmetic<HalfOp::kExp2, H, kIsBf16, false, false>, "ex2.approx",
        kIsBf16 ? "ftz" : "", type);
  AddOp(sink, kRows, HalfArithmetic<HalfOp::kTanh, H, false, false, false>, "tanh.approx", type);
}

}  // namespace

void AddHalfOps(const OpSink& sink) {
  AddHalfType<_Float16>(sink, "f16");
  AddHalfType<bf16>(sink, "bf16");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
