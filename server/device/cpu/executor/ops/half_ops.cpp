// SPDX-License-Identifier: Apache-2.0
// Scalar f16 and bf16 arithmetic.
#include "server/device/cpu/executor/ops/half_float.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// Unused operands alias the first row, so that every form has one shape.
template <HalfOp Op, typename H, bool Sat, bool Relu>
const MicroOp* HalfArithmetic(Warp& w, const MicroOp* op) {
  const std::byte* a = w.frame + op->a;
  const std::byte* b = w.frame + op->b;
  const std::byte* c = w.frame + op->c;
  StoreLanes<H>(w.frame + op->destination, Lanes(w, op), [&](u32 l) {
    return Compute<Op, H, Sat, Relu>(Get<H>(a, l), Get<H>(b, l), Get<H>(c, l));
  });
  return op + 1;
}

template <typename H>
void AddType(const OpSink& sink, const char* type) {
  // Flushing is left out of f16 forms: their subnormals are normal numbers in double.
  for (const char* ftz : {"", "ftz"}) {
    AddOp(sink, HalfArithmetic<HalfOp::kAdd, H, false, false>, "add.rn", ftz, type);
    AddOp(sink, HalfArithmetic<HalfOp::kSub, H, false, false>, "sub.rn", ftz, type);
    AddOp(sink, HalfArithmetic<HalfOp::kMul, H, false, false>, "mul.rn", ftz, type);
    AddOp(sink, HalfArithmetic<HalfOp::kFma, H, false, false>, "fma.rn", ftz, type);
    AddOp(sink, HalfArithmetic<HalfOp::kAdd, H, true, false>, "add.rn", ftz, "sat", type);
    AddOp(sink, HalfArithmetic<HalfOp::kSub, H, true, false>, "sub.rn", ftz, "sat", type);
    AddOp(sink, HalfArithmetic<HalfOp::kMul, H, true, false>, "mul.rn", ftz, "sat", type);
    AddOp(sink, HalfArithmetic<HalfOp::kFma, H, true, false>, "fma.rn", ftz, "sat", type);
    AddOp(sink, HalfArithmetic<HalfOp::kFma, H, false, true>, "fma.rn", ftz, "relu", type);
    AddOp(sink, HalfArithmetic<HalfOp::kMin, H, false, false>, "min", ftz, type);
    AddOp(sink, HalfArithmetic<HalfOp::kMax, H, false, false>, "max", ftz, type);
    AddOp(sink, HalfArithmetic<HalfOp::kMinNan, H, false, false>, "min", ftz, "NaN", type);
    AddOp(sink, HalfArithmetic<HalfOp::kMaxNan, H, false, false>, "max", ftz, "NaN", type);
    AddOp(sink, HalfArithmetic<HalfOp::kNeg, H, false, false>, "neg", ftz, type);
    AddOp(sink, HalfArithmetic<HalfOp::kAbs, H, false, false>, "abs", ftz, type);
    AddOp(sink, HalfArithmetic<HalfOp::kExp2, H, false, false>, "ex2.approx", ftz, type);
  }
  AddOp(sink, HalfArithmetic<HalfOp::kTanh, H, false, false>, "tanh.approx", type);
}

}  // namespace

void AddHalfOps(const OpSink& sink) {
  AddType<_Float16>(sink, "f16");
  AddType<bf16>(sink, "bf16");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
