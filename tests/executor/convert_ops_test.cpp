// SPDX-License-Identifier: Apache-2.0
// The matrix of cvt: integers, f32, f64, f16, bf16, rounding, saturation, flushing
// (PTX ISA, Data Movement and Conversion Instructions: cvt).
#include <cfenv>
#include <cmath>
#include <limits>
#include <string>

#include "tests/executor/half_reference.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

__extension__ using s128 = __int128;
using Real = long double;

struct IntegerType {
  std::string name;
  u32 bits;
  bool is_signed;

  Real Lowest() const { return is_signed ? -std::ldexp(1.0L, static_cast<int>(bits) - 1) : 0.0L; }
  Real Highest() const {
    return std::ldexp(1.0L, static_cast<int>(bits) - (is_signed ? 1 : 0)) - 1;
  }
  s128 ValueFor(Word word) const {
    const u32 shift = 64 - bits;
    return is_signed ? s128{static_cast<s64>(word << shift) >> shift}
                     : s128{word << shift >> shift};
  }
  // Returns the contents of a 64-bit register with the value, extended by its sign or by zeros.
  Word GetWord(s128 value) const { return static_cast<Word>(ValueFor(static_cast<Word>(value))); }
};
const IntegerType kIntegers[] = {{"u8", 8, false},   {"s8", 8, true},    {"u16", 16, false},
                                 {"s16", 16, true},  {"u32", 32, false}, {"s32", 32, true},
                                 {"u64", 64, false}, {"s64", 64, true}};

struct ConversionRounding {
  const char* ptx;
  int mode;
  HalfType::Rounding half;
};
const ConversionRounding kConversionRoundings[] = {
    {"rn", FE_TONEAREST, HalfType::Rounding::kNearest},
    {"rz", FE_TOWARDZERO, HalfType::Rounding::kZero},
    {"rm", FE_DOWNWARD, HalfType::Rounding::kDown},
    {"rp", FE_UPWARD, HalfType::Rounding::kUp}};

Real ToIntegral(Real value, int mode) {
  std::fesetround(mode);
  volatile Real rounded = std::nearbyint(value);
  std::fesetround(FE_TONEAREST);
  return rounded;
}
template <typename T>
T RoundTo(Real value, int mode) {
  volatile Real exact = value;
  std::fesetround(mode);
  volatile T rounded = static_cast<T>(exact);
  std::fesetround(FE_TONEAREST);
  return rounded;
}
float Flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

class ConvertOps : public PerFlavour {
 protected:
  void Check(const Form& form) { CheckForm(GetParam(), form); }
  // Also converts into wider registers: PTX lets cvt write a wider register, sign-extended
  // according to the type.
  void CheckWidening(const IntegerType& to, Form form) {
    for (const u32 bits : {16u, 32u, 64u}) {
      if (bits < to.bits) continue;
      form.register_bits = bits;
      Check(form);
    }
  }
};

TEST_P(ConvertOps, IntegersWrapOrSaturate) {
  for (const IntegerType& to : kIntegers) {
    for (const IntegerType& from : kIntegers) {
      CheckWidening(
          to, {"cvt." + to.name + "." + from.name, to.name, {from.name}, [=](const Inputs& in) {
                 return Outputs{to.GetWord(from.ValueFor(in[0])), 0};
               }});
      // PTX has .sat only if some value of the source type is out of range.
      if (from.Lowest() >= to.Lowest() && from.Highest() <= to.Highest()) continue;
      CheckWidening(
          to, {"cvt.sat." + to.name + "." + from.name, to.name, {from.name}, [=](const Inputs& in) {
                 const s128 low = to.is_signed ? -(s128{1} << (to.bits - 1)) : s128{0};
                 const s128 high = (s128{1} << (to.bits - (to.is_signed ? 1 : 0))) - 1;
                 const s128 value = from.ValueFor(in[0]);
                 return Outputs{to.GetWord(std::min(std::max(value, low), high)), 0};
               }});
    }
  }
}

TEST_P(ConvertOps, IntegersToFloatsRoundInTheGivenMode) {
  for (const IntegerType& from : kIntegers) {
    for (const ConversionRounding& rounding : kConversionRoundings) {
      Check({std::string("cvt.") + rounding.ptx + ".f32." + from.name,
             "f32",
             {from.name},
             [=](const Inputs& in) {
               return Outputs{
                   ToWord(RoundTo<float>(static_cast<Real>(from.ValueFor(in[0])), rounding.mode)),
                   0};
             }});
      Check({std::string("cvt.") + rounding.ptx + ".f64." + from.name,
             "f64",
             {from.name},
             [=](const Inputs& in) {
               return Outputs{
                   ToWord(RoundTo<double>(static_cast<Real>(from.ValueFor(in[0])), rounding.mode)),
                   0};
             }});
    }
    const auto clamped = [=](const Inputs& in) {
      return Clamp(static_cast<Real>(from.ValueFor(in[0])));
    };
    Check({"cvt.rn.sat.f32." + from.name, "f32", {from.name}, [=](const Inputs& in) {
             return Outputs{ToWord(static_cast<float>(clamped(in))), 0};
           }});
    Check({"cvt.rn.sat.f64." + from.name, "f64", {from.name}, [=](const Inputs& in) {
             return Outputs{ToWord(static_cast<double>(clamped(in))), 0};
           }});
  }
}

// Values out of range are clamped. NaN gives 0, except that from f64 or into 64 bits it gives only
// the highest bit (PTX ISA, cvt: "NaN input results in ...").
Outputs ToInteger(const IntegerType& to, Real value, int mode, bool from_double) {
  if (std::isnan(value)) {
    const bool highest_bit = from_double || to.bits == 64;
    return {highest_bit ? to.GetWord(s128{1} << (to.bits - 1)) : 0, 0};
  }
  const Real rounded = ToIntegral(value, mode);
  if (rounded <= to.Lowest()) return {to.GetWord(static_cast<s128>(to.Lowest())), 0};
  if (rounded >= to.Highest()) return {to.GetWord(static_cast<s128>(to.Highest())), 0};
  return {to.GetWord(static_cast<s128>(rounded)), 0};
}

TEST_P(ConvertOps, FloatsToIntegersRoundAndClamp) {
  for (const IntegerType& to : kIntegers) {
    for (const ConversionRounding& rounding : kConversionRoundings) {
      const std::string start = std::string("cvt.") + rounding.ptx + "i";
      CheckWidening(to, {start + "." + to.name + ".f32", to.name, {"f32"}, [=](const Inputs& in) {
                           return ToInteger(to, FromWord<float>(in[0]), rounding.mode, false);
                         }});
      Check({start + ".ftz." + to.name + ".f32", to.name, {"f32"}, [=](const Inputs& in) {
               return ToInteger(to, Flush(FromWord<float>(in[0])), rounding.mode, false);
             }});
      Check({start + ".sat." + to.name + ".f32", to.name, {"f32"}, [=](const Inputs& in) {
               return ToInteger(to, FromWord<float>(in[0]), rounding.mode, false);
             }});
      CheckWidening(to, {start + "." + to.name + ".f64", to.name, {"f64"}, [=](const Inputs& in) {
                           return ToInteger(to, FromWord<double>(in[0]), rounding.mode, true);
                         }});
      for (const HalfType& half : kHalfTypes) {
        Check(
            {start + "." + to.name + "." + half.name, to.name, {half.name}, [=](const Inputs& in) {
               return ToInteger(to, half.ToReal(static_cast<u16>(in[0])), rounding.mode, false);
             }});
      }
    }
  }
}

TEST_P(ConvertOps, FloatsChangeWidth) {
  for (const bool sat : {false, true}) {
    const std::string mode = sat ? ".sat" : "";
    const auto clamp = [sat](Real value) { return sat ? Clamp(value) : value; };
    Check({"cvt" + mode + ".f64.f32", "f64", {"f32"}, [=](const Inputs& in) {
             return Outputs{ToWord(static_cast<double>(clamp(FromWord<float>(in[0])))), 0};
           }});
    Check({"cvt.ftz" + mode + ".f64.f32", "f64", {"f32"}, [=](const Inputs& in) {
             return Outputs{ToWord(static_cast<double>(clamp(Flush(FromWord<float>(in[0]))))), 0};
           }});
    for (const ConversionRounding& rounding : kConversionRoundings) {
      Check({std::string("cvt.") + rounding.ptx + mode + ".f32.f64",
             "f32",
             {"f64"},
             [=](const Inputs& in) {
               return Outputs{ToWord(static_cast<float>(
                                  clamp(RoundTo<float>(FromWord<double>(in[0]), rounding.mode)))),
                              0};
             }});
      Check({std::string("cvt.") + rounding.ptx + ".ftz" + mode + ".f32.f64",
             "f32",
             {"f64"},
             [=](const Inputs& in) {
               return Outputs{ToWord(static_cast<float>(clamp(
                                  Flush(RoundTo<float>(FromWord<double>(in[0]), rounding.mode))))),
                              0};
             }});
    }
  }
}

// Conversions within one type: to an integral value in all rounding modes, or only flushed and
// clamped.
TEST_P(ConvertOps, FloatsRoundToIntegralValues) {
  const auto check = [&](const char* rounding, auto round) {
    for (const bool sat : {false, true}) {
      const auto clamp = [sat](Real value) { return sat ? Clamp(value) : value; };
      const std::string mode = sat ? ".sat" : "";
      for (const bool ftz : {false, true}) {
        Check({std::string("cvt") + rounding + (ftz ? ".ftz" : "") + mode + ".f32.f32",
               "f32",
               {"f32"},
               [=](const Inputs& in) {
                 const float value = FromWord<float>(in[0]);
                 return Outputs{
                     ToWord(static_cast<float>(clamp(round(ftz ? Flush(value) : value)))), 0};
               }});
      }
      Check(
          {std::string("cvt") + rounding + mode + ".f64.f64",
           "f64",
           {"f64"},
           [=](const Inputs& in) {
             return Outputs{ToWord(static_cast<double>(clamp(round(FromWord<double>(in[0]))))), 0};
           }});
    }
    for (const HalfType& half : kHalfTypes) {
      Check({std::string("cvt") + rounding + "." + half.name + "." + half.name,
             half.name,
             {half.name},
             [=](const Inputs& in) {
               return Outputs{half.FromReal(round(half.ToReal(static_cast<u16>(in[0])))), 0};
             }});
    }
  };
  check("", [](Real value) { return value; });
  for (const ConversionRounding& rounding : kConversionRoundings) {
    const std::string name = std::string(".") + rounding.ptx + "i";
    check(name.c_str(), [&](Real value) { return ToIntegral(value, rounding.mode); });
  }
}

TEST_P(ConvertOps, HalvesFromEveryType) {
  for (const HalfType& half : kHalfTypes) {
    for (const ConversionRounding& rounding : kConversionRoundings) {
      const std::string start = std::string("cvt.") + rounding.ptx;
      const auto narrow = [=](const Inputs& in) {
        return half.FromReal(FromWord<float>(in[0]), rounding.half);
      };
      Check({start + "." + half.name + ".f32", half.name, {"f32"}, [=](const Inputs& in) {
               return Outputs{narrow(in), 0};
             }});
      if (rounding.mode != FE_TONEAREST && rounding.mode != FE_TOWARDZERO) continue;
      // With .relu negative results become +0, and NaN stays NaN.
      const auto positive = [=](const Inputs& in) {
        const float value = FromWord<float>(in[0]);
        return std::isnan(value) || value > 0 ? narrow(in) : u16{0};
      };
      Check({start + ".relu." + half.name + ".f32", half.name, {"f32"}, [=](const Inputs& in) {
               return Outputs{positive(in), 0};
             }});
      // Conversion of two numbers at once; the first source becomes the upper half.
      const std::string pair = half.name + "x2";
      Check({start + "." + pair + ".f32", pair, {"f32", "f32"}, [=](const Inputs& in) {
               return Outputs{Word{narrow({in[0]})} << 16 | narrow({in[1]}), 0};
             }});
      Check({start + ".relu." + pair + ".f32", pair, {"f32", "f32"}, [=](const Inputs& in) {
               return Outputs{Word{positive({in[0]})} << 16 | positive({in[1]}), 0};
             }});
    }
    Check({"cvt.rn." + half.name + ".f64", half.name, {"f64"}, [=](const Inputs& in) {
             return Outputs{half.FromReal(FromWord<double>(in[0])), 0};
           }});
    for (const IntegerType& from : kIntegers) {
      Check(
          {"cvt.rn." + half.name + "." + from.name, half.name, {from.name}, [=](const Inputs& in) {
             return Outputs{half.FromReal(static_cast<Real>(from.ValueFor(in[0]))), 0};
           }});
    }
  }
  Check({"cvt.rn.sat.f16.f32", "f16", {"f32"}, [](const Inputs& in) {
           return Outputs{kHalfTypes[0].FromReal(Clamp(FromWord<float>(in[0]))), 0};
         }});
  // Integers whose distance from a tie between two halves is too small for float or double, because
  // the value must be rounded only once.
  std::vector<Inputs> ties;
  for (const Word base :
       {Word{0x0101000000000000}, Word{0x0103000000000000}, Word{0x0100800000000000}}) {
    for (const Word more : {Word{0}, Word{1}, ~Word{0}, Word{0x100}}) ties.push_back({base + more});
  }
  CheckForm(GetParam(),
            {"cvt.rn.bf16.u64",
             "bf16",
             {"u64"},
             [](const Inputs& in) {
               return Outputs{kHalfTypes[1].FromReal(static_cast<Real>(in[0])), 0};
             }},
            ties);
}

TEST_P(ConvertOps, HalvesIntoEveryFloat) {
  for (const HalfType& half : kHalfTypes) {
    const auto value = [=](const Inputs& in) { return half.ToReal(static_cast<u16>(in[0])); };
    Check({"cvt.f32." + half.name, "f32", {half.name}, [=](const Inputs& in) {
             return Outputs{ToWord(static_cast<float>(value(in))), 0};
           }});
    // Subnormals of bf16 are subnormals of f32.
    Check({"cvt.ftz.f32." + half.name, "f32", {half.name}, [=](const Inputs& in) {
             return Outputs{ToWord(Flush(static_cast<float>(value(in)))), 0};
           }});
    Check({"cvt.f64." + half.name, "f64", {half.name}, [=](const Inputs& in) {
             return Outputs{ToWord(static_cast<double>(value(in))), 0};
           }});
    const HalfType& other = kHalfTypes[half.name == "f16" ? 1 : 0];
    Check(
        {"cvt.rn." + other.name + "." + half.name, other.name, {half.name}, [=](const Inputs& in) {
           return Outputs{other.FromReal(value(in)), 0};
         }});
  }
}

// tf32 keeps ten fraction bits, and rounds ties away from zero.
TEST_P(ConvertOps, Tf32RoundsTiesAway) {
  Check({"cvt.rna.tf32.f32", "b32", {"f32"}, [](const Inputs& in) {
           const float value = FromWord<float>(in[0]);
           if (!std::isfinite(value)) return Outputs{in[0], 0};
           int exponent = 0;
           std::frexp(value, &exponent);
           const int scale = std::max(exponent, -125) - 11;
           const float rounded = std::ldexp(std::round(std::ldexp(value, -scale)), scale);
           return Outputs{ToWord(rounded), 0};
         }});
}

// cvt.pack: two saturated numbers, and as much of the third register as fits.
TEST_P(ConvertOps, PacksSaturatedNumbers) {
  for (const u32 bits : {2u, 4u, 8u, 16u}) {
    for (const bool is_signed : {false, true}) {
      const auto pack = [=](s32 a, s32 b, u32 c) {
        const s64 high = (s64{1} << (is_signed ? bits - 1 : bits)) - 1;
        const s64 low = is_signed ? -high - 1 : 0;
        const u32 mask = (1u << bits) - 1;
        const auto part = [&](s32 value) {
          return static_cast<u32>(std::min(std::max(s64{value}, low), high)) & mask;
        };
        const u32 above = bits == 16 ? 0 : c << 2 * bits;
        return above | part(a) << bits | part(b);
      };
      const std::string to = (is_signed ? "s" : "u") + std::to_string(bits);
      Form form = {"cvt.pack.sat." + to + ".s32", "b32", {"s32", "s32"}, {}};
      if (bits == 16) {
        form.reference = Scalar<s32, s32>([=](s32 a, s32 b) { return pack(a, b, 0); });
      } else {
        form.spelling += ".b32";
        form.sources.push_back("b32");
        form.reference = Scalar<s32, s32, u32>(pack);
      }
      Check(form);
    }
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(ConvertOps);

}  // namespace
}  // namespace gpushared::testing
