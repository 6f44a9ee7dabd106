// SPDX-License-Identifier: Apache-2.0
// Arithmetic on f32.
#include "server/device/cpu/executor/ops/float_ops.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {

void AddFloatOps(const OpSink& sink) {
  AddFloatCommon<float, false>(sink, "", "f32");
  AddFloatCommon<float, true>(sink, "ftz", "f32");
  AddRounded<float, Rounding::kNearest, false, true>(sink, "rn", "", "sat", "f32");
  AddRounded<float, Rounding::kZero, false, true>(sink, "rz", "", "sat", "f32");
  AddRounded<float, Rounding::kDown, false, true>(sink, "rm", "", "sat", "f32");
  AddRounded<float, Rounding::kUp, false, true>(sink, "rp", "", "sat", "f32");
  AddRounded<float, Rounding::kNearest, true, true>(sink, "rn", "ftz", "sat", "f32");
  AddRounded<float, Rounding::kZero, true, true>(sink, "rz", "ftz", "sat", "f32");
  AddRounded<float, Rounding::kDown, true, true>(sink, "rm", "ftz", "sat", "f32");
  AddRounded<float, Rounding::kUp, true, true>(sink, "rp", "ftz", "sat", "f32");
  AddOp(sink, kRows, Binary<float, float, float, CopySign<float>>, "copysign.f32");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
