// SPDX-License-Identifier: Apache-2.0
// f16 and bf16, scalar and in pairs. The reference computes in long double, whose 64 bits of
// precision represent every sum and product of two halves exactly, and rounds once.
#include <cmath>
#include <string>

#include "tests/executor/half_reference.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

using Real = long double;

// The modifiers between opcode and type: .ftz, .sat, and others after them.
struct Mode {
  HalfType half;
  bool flushes, saturates;
  std::string last = {};
};

// Returns the modes of PTX. Only f16 has .ftz and .sat.
std::vector<Mode> Modes() {
  return {
      {kHalfTypes[0], false, false}, {kHalfTypes[0], true, false}, {kHalfTypes[1], false, false}};
}
std::vector<Mode> ModesWithSaturation() {
  std::vector<Mode> modes = Modes();
  modes.push_back({kHalfTypes[0], false, true});
  modes.push_back({kHalfTypes[0], true, true});
  return modes;
}

class HalfOps : public PerFlavour {
 protected:
  // Checks the form on scalars, and on pairs, whose halves must be computed separately. Flushing is
  // added to f.
  template <typename F>
  void Check(const Mode& mode, const std::string& opcode, std::size_t sources, F f,
             double ulps = 0) {
    const HalfType& half = mode.half;
    const std::string spelling =
        opcode + (mode.flushes ? ".ftz" : "") + (mode.saturates ? ".sat" : "") + mode.last + ".";
    const auto one = [half, flushes = mode.flushes, f](const Inputs& in, u32 shift) -> u16 {
      u16 h[3];
      for (std::size_t i = 0; i < 3; ++i) {
        h[i] = static_cast<u16>(in[i] >> shift);
        if (flushes) h[i] = half.Flush(h[i]);
      }
      const u16 result = f(h[0], h[1], h[2]);
      return flushes ? half.Flush(result) : result;
    };
    Form scalar = {spelling + half.name, half.name, std::vector<std::string>(sources, half.name),
                   [one](const Inputs& in) {
                     return Outputs{one(in, 0), 0};
                   }};
    scalar.ulps = ulps;
    CheckForm(GetParam(), scalar);
    const std::string pair = half.name + "x2";
    Form pairs = {spelling + pair, pair, std::vector<std::string>(sources, pair),
                  [one](const Inputs& in) {
                    return Outputs{one(in, 0) | Word{one(in, 16)} << 16, 0};
                  }};
    pairs.ulps = ulps;
    CheckForm(GetParam(), pairs);
  }
};

// Returns a * b + c, rounded once. The sum may already be rounded to long double, which would be
// wrong only if the rounded sum is a tie of the half type. A rounded sum is therefore moved by one
// step towards the exact sum.
u16 FusedHalf(const HalfType& half, Real a, Real b, Real c, bool sat, bool relu) {
  const Real product = a * b;  // Exact: at most 22 bits.
  Real sum = product + c;
  if (std::isfinite(sum)) {
    const Real high = std::abs(product) > std::abs(c) ? product : c;
    const Real low = std::abs(product) > std::abs(c) ? c : product;
    const Real lost = low - (sum - high);
    if (lost != 0) sum = std::nextafter(sum, lost > 0 ? Real{HUGE_VALL} : -Real{HUGE_VALL});
  }
  if (sat) sum = Clamp(sum);
  if (relu && !(sum > 0) && !std::isnan(sum)) sum = 0;
  return half.FromReal(sum);
}

TEST_P(HalfOps, ArithmeticRoundsOnce) {
  for (const Mode& mode : ModesWithSaturation()) {
    const HalfType& half = mode.half;
    const auto real = [half](u16 a) { return half.ToReal(a); };
    const auto result = [=](Real value) {
      return half.FromReal(mode.saturates ? Clamp(value) : value);
    };
    Check(mode, "add", 2, [=](u16 a, u16 b, u16) { return result(real(a) + real(b)); });
    Check(mode, "sub.rn", 2, [=](u16 a, u16 b, u16) { return result(real(a) - real(b)); });
    Check(mode, "mul.rn", 2, [=](u16 a, u16 b, u16) { return result(real(a) * real(b)); });
    Check(mode, "fma.rn", 3, [=](u16 a, u16 b, u16 c) {
      return FusedHalf(half, real(a), real(b), real(c), mode.saturates, false);
    });
    if (mode.saturates) continue;
    Mode positive = mode;
    positive.last = ".relu";
    Check(positive, "fma.rn", 3, [=](u16 a, u16 b, u16 c) {
      return FusedHalf(half, real(a), real(b), real(c), false, true);
    });
  }
}

// A product exactly between two halves, and a much smaller addend: only a truly fused operation is
// affected by the addend.
TEST_P(HalfOps, FusedMultiplyAddRoundsByATinyAddend) {
  const HalfType& bf16 = kHalfTypes[1];
  std::vector<Inputs> tuples;
  for (const Word a : {0x3f81, 0x3f83, 0x3ff1}) {
    for (const Word b : {0x3f90, 0x3fa0, 0x4040, 0x3f81}) {
      for (const Word c : {0x0001, 0x8001, 0x1000, 0x9000, 0x0000}) tuples.push_back({a, b, c});
    }
  }
  CheckForm(
      GetParam(),
      {"fma.rn.bf16",
       "bf16",
       {"bf16", "bf16", "bf16"},
       [&](const Inputs& in) {
         const auto real = [&](Word word) { return bf16.ToReal(static_cast<u16>(word)); };
         return Outputs{FusedHalf(bf16, real(in[0]), real(in[1]), real(in[2]), false, false), 0};
       }},
      tuples);
}

TEST_P(HalfOps, MinimumAndMaximumOfNanAndZeros) {
  for (Mode mode : Modes()) {
    const HalfType& half = mode.half;
    for (const bool minimum : {true, false}) {
      for (const bool nan_wins : {true, false}) {
        const auto extreme = [=](u16 a, u16 b, u16) -> u16 {
          const Real x = half.ToReal(a), y = half.ToReal(b);
          if (std::isnan(x) || std::isnan(y)) {
            return nan_wins ? u16{0x7fff} : std::isnan(x) ? b : a;
          }
          if (x == 0 && y == 0) return std::signbit(x) == minimum ? a : b;
          return minimum == (x < y) ? a : b;
        };
        mode.last = nan_wins ? ".NaN" : "";
        Check(mode, minimum ? "min" : "max", 2, extreme);
        // .xorsign.abs compares the magnitudes; the result has the sign of the product.
        mode.last += ".xorsign.abs";
        Check(mode, minimum ? "min" : "max", 2, [=](u16 a, u16 b, u16) -> u16 {
          const u16 magnitude = extreme(a & 0x7fff, b & 0x7fff, 0);
          const bool is_nan = std::isnan(half.ToReal(magnitude));
          return static_cast<u16>(magnitude | (is_nan ? 0 : (a ^ b) & 0x8000));
        });
      }
    }
  }
}

TEST_P(HalfOps, SignOperationsChangeOnlyTheSignBit) {
  for (const Mode& mode : Modes()) {
    Check(mode, "neg", 1, [](u16 a, u16, u16) { return static_cast<u16>(a ^ 0x8000); });
    Check(mode, "abs", 1, [](u16 a, u16, u16) { return static_cast<u16>(a & 0x7fff); });
  }
}

// The PTX ISA bounds ex2.approx.f16 and tanh.approx by 2^-9.9 and 2^-10.987 (bf16: 2^-7 and 2^-8)
// relative; ours are within one ulp of the rounded exact value. For bf16, only the flushing form of
// ex2 exists.
TEST_P(HalfOps, ApproximationsWithinOneUlp) {
  for (const HalfType& half : kHalfTypes) {
    Check(
        Mode{half, half.name == "bf16", false}, "ex2.approx", 1,
        [=](u16 a, u16, u16) { return half.FromReal(std::exp2(half.ToReal(a))); }, 1);
    Check(
        Mode{half, false, false}, "tanh.approx", 1,
        [=](u16 a, u16, u16) { return half.FromReal(std::tanh(half.ToReal(a))); }, 1);
  }
}

// 2^-126 is the smallest normal bf16, so a result of half of it becomes zero instead of a
// subnormal.
TEST_P(HalfOps, Exp2OfBf16FlushesItsResult) {
  const HalfType& bf16 = kHalfTypes[1];
  std::vector<Inputs> tuples;
  for (int exponent = -135; exponent <= -124; ++exponent) {
    tuples.push_back({bf16.FromReal(exponent)});
  }
  CheckForm(GetParam(),
            {"ex2.approx.ftz.bf16",
             "bf16",
             {"bf16"},
             [&](const Inputs& in) {
               const Real exact = std::exp2(bf16.ToReal(static_cast<u16>(in[0])));
               return Outputs{bf16.Flush(bf16.FromReal(exact)), 0};
             }},
            tuples);
}

GPUSHARED_INSTANTIATE_FLAVOURS(HalfOps);

}  // namespace
}  // namespace gpushared::testing
