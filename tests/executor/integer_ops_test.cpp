// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic against 128-bit references (PTX ISA, Integer Arithmetic
// Instructions and Extended-Precision Integer Arithmetic Instructions).
#include <limits>
#include <string>

#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

__extension__ using s128 = __int128;
__extension__ using u128 = unsigned __int128;

class IntegerOps : public PerFlavour {
 protected:
  void Check(const Form& form) { CheckForm(GetParam(), form); }

  // Calls f(T{}, name) for every type T and its PTX name.
  template <typename F>
  static void ForEachType(F f) {
    f(u16{}, "u16");
    f(s16{}, "s16");
    f(u32{}, "u32");
    f(s32{}, "s32");
    f(u64{}, "u64");
    f(s64{}, "s64");
  }
  template <typename F>
  void Binary(const char* opcode, F f) {
    ForEachType([&]<typename T>(T, const std::string& type) {
      Check({opcode + ("." + type), type, {type, type}, Scalar<T, T>([f](T a, T b) {
               return static_cast<T>(f(s128{a}, s128{b}));
             })});
    });
  }
};

TEST_P(IntegerOps, AddSubtractAndMultiplyWrap) {
  Binary("add", [](s128 a, s128 b) { return a + b; });
  Binary("sub", [](s128 a, s128 b) { return a - b; });
  Binary("mul.lo", [](s128 a, s128 b) {
    return static_cast<s128>(static_cast<u128>(a) * static_cast<u128>(b));
  });
  Binary("min", [](s128 a, s128 b) { return a < b ? a : b; });
  Binary("max", [](s128 a, s128 b) { return a < b ? b : a; });
}

TEST_P(IntegerOps, HighAndWideProductsKeepEveryBit) {
  ForEachType([&]<typename T>(T, const std::string& type) {
    const auto product = [](T a, T b) {
      return static_cast<u128>(s128{a}) * static_cast<u128>(s128{b});
    };
    const auto high = [product](T a, T b) {
      // The shift is arithmetic, because signed products of 64-bit values fill 128 bits.
      return static_cast<T>(static_cast<s128>(product(a, b)) >> (sizeof(T) * 8));
    };
    const auto low = [product](T a, T b) { return static_cast<T>(product(a, b)); };
    Check({"mul.hi." + type, type, {type, type}, Scalar<T, T>(high)});
    Check({"mad.hi." + type, type, {type, type, type}, Scalar<T, T, T>([high](T a, T b, T c) {
             return static_cast<T>(s128{high(a, b)} + c);
           })});
    Check({"mad.lo." + type, type, {type, type, type}, Scalar<T, T, T>([low](T a, T b, T c) {
             return static_cast<T>(s128{low(a, b)} + c);
           })});
    if constexpr (sizeof(T) < 8) {
      using W =
          std::conditional_t<std::is_signed_v<T>, std::conditional_t<sizeof(T) == 2, s32, s64>,
                             std::conditional_t<sizeof(T) == 2, u32, u64>>;
      const std::string wide = type.substr(0, 1) + std::to_string(sizeof(W) * 8);
      Check({"mul.wide." + type, wide, {type, type}, Scalar<T, T>([product](T a, T b) {
               return static_cast<W>(product(a, b));
             })});
      Check(
          {"mad.wide." + type, wide, {type, type, wide}, Scalar<T, T, W>([product](T a, T b, W c) {
             return static_cast<W>(static_cast<s128>(product(a, b)) + c);
           })});
    }
  });
}

// Division by zero is unspecified in PTX; the executor must not trap and returns the hardware's
// result: all ones, and the dividend as remainder.
TEST_P(IntegerOps, DivisionAndRemainderNeverTrap) {
  ForEachType([&]<typename T>(T, const std::string& type) {
    Check({"div." + type, type, {type, type}, Scalar<T, T>([](T a, T b) {
             return b == 0 ? static_cast<T>(-1) : static_cast<T>(s128{a} / b);
           })});
    Check({"rem." + type, type, {type, type}, Scalar<T, T>([](T a, T b) {
             return b == 0 ? a : static_cast<T>(s128{a} % b);
           })});
  });
}

TEST_P(IntegerOps, NegationAbsoluteValueAndDifference) {
  ForEachType([&]<typename T>(T, const std::string& type) {
    if constexpr (std::is_signed_v<T>) {
      Check({"neg." + type, type, {type}, Scalar<T>([](T a) { return static_cast<T>(-s128{a}); })});
      Check({"abs." + type, type, {type}, Scalar<T>([](T a) {
               return static_cast<T>(a < 0 ? -s128{a} : s128{a});
             })});
    }
    Check({"sad." + type, type, {type, type, type}, Scalar<T, T, T>([](T a, T b, T c) {
             const s128 difference = s128{a} - b;
             return static_cast<T>(c + (difference < 0 ? -difference : difference));
           })});
  });
}

TEST_P(IntegerOps, SaturationClampsToSigned32) {
  const auto clamp = [](s64 value) {
    return static_cast<s32>(std::min<s64>(std::max<s64>(value, INT32_MIN), INT32_MAX));
  };
  Check({"add.sat.s32", "s32", {"s32", "s32"}, Scalar<s32, s32>([=](s32 a, s32 b) {
           return clamp(s64{a} + b);
         })});
  Check({"sub.sat.s32", "s32", {"s32", "s32"}, Scalar<s32, s32>([=](s32 a, s32 b) {
           return clamp(s64{a} - b);
         })});
  Check(
      {"mad.hi.sat.s32",
       "s32",
       {"s32", "s32", "s32"},
       Scalar<s32, s32, s32>([=](s32 a, s32 b, s32 c) { return clamp((s64{a} * b >> 32) + c); })});
}

TEST_P(IntegerOps, ProductsOfTwentyFourBitsSaturate) {
  Check({"mad24.hi.sat.s32",
         "s32",
         {"s32", "s32", "s32"},
         Scalar<s32, s32, s32>([](s32 a, s32 b, s32 c) {
           const auto low = [](s32 value) {
             return s64{static_cast<s32>(static_cast<u32>(value) << 8) >> 8};
           };
           const s64 sum = static_cast<s32>(low(a) * low(b) >> 16) + s64{c};
           return static_cast<s32>(std::min<s64>(std::max<s64>(sum, INT32_MIN), INT32_MAX));
         })});
}

// mul24: the low 24 bits of each operand; .hi is bits 16..47 of the 48-bit product.
TEST_P(IntegerOps, TwentyFourBitProducts) {
  const auto check = [&]<typename T>(T, const std::string& type) {
    const auto low24 = [](T a) {
      return std::is_signed_v<T> ? s64{static_cast<s32>(static_cast<u32>(a) << 8) >> 8}
                                 : s64{static_cast<u32>(a) & 0xffffff};
    };
    for (const bool high : {false, true}) {
      const auto product = [=](T a, T b) {
        return static_cast<T>(low24(a) * low24(b) >> (high ? 16 : 0));
      };
      const std::string part = high ? ".hi." : ".lo.";
      Check({"mul24" + part + type, type, {type, type}, Scalar<T, T>(product)});
      Check({"mad24" + part + type, type, {type, type, type}, Scalar<T, T, T>([=](T a, T b, T c) {
               return static_cast<T>(static_cast<u32>(product(a, b)) + static_cast<u32>(c));
             })});
    }
  };
  check(u32{}, "u32");
  check(s32{}, "s32");
}

template <typename A>
s64 Byte(u32 word, u32 which) {
  return static_cast<A>(word >> (8 * which));
}

TEST_P(IntegerOps, DotProductsOfPackedBytes) {
  const auto check = [&]<typename A, typename B>(A, B, const std::string& types) {
    using A16 = std::conditional_t<std::is_signed_v<A>, s16, u16>;
    Check({"dp4a." + types,
           "u32",
           {"b32", "b32", "b32"},
           Scalar<u32, u32, u32>([](u32 a, u32 b, u32 c) {
             s64 sum = c;
             for (u32 i = 0; i < 4; ++i) sum += Byte<A>(a, i) * Byte<B>(b, i);
             return static_cast<u32>(sum);
           })});
    for (const u32 first : {0u, 2u}) {
      Check({std::string("dp2a.") + (first == 0 ? "lo." : "hi.") + types,
             "u32",
             {"b32", "b32", "b32"},
             Scalar<u32, u32, u32>([first](u32 a, u32 b, u32 c) {
               const s64 low = static_cast<A16>(a), high = static_cast<A16>(a >> 16);
               return static_cast<u32>(c + low * Byte<B>(b, first) + high * Byte<B>(b, first + 1));
             })});
    }
  };
  check(u8{}, u8{}, "u32.u32");
  check(s8{}, s8{}, "s32.s32");
  check(u8{}, s8{}, "u32.s32");
  check(s8{}, u8{}, "s32.u32");
}

TEST_P(IntegerOps, PackedHalfwords) {
  const auto check = [&]<typename T>(T, const std::string& type) {
    const auto each = [](auto f) {
      return Scalar<u32, u32>([f](u32 a, u32 b) {
        const u32 low = static_cast<u16>(f(s32{static_cast<T>(a)}, s32{static_cast<T>(b)}));
        const u32 high =
            static_cast<u16>(f(s32{static_cast<T>(a >> 16)}, s32{static_cast<T>(b >> 16)}));
        return high << 16 | low;
      });
    };
    Check({"add." + type, "b32", {type, type}, each([](s32 a, s32 b) { return a + b; })});
    Check({"min." + type, "b32", {type, type}, each([](s32 a, s32 b) { return std::min(a, b); })});
    Check({"max." + type, "b32", {type, type}, each([](s32 a, s32 b) { return std::max(a, b); })});
  };
  check(u16{}, "u16x2");
  check(s16{}, "s16x2");
}

TEST_P(IntegerOps, ReluReplacesNegativeResultsByZero) {
  const auto lowest = [](s32 a, s32 b) { return std::max(std::min(a, b), 0); };
  const auto highest = [](s32 a, s32 b) { return std::max({a, b, 0}); };
  Check({"min.relu.s32", "s32", {"s32", "s32"}, Scalar<s32, s32>(lowest)});
  Check({"max.relu.s32", "s32", {"s32", "s32"}, Scalar<s32, s32>(highest)});
  const auto pairs = [](auto f) {
    return Scalar<u32, u32>([f](u32 a, u32 b) {
      const auto half = [&](u32 shift) {
        return static_cast<u16>(f(static_cast<s16>(a >> shift), static_cast<s16>(b >> shift)));
      };
      return u32{half(16)} << 16 | half(0);
    });
  };
  Check({"min.s16x2.relu", "b32", {"s16x2", "s16x2"}, pairs(lowest)});
  Check({"max.relu.s16x2", "b32", {"s16x2", "s16x2"}, pairs(highest)});
}

// A literal operand takes the width of the instruction's type.
TEST_P(IntegerOps, LiteralsFillTheTypesWidth) {
  Check({"add.s64",
         "s64",
         {"s64"},
         Scalar<s64>([](s64 a) { return static_cast<s64>(static_cast<u64>(a) - 5); }),
         ", -5"});
  Check({"mul.lo.u32", "u32", {"u32"}, Scalar<u32>([](u32 a) { return a * 0xfffffffeu; }), ", -2"});
  Check({"sub.u16",
         "u16",
         {"u16"},
         Scalar<u16>([](u16 a) { return static_cast<u16>(a - 0x8001); }),
         ", 0x8001"});
  Check({"mad.wide.s32",
         "s64",
         {"s32"},
         Scalar<s32>([](s32 a) { return s64{a} * -3 - 1; }),
         ", -3, -1"});
}

// The parser evaluates constant expressions; this checks that the value reaches every kind of
// operand.
TEST_P(IntegerOps, AcceptsConstantExpressionsAsOperands) {
  const Reference sum = Scalar<u32, u32>([](u32 a, u32 b) { return (a + 5) * 20 + (b & ~2u); });
  Check({"constant expressions",
         "u32",
         {"u32", "u32"},
         sum,
         {},
         "$g and.b32 %t, $b, ~0x2;\n$g add.u32 $d, $a, (1<<2)|1;\n"
         "$g mad.lo.u32 $d, $d, 5 * (6 - 2), %t;",
         {},
         0,
         0,
         {},
         "  .reg .b32 %t;\n"});
  Check({"register and constant",
         "u32",
         {"u32", "u32"},
         sum,
         {},
         "$g and.b32 %t, $b, -3;\n$g mov.b32 $d, $a+(4+1);\n$g mul.lo.u32 $d, $d, 10*2;\n"
         "$g add.u32 %t, %t+-7, 7;\n$g add.u32 $d, $d, %t;",
         {},
         0,
         0,
         {},
         "  .reg .b32 %t;\n"});
  Check({"mov.u64",
         "u64",
         {"u64"},
         Scalar<u64>([](u64 a) { return a + (u64{1} << 40); }),
         "+(1<<40)"});
  Check({"mov.b64",
         "b64",
         {"b32"},
         Scalar<u32>([](u32 a) { return u64{a} | u64{12} << 32; }),
         {},
         "$g mov.b64 $d, {$a, 3*4};"});
}

GPUSHARED_INSTANTIATE_FLAVOURS(IntegerOps);

}  // namespace
}  // namespace gpushared::testing
