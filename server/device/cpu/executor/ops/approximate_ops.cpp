// SPDX-License-Identifier: Apache-2.0
// The .approx and .full forms of f32. Results are within the error bounds of the PTX manual and
// equal in both flavours, because fused operations are not used.
#include "server/device/cpu/executor/ops/float_ops.h"

namespace gpushared::device::executor::GPUSHARED_FLAVOUR {
namespace {

float PowerOfTwo(s32 exponent) { return Bits<float>(static_cast<u32>(exponent + 127) << 23); }

// Returns 2^x. Splits x into the nearest integer and a fraction f in [-0.5, 0.5]; the polynomial is
// the Taylor series of 2^f to degree 7 (error below 1e-8). Two factors carry the exponent so that
// subnormal results are exact shifts.
float Exp2(float x) {
  const float clamped = x < -200.0f ? -200.0f : x > 200.0f ? 200.0f : x;
  const float safe = x != x ? 0.0f : clamped;
  const float shifted = safe + 12582912.0f;  // Adding 1.5 * 2^23 rounds to an integer.
  const float whole = shifted - 12582912.0f;
  const float f = safe - whole;
  float p = 1.5252733804059841e-5f;
  p = p * f + 1.5403530393381608e-4f;
  p = p * f + 1.3333558146428443e-3f;
  p = p * f + 9.6181291076284772e-3f;
  p = p * f + 5.5504108664821580e-2f;
  p = p * f + 2.4022650695910071e-1f;
  p = p * f + 6.9314718055994531e-1f;
  p = p * f + 1.0f;
  const s32 exponent = static_cast<s32>(whole);
  const s32 half = exponent >> 1;
  const float result = p * PowerOfTwo(half) * PowerOfTwo(exponent - half);
  return x != x ? x : result;
}

float Log2(float x) { return __builtin_log2f(x); }
float Sine(float x) { return __builtin_sinf(x); }
float Cosine(float x) { return __builtin_cosf(x); }
float HyperbolicTangent(float x) { return __builtin_tanhf(x); }
float Rsqrt(float x) { return 1.0f / SquareRoot(x); }
float Reciprocal(float x) { return 1.0f / x; }
float Root(float x) { return SquareRoot(x); }
float Quotient(float a, float b) { return a / b; }

// Returns a * (1/b), as the hardware does: for b above 2^126 the reciprocal is subnormal and
// flushed.
float ProductWithReciprocal(float a, float b) {
  const float magnitude = Bits<float>(Bits<u32>(b) & 0x7fffffffu);
  const float zero = Bits<float>(Bits<u32>(b) & 0x80000000u);
  return magnitude > PowerOfTwo(126) ? a * zero : a / b;
}

template <float (*F)(float), bool Ftz>
float Flushed(float a) {
  using M = Mode<float, Ftz, false>;
  return M::Out(F(M::In(a)));
}
template <float (*F)(float, float), bool Ftz>
float FlushedOfTwo(float a, float b) {
  using M = Mode<float, Ftz, false>;
  return M::Out(F(M::In(a), M::In(b)));
}

template <bool Ftz>
void AddAll(const OpSink& sink, const char* ftz) {
  AddOp(sink, kRows, Unary<float, float, Flushed<Exp2, Ftz>>, "ex2.approx", ftz, "f32");
  AddOp(sink, kRows, UnaryScalar<float, float, Flushed<Log2, Ftz>>, "lg2.approx", ftz, "f32");
  AddOp(sink, kRows, UnaryScalar<float, float, Flushed<Sine, Ftz>>, "sin.approx", ftz, "f32");
  AddOp(sink, kRows, UnaryScalar<float, float, Flushed<Cosine, Ftz>>, "cos.approx", ftz, "f32");
  AddOp(sink, kRows, Unary<float, float, Flushed<Rsqrt, Ftz>>, "rsqrt.approx", ftz, "f32");
  AddOp(sink, kRows, Unary<float, float, Flushed<Reciprocal, Ftz>>, "rcp.approx", ftz, "f32");
  AddOp(sink, kRows, Unary<float, float, Flushed<Root, Ftz>>, "sqrt.approx", ftz, "f32");
  AddOp(sink, kRows, Binary<float, float, float, FlushedOfTwo<ProductWithReciprocal, Ftz>>,
        "div.approx", ftz, "f32");
  AddOp(sink, kRows, Binary<float, float, float, FlushedOfTwo<Quotient, Ftz>>, "div.full", ftz,
        "f32");
}

}  // namespace

void AddApproximateOps(const OpSink& sink) {
  AddAll<false>(sink, "");
  AddAll<true>(sink, "ftz");
  AddOp(sink, kRows, UnaryScalar<float, float, HyperbolicTangent>, "tanh.approx.f32");
}

}  // namespace gpushared::device::executor::GPUSHARED_FLAVOUR
