// SPDX-License-Identifier: Apache-2.0
// Arithmetic on f64.
#include "server/device/cpu/executor/ops/float_ops.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

// The approximate forms keep the upper 32 bits of the result and flush subnormals.
double UpperWord(double value) {
  const u64 bits = Bits<u64>(value) & 0xffffffff00000000u;
  return Bits<double>((bits & 0x7ff0000000000000u) == 0 ? bits & 0x8000000000000000u : bits);
}
double ReciprocalUpper(double a) { return UpperWord(1.0 / UpperWord(a)); }
double RsqrtUpper(double a) { return UpperWord(1.0 / SquareRoot(UpperWord(a))); }
double Rsqrt(double a) { return 1.0 / SquareRoot(a); }

}  // namespace

void AddDoubleOps(const OpSink& sink) {
  AddFloatCommon<double, false>(sink, "", "f64");
  AddOp(sink, kRows, Binary<double, double, double, CopySign<double>>, "copysign.f64");
  AddOp(sink, kRows, Unary<double, double, ReciprocalUpper>, "rcp.approx.ftz.f64");
  AddOp(sink, kRows, Unary<double, double, RsqrtUpper>, "rsqrt.approx.ftz.f64");
  AddOp(sink, kRows, Unary<double, double, Rsqrt>, "rsqrt.approx.f64");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
