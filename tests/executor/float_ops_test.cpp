// SPDX-License-Identifier: Apache-2.0
// f32 and f64 arithmetic against the same operation of the C++ library under the same
// rounding mode (PTX ISA, Floating Point Instructions).
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

struct RoundingName {
  const char* ptx;
  int mode;
};
constexpr RoundingName kRoundings[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

// Calls f with volatile operands under a rounding mode, so that the compiler cannot fold it.
template <typename T, typename F>
T Rounded(int mode, F f, T a, T b = 0, T c = 0) {
  volatile T x = a, y = b, z = c;
  std::fesetround(mode);
  volatile T result = f(x, y, z);
  std::fesetround(FE_TONEAREST);
  return result;
}

template <typename T>
T Flush(T value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}
// .sat clamps to [0, 1], and NaN to +0.
template <typename T>
T Clamp(T value) {
  return value > 0 ? (value < 1 ? value : T{1}) : T{0};
}

class FloatOps : public PerFlavour {
 protected:
  void Check(const Form& form) { CheckForm(GetParam(), form); }

  // Checks an operation in all rounding modes, with and without .ftz and .sat, which f64 lacks.
  template <typename T, typename F>
  void AllModes(const std::string& opcode, std::size_t sources, bool saturates, F f) {
    const std::string type = sizeof(T) == 4 ? "f32" : "f64";
    for (const RoundingName& rounding : kRoundings) {
      for (const bool ftz : {false, true}) {
        for (const bool sat : {false, true}) {
          if ((sizeof(T) == 8 && (ftz || sat)) || (sat && !saturates)) continue;
          const auto reference = [=](const Inputs& in) {
            T value[3];
            for (std::size_t i = 0; i < 3; ++i) {
              value[i] = FromWord<T>(in[i]);
              if (ftz) value[i] = Flush(value[i]);
            }
            T result = Rounded<T>(rounding.mode, f, value[0], value[1], value[2]);
            if (ftz) result = Flush(result);
            return Outputs{ToWord(sat ? Clamp(result) : result), 0};
          };
          Check(
              {opcode + "." + rounding.ptx + (ftz ? ".ftz" : "") + (sat ? ".sat" : "") + "." + type,
               type, std::vector<std::string>(sources, type), reference});
        }
      }
    }
  }
};

TEST_P(FloatOps, ArithmeticRoundsInTheGivenMode) {
  const auto check = [&]<typename T>(T) {
    AllModes<T>("add", 2, true, [](T a, T b, T) { return a + b; });
    AllModes<T>("sub", 2, true, [](T a, T b, T) { return a - b; });
    AllModes<T>("mul", 2, true, [](T a, T b, T) { return a * b; });
    AllModes<T>("fma", 3, true, [](T a, T b, T c) { return std::fma(a, b, c); });
    AllModes<T>("mad", 3, true, [](T a, T b, T c) { return std::fma(a, b, c); });
  };
  check(float{});
  check(double{});
}

TEST_P(FloatOps, DivisionRootsAndReciprocalsRoundInTheGivenMode) {
  const auto check = [&]<typename T>(T) {
    AllModes<T>("div", 2, false, [](T a, T b, T) { return a / b; });
    AllModes<T>("sqrt", 1, false, [](T a, T, T) { return std::sqrt(a); });
    AllModes<T>("rcp", 1, false, [](T a, T, T) { return T{1} / a; });
  };
  check(float{});
  check(double{});
}

// Without a rounding modifier add, sub and mul round to nearest.
TEST_P(FloatOps, NearestIsTheDefault) {
  Check({"add.f32", "f32", {"f32", "f32"}, Scalar<float, float>([](float a, float b) {
           return a + b;
         })});
  Check({"sub.ftz.f32", "f32", {"f32", "f32"}, Scalar<float, float>([](float a, float b) {
           return Flush(Flush(a) - Flush(b));
         })});
  Check({"mul.sat.f32", "f32", {"f32", "f32"}, Scalar<float, float>([](float a, float b) {
           return Clamp(a * b);
         })});
  Check({"mul.f64", "f64", {"f64", "f64"}, Scalar<double, double>([](double a, double b) {
           return a * b;
         })});
}

// min and max: a number takes precedence over NaN, -0 is below +0; with .NaN, NaN takes precedence
// (PTX ISA, min, max).
TEST_P(FloatOps, MinimumAndMaximumOfNanAndZeros) {
  const auto check = [&]<typename T>(T, const std::string& type) {
    for (const bool minimum : {true, false}) {
      for (const bool ftz : {false, true}) {
        for (const bool nan_wins : {false, true}) {
          if (sizeof(T) == 8 && (ftz || nan_wins)) continue;
          const auto extreme = [=](T a, T b) {
            if (ftz) a = Flush(a), b = Flush(b);
            if (std::isnan(a) || std::isnan(b)) {
              return nan_wins ? std::numeric_limits<T>::quiet_NaN() : std::isnan(a) ? b : a;
            }
            if (a == 0 && b == 0) return std::signbit(a) == minimum ? a : b;
            return minimum == (a < b) ? a : b;
          };
          const std::string spelling = std::string(minimum ? "min" : "max") + (ftz ? ".ftz" : "") +
                                       (nan_wins ? ".NaN." : ".");
          Check({spelling + type, type, {type, type}, Scalar<T, T>(extreme)});
          if (sizeof(T) == 8) continue;
          // .xorsign.abs: the operation on the magnitudes, with the sign of the product.
          Check({spelling + "xorsign.abs." + type, type, {type, type}, Scalar<T, T>([=](T a, T b) {
                   const T magnitude = extreme(std::abs(a), std::abs(b));
                   const bool negative = std::signbit(a) != std::signbit(b);
                   return std::isnan(magnitude) ? magnitude
                                                : std::copysign(magnitude, negative ? T{-1} : T{1});
                 })});
        }
      }
    }
  };
  check(float{}, "f32");
  check(double{}, "f64");
}

// ptxas accepts modifiers in any order, so each order must give the result of the usual one.
TEST_P(FloatOps, AcceptsModifiersInAnyOrder) {
  struct Ordered {
    const char* opcode;
    std::vector<std::string> modifiers;
    const char* types;
    const char* result;
    std::vector<std::string> sources;
  };
  const Ordered all[] = {
      {"max", {"ftz", "NaN", "xorsign", "abs"}, ".f32", "f32", {"f32", "f32"}},
      {"fma", {"rz", "ftz", "sat"}, ".f32", "f32", {"f32", "f32", "f32"}},
      {"fma", {"rn", "ftz", "relu"}, ".f16x2", "f16x2", {"f16x2", "f16x2", "f16x2"}},
      {"min", {"ftz", "NaN"}, ".f16", "f16", {"f16", "f16"}},
      {"div", {"rp", "ftz"}, ".f32", "f32", {"f32", "f32"}},
      {"sqrt", {"approx", "ftz"}, ".f32", "f32", {"f32"}},
      {"cvt", {"rn", "ftz", "sat"}, ".f32.f64", "f32", {"f64"}},
      {"cvt", {"rmi", "ftz", "sat"}, ".s8.f32", "s8", {"f32"}},
      {"cvt", {"rn", "relu"}, ".bf16x2.f32", "bf16x2", {"f32", "f32"}},
      {"setp", {"ltu", "ftz"}, ".f32", "pred", {"f32", "f32"}},
      {"setp", {"le", "or", "ftz"}, ".f32", "pred", {"f32", "f32", "pred"}},
      {"set", {"gt", "ftz"}, ".u32.f32", "u32", {"f32", "f32"}},
  };
  for (const Ordered& each : all) {
    const std::vector<Inputs> tuples = EdgeTuples(each.sources);
    std::vector<std::string> order = each.modifiers;
    std::ranges::sort(order);
    const auto results = [&](const std::vector<std::string>& modifiers) {
      std::string spelling = each.opcode;
      for (const std::string& modifier : modifiers) spelling += "." + modifier;
      return RunForm(GetParam(), {spelling + each.types, each.result, each.sources, {}}, tuples);
    };
    const std::vector<Outputs> wanted = results(each.modifiers);
    ASSERT_EQ(wanted.size(), tuples.size());
    do {
      EXPECT_EQ(results(order), wanted) << each.opcode << "." << order[0] << "." << order[1];
    } while (std::ranges::next_permutation(order).found);
  }
  // CUDA's headers write some modifiers after the types.
  const std::vector<Inputs> tuples = EdgeTuples({"f32", "f32"});
  EXPECT_EQ(RunForm(GetParam(), {"add.f32.sat.ftz", "f32", {"f32", "f32"}, {}}, tuples),
            RunForm(GetParam(), {"add.ftz.sat.f32", "f32", {"f32", "f32"}, {}}, tuples));
}

TEST_P(FloatOps, SignOperationsChangeOnlyTheSignBit) {
  const auto check = [&]<typename T, typename U>(T, U, const std::string& type) {
    constexpr U sign = U{1} << (sizeof(U) * 8 - 1);
    for (const bool ftz : {false, true}) {
      if (ftz && sizeof(T) == 8) continue;
      const auto in = [ftz](U a) {
        return ftz ? static_cast<U>(ToWord(Flush(FromWord<T>(a)))) : a;
      };
      const std::string mode = ftz ? ".ftz." : ".";
      Check({"neg" + mode + type, type, {type}, Scalar<U>([in](U a) {
               return static_cast<U>(in(a) ^ sign);
             })});
      Check({"abs" + mode + type, type, {type}, Scalar<U>([in](U a) {
               return static_cast<U>(in(a) & ~sign);
             })});
    }
    // copysign.d returns the magnitude of b with the sign of a.
    Check({"copysign." + type, type, {type, type}, Scalar<U, U>([](U a, U b) {
             return static_cast<U>((a & sign) | (b & ~sign));
           })});
  };
  check(float{}, u32{}, "f32");
  check(double{}, u64{}, "f64");
}

TEST_P(FloatOps, ClassesOfNumbers) {
  const auto check = [&]<typename T>(T, const std::string& type) {
    const auto test = [&](const char* name, auto holds) {
      Check({std::string("testp.") + name + "." + type, "pred", {type}, Scalar<T>([holds](T a) {
               return static_cast<u8>(holds(a));
             })});
    };
    test("finite", [](T a) { return std::isfinite(a); });
    test("infinite", [](T a) { return std::isinf(a); });
    test("number", [](T a) { return !std::isnan(a); });
    test("notanumber", [](T a) { return std::isnan(a); });
    // In PTX, zero is neither normal nor subnormal.
    test("normal", [](T a) { return std::fpclassify(a) == FP_NORMAL; });
    test("subnormal", [](T a) { return std::fpclassify(a) == FP_SUBNORMAL; });
  };
  check(float{}, "f32");
  check(double{}, "f64");
}

// The PTX ISA allows 1 ulp for rcp and sqrt, 2 for div.full and div.approx, and 2 for rsqrt; here
// all are within 1 ulp of the correctly rounded result.
TEST_P(FloatOps, ApproximationsStayWithinTheirUlps) {
  for (const bool ftz : {false, true}) {
    const std::string mode = ftz ? ".ftz.f32" : ".f32";
    const auto unary = [&](const char* opcode, double ulps, auto f) {
      Form form = {opcode + (".approx" + mode), "f32", {"f32"}, Scalar<float>([=](float a) {
                     const float result = static_cast<float>(f(double{ftz ? Flush(a) : a}));
                     return ftz ? Flush(result) : result;
                   })};
      form.ulps = ulps;
      Check(form);
    };
    unary("rcp", 1, [](double a) { return 1 / a; });
    unary("sqrt", 1, [](double a) { return std::sqrt(a); });
    unary("rsqrt", 2, [](double a) { return 1 / std::sqrt(a); });
    unary("ex2", 2, [](double a) { return std::exp2(a); });
    for (const bool full : {false, true}) {
      const auto divide = [=](float a, float b) {
        if (ftz) a = Flush(a), b = Flush(b);
        // Beyond 2^126 div.approx treats the reciprocal as zero; div.full scales its operands.
        if (!full && std::abs(b) > 0x1p126f) return a * std::copysign(0.0f, b);
        const float result = static_cast<float>(double{a} / double{b});
        return ftz ? Flush(result) : result;
      };
      Form form = {(full ? "div.full" : "div.approx") + mode,
                   "f32",
                   {"f32", "f32"},
                   Scalar<float, float>(divide)};
      form.ulps = 2;
      Check(form);
      std::vector<Inputs> tuples;
      for (const float a : {1.0f, -3.0f, 0x1.fffffep127f, INFINITY, -INFINITY, 0.0f}) {
        for (const float b : {0x1p126f, 0x1.000002p126f, -0x1p127f, 0x1.fffffep127f, INFINITY}) {
          tuples.push_back({ToWord(a), ToWord(b), 0, 0});
        }
      }
      CheckForm(GetParam(), form, tuples);
    }
  }
}

// rcp and rsqrt on f64 compute only the upper word; the lower one is zero (PTX ISA,
// rcp.approx.ftz.f64). Subnormals are flushed, and the input's lower word is ignored.
TEST_P(FloatOps, DoubleApproximationsKeepTheUpperWord) {
  const auto upper = [](double value) {
    return Flush(FromWord<double>(ToWord(value) & 0xffffffff00000000u));
  };
  Check({"rcp.approx.ftz.f64", "f64", {"f64"}, Scalar<double>([=](double a) {
           return upper(1 / upper(a));
         })});
  Check({"rsqrt.approx.ftz.f64", "f64", {"f64"}, Scalar<double>([=](double a) {
           return upper(1 / std::sqrt(upper(a)));
         })});
}

// Without .ftz, subnormals are preserved and the result has all its bits.
TEST_P(FloatOps, ReciprocalRootsOfDoublesWithinOneUlp) {
  Form form = {"rsqrt.approx.f64", "f64", {"f64"}, Scalar<double>([](double a) {
                 return static_cast<double>(1 / std::sqrt(static_cast<long double>(a)));
               })};
  form.ulps = 1;
  Check(form);
}

// The PTX ISA bounds the errors of the transcendental functions not in ulps, but by absolute or
// relative values: lg2 2^-22, absolute in (0.5, 2), otherwise relative; sin and cos 2^-20.5
// absolute in [-pi, pi]; tanh 2^-11 relative. The bounds of the test are at least as strict.
struct Transcendental {
  const char* opcode;
  float low, high;
  double (*exact)(double);
  double absolute, relative;  // Error bounds, one of which must be met.
};

TEST_P(FloatOps, TranscendentalsStayWithinTheirErrorBounds) {
  const Transcendental kCases[] = {
      {"lg2.approx", 0.5f, 2.0f, std::log2, 0x1p-22, 0},
      {"lg2.approx", 2.0f, 3e38f, std::log2, 0, 0x1p-22},
      {"lg2.approx", 1e-37f, 0.5f, std::log2, 0, 0x1p-22},
      {"sin.approx", -3.1415927f, 3.1415927f, std::sin, 0x1p-21, 0},
      {"cos.approx", -3.1415927f, 3.1415927f, std::cos, 0x1p-21, 0},
      {"sin.approx", -1000.0f, 1000.0f, std::sin, 0x1p-20, 0},
      {"cos.approx", -1000.0f, 1000.0f, std::cos, 0x1p-20, 0},
      {"ex2.approx", -125.0f, 127.0f, std::exp2, 0, 0x1p-22},
      {"tanh.approx", -9.0f, 9.0f, std::tanh, 0, 0x1p-20},
      {"lg2.approx.ftz", 0.5f, 2.0f, std::log2, 0x1p-22, 0},
      {"sin.approx.ftz", -3.1415927f, 3.1415927f, std::sin, 0x1p-21, 0},
      {"cos.approx.ftz", -3.1415927f, 3.1415927f, std::cos, 0x1p-21, 0},
      {"ex2.approx.ftz", -125.0f, 127.0f, std::exp2, 0, 0x1p-22},
  };
  for (const Transcendental& c : kCases) {
    std::vector<Inputs> tuples;
    for (int i = 0; i <= 1400; ++i) {
      const double at = double{c.low} + (double{c.high} - double{c.low}) * i / 1400;
      tuples.push_back({ToWord(static_cast<float>(at))});
    }
    const Form form = {c.opcode + std::string(".f32"), "f32", {"f32"}, {}};
    const std::vector<Outputs> results = RunForm(GetParam(), form, tuples);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const double exact = c.exact(double{FromWord<float>(tuples[i][0])});
      const double error = std::abs(double{FromWord<float>(results[i][0])} - exact);
      ASSERT_TRUE(error <= c.absolute || error <= c.relative * std::abs(exact))
          << form.spelling << " of " << FromWord<float>(tuples[i][0]) << " is off by " << error;
    }
  }
}

// The PTX ISA defines these results in tables.
TEST_P(FloatOps, TranscendentalsOfSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    const char* spelling;
    float argument, result;
  } kCases[] = {
      {"ex2.approx.f32", -infinity, 0},
      {"ex2.approx.f32", infinity, infinity},
      {"ex2.approx.f32", nan, nan},
      {"ex2.approx.f32", 0, 1},
      {"ex2.approx.f32", 128, infinity},
      {"ex2.approx.f32", -149, 0x1p-149f},
      {"ex2.approx.ftz.f32", -149, 0},
      {"ex2.approx.f32", -151, 0},
      {"lg2.approx.f32", 0, -infinity},
      {"lg2.approx.f32", -0.0f, -infinity},
      {"lg2.approx.f32", infinity, infinity},
      {"lg2.approx.f32", -1, nan},
      {"lg2.approx.f32", 1, 0},
      {"lg2.approx.f32", 0x1p-149f, -149},
      {"lg2.approx.ftz.f32", 0x1p-149f, -infinity},
      {"lg2.approx.f32", nan, nan},
      {"lg2.approx.f32", -infinity, nan},
      {"sin.approx.f32", 0, 0},
      {"sin.approx.f32", -0.0f, -0.0f},
      {"sin.approx.f32", infinity, nan},
      {"sin.approx.f32", nan, nan},
      {"sin.approx.ftz.f32", -0x1p-140f, -0.0f},
      {"cos.approx.f32", 0, 1},
      {"cos.approx.f32", -infinity, nan},
      {"cos.approx.f32", 0x1p-149f, 1},
      {"cos.approx.ftz.f32", -0x1p-149f, 1},
      {"tanh.approx.f32", infinity, 1},
      {"tanh.approx.f32", -infinity, -1},
      {"tanh.approx.f32", -0.0f, -0.0f},
      {"tanh.approx.f32", nan, nan},
  };
  for (const auto& c : kCases) {
    const float result = c.result;
    CheckForm(GetParam(),
              {c.spelling, "f32", {"f32"}, Scalar<float>([=](float) { return result; })},
              std::vector<Inputs>(70, Inputs{ToWord(c.argument)}));
  }
}

// The digits of a literal may look like the prefix of another literal.
TEST_P(FloatOps, LiteralsHaveTheWidthOfTheirPrefix) {
  struct Case {
    const char* literal;
    std::uint64_t bits;
  };
  constexpr Case kCases[] = {{"0d3ED0F5D241AD3B5A", 0x3ED0F5D241AD3B5A},
                             {"0d3EB0F5FF7D2CAFE2", 0x3EB0F5FF7D2CAFE2},
                             {"-0d3ED0F5D241AD3B5A", 0xBED0F5D241AD3B5A},
                             {"0f3F800000", 0x3FF0000000000000}};
  for (const Case& c : kCases) {
    const double value = __builtin_bit_cast(double, c.bits);
    Form form{"literal", "f64", {"f64"}, Scalar<double>([=](double a) { return a + value; })};
    form.code = std::string("$g add.f64 $d, $a, ") + c.literal + ";";
    CheckForm(GetParam(), form, std::vector<Inputs>(70, Inputs{ToWord(1.5)}));
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(FloatOps);

}  // namespace
}  // namespace gpushared::testing
