// SPDX-License-Identifier: Apache-2.0
// Logic, shifts and bit fields, with each bit computed separately. PTX ISA: Logic and Shift
// Instructions; bfe, bfi, bmsk, prmt under Integer Arithmetic and Data Movement.
#include <cstdlib>
#include <string>

#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

class BitOps : public PerFlavour {
 protected:
  void Check(const Form& form) { CheckForm(GetParam(), form); }
};

template <typename T>
bool BitAt(T value, u32 at) {
  return at < sizeof(T) * 8 && (static_cast<u64>(value) >> at & 1) != 0;
}

TEST_P(BitOps, LogicOfEveryWidth) {
  const auto check = [&]<typename T>(T, const std::string& type) {
    const auto binary = [&](const char* opcode, auto f) {
      Check({opcode + ("." + type), type, {type, type}, Scalar<T, T>([f](T a, T b) {
               T result = 0;
               for (u32 i = 0; i < sizeof(T) * 8; ++i) {
                 result = static_cast<T>(result | T{f(BitAt(a, i), BitAt(b, i))} << i);
               }
               return result;
             })});
    };
    binary("and", [](bool a, bool b) { return a && b; });
    binary("or", [](bool a, bool b) { return a || b; });
    binary("xor", [](bool a, bool b) { return a != b; });
    Check(
        {"not." + type, type, {type}, Scalar<T>([](T a) { return static_cast<T>(-1 - s64(a)); })});
    Check({"cnot." + type, type, {type}, Scalar<T>([](T a) { return static_cast<T>(a == 0); })});
  };
  check(u16{}, "b16");
  check(u32{}, "b32");
  check(u64{}, "b64");
}

TEST_P(BitOps, LogicOfPredicates) {
  const auto binary = [&](const char* opcode, auto f) {
    Check({opcode, "pred", {"pred", "pred"}, Scalar<u8, u8>([f](u8 a, u8 b) {
             return static_cast<u8>(f(a != 0, b != 0));
           })});
  };
  binary("and.pred", [](bool a, bool b) { return a && b; });
  binary("or.pred", [](bool a, bool b) { return a || b; });
  binary("xor.pred", [](bool a, bool b) { return a != b; });
  Check({"not.pred", "pred", {"pred"}, Scalar<u8>([](u8 a) { return static_cast<u8>(a == 0); })});
  Check({"mov.pred", "pred", {"pred"}, Scalar<u8>([](u8 a) { return a; })});
  Check({"and.pred with an inverted source",
         "pred",
         {"pred", "pred"},
         Scalar<u8, u8>([](u8 a, u8 b) { return static_cast<u8>(a == 0 && b != 0); }),
         {},
         "$g not.pred $d, $a;\n$g and.pred $d, $d, $b;"});
}

// Amounts at or above the width shift everything out (PTX ISA, shl and shr: clamped).
TEST_P(BitOps, ShiftsBeyondTheWidth) {
  const auto check = [&]<typename T>(T, const std::string& letter) {
    const std::string type = letter + std::to_string(sizeof(T) * 8);
    constexpr u32 bits = sizeof(T) * 8;
    if (letter == "b") {
      Check({"shl." + type, type, {type, "u32"}, Scalar<T, u32>([](T a, u32 n) {
               T result = 0;
               for (u32 i = n; i < bits && n < bits; ++i) {
                 result = static_cast<T>(result | T{BitAt(a, i - n)} << i);
               }
               return result;
             })});
    }
    Check({"shr." + type, type, {type, "u32"}, Scalar<T, u32>([](T a, u32 n) {
             u64 result = 0;
             for (u32 i = 0; i < bits; ++i) {
               const bool sign = std::is_signed_v<T> && a < 0;
               const bool bit = u64{i} + n < bits ? BitAt(a, i + n) : sign;
               result |= u64{bit} << i;
             }
             return static_cast<T>(result);
           })});
  };
  check(u16{}, "b");
  check(u32{}, "b");
  check(u64{}, "b");
  check(u16{}, "u");
  check(u32{}, "u");
  check(u64{}, "u");
  check(s16{}, "s");
  check(s32{}, "s");
  check(s64{}, "s");
}

TEST_P(BitOps, FunnelShiftsWrapAndClamp) {
  for (const bool left : {true, false}) {
    for (const bool wraps : {true, false}) {
      const auto shift = [=](u32 low, u32 high, u32 amount) {
        const u32 n = wraps ? amount % 32 : std::min(amount, 32u);
        u32 result = 0;
        for (u32 i = 0; i < 32; ++i) {
          // Position of the result's bit i in the 64-bit value {high, low}.
          const u32 at = left ? 32 + i - n : i + n;
          result |= u32{at < 32 ? BitAt(low, at) : BitAt(high, at - 32)} << i;
        }
        return result;
      };
      Check({std::string("shf.") + (left ? "l." : "r.") + (wraps ? "wrap" : "clamp") + ".b32",
             "b32",
             {"b32", "b32", "u32"},
             Scalar<u32, u32, u32>(shift)});
    }
  }
}

TEST_P(BitOps, CountsOfBits) {
  const auto check = [&]<typename T>(T, const std::string& width) {
    constexpr u32 bits = sizeof(T) * 8;
    Check({"popc.b" + width, "u32", {"b" + width}, Scalar<T>([](T a) {
             u32 count = 0;
             for (u32 i = 0; i < bits; ++i) count += BitAt(a, i);
             return count;
           })});
    Check({"clz.b" + width, "u32", {"b" + width}, Scalar<T>([](T a) {
             u32 count = 0;
             while (count < bits && !BitAt(a, bits - 1 - count)) ++count;
             return count;
           })});
    Check({"brev.b" + width, "b" + width, {"b" + width}, Scalar<T>([](T a) {
             T result = 0;
             for (u32 i = 0; i < bits; ++i) result |= T{BitAt(a, i)} << (bits - 1 - i);
             return result;
           })});
  };
  check(u32{}, "32");
  check(u64{}, "64");
}

// bfind: the highest bit that differs from the sign bit, or, for unsigned types, the highest set
// bit.
TEST_P(BitOps, HighestBit) {
  const auto check = [&]<typename T>(T, const std::string& type) {
    constexpr u32 bits = sizeof(T) * 8;
    const auto find = [](T a) {
      const bool sign = std::is_signed_v<T> && a < 0;
      for (u32 i = bits; i-- > 0;) {
        if (BitAt(a, i) != sign) return i;
      }
      return 0xffffffffu;
    };
    Check({"bfind." + type, "u32", {type}, Scalar<T>(find)});
    Check({"bfind.shiftamt." + type, "u32", {type}, Scalar<T>([find](T a) {
             const u32 at = find(a);
             return at == 0xffffffffu ? at : bits - 1 - at;
           })});
  };
  check(u32{}, "u32");
  check(s32{}, "s32");
  check(u64{}, "u64");
  check(s64{}, "s64");
}

// fns as the loop in its definition in the PTX ISA. A base above 31, which PTX leaves open, finds
// no bit.
TEST_P(BitOps, NthSetBitUpOrDownFromABase) {
  const Form form{"fns.b32",
                  "b32",
                  {"b32", "u32", "s32"},
                  Scalar<u32, u32, s32>([](u32 mask, u32 base, s32 offset) {
                    if (offset == 0) return BitAt(mask, base) ? base : 0xffffffffu;
                    const s64 step = offset > 0 ? 1 : -1;
                    s64 left = offset * step;
                    for (s64 at = base; base < 32 && at >= 0 && at < 32; at += step) {
                      if (BitAt(mask, static_cast<u32>(at))) --left;
                      if (left == 0) return static_cast<u32>(at);
                    }
                    return 0xffffffffu;
                  })};
  Check(form);
  std::vector<Inputs> tuples;
  for (const u32 mask : {0x80000001u, 0xffffffffu, 0xa5c30f17u}) {
    for (u32 base = 0; base < 33; ++base) {
      for (s32 offset = -33; offset <= 33; ++offset) {
        tuples.push_back({mask, base, static_cast<u32>(offset)});
      }
    }
  }
  CheckForm(GetParam(), form, tuples);
}

// bfe and bfi as the loops in their definitions in the PTX ISA; positions and lengths are taken
// modulo 256.
TEST_P(BitOps, FieldsAreExtractedAndInserted) {
  const auto extract = [&]<typename T>(T, const std::string& type) {
    constexpr u32 msb = sizeof(T) * 8 - 1;
    Check({"bfe." + type, type, {type, "u32", "u32"}, Scalar<T, u32, u32>([](T a, u32 b, u32 c) {
             const u32 position = b & 0xff, length = c & 0xff;
             const bool sign = std::is_signed_v<T> && length != 0 &&
                               BitAt(a, position + length - 1 < msb ? position + length - 1 : msb);
             u64 result = 0;
             for (u32 i = 0; i <= msb; ++i) {
               const bool bit = i < length && position + i <= msb ? BitAt(a, position + i) : sign;
               result |= u64{bit} << i;
             }
             return static_cast<T>(result);
           })});
  };
  extract(u32{}, "u32");
  extract(s32{}, "s32");
  extract(u64{}, "u64");
  extract(s64{}, "s64");
  const auto insert = [&]<typename T>(T, const std::string& type) {
    constexpr u32 bits = sizeof(T) * 8;
    Check({"bfi." + type,
           type,
           {type, type, "u32", "u32"},
           Scalar<T, T, u32, u32>([](T field, T base, u32 c, u32 d) {
             const u32 position = c & 0xff, length = d & 0xff;
             T result = base;
             for (u32 i = 0; i < length && position + i < bits; ++i) {
               const T mask = T{1} << (position + i);
               result = BitAt(field, i) ? result | mask : result & ~mask;
             }
             return result;
           })});
  };
  insert(u32{}, "b32");
  insert(u64{}, "b64");
}

TEST_P(BitOps, MasksOfPositionAndWidth) {
  for (const bool wraps : {true, false}) {
    Check({std::string("bmsk.") + (wraps ? "wrap" : "clamp") + ".b32",
           "b32",
           {"b32", "b32"},
           Scalar<u32, u32>([wraps](u32 a, u32 b) {
             const u64 position = wraps ? a & 31 : a, width = wraps ? b & 31 : b;
             u32 result = 0;
             for (u32 i = 0; i < 32; ++i) {
               result |= u32{i >= position && i < position + width} << i;
             }
             return result;
           })});
  }
}

u32 ByteAt(u32 a, u32 b, u32 which) {
  return (which < 4 ? a >> 8 * which : b >> 8 * (which - 4)) & 0xff;
}

TEST_P(BitOps, AbsoluteDifferencesOfElementsAreListedOrAdded) {
  for (const u32 elements : {2u, 4u}) {
    for (const bool adds : {false, true}) {
      const auto reference = [=](u32 a, u32 b, u32 c) {
        const u32 bits = 32 / elements;
        u32 result = adds ? c : 0;
        for (u32 i = 0; i < elements; ++i) {
          const s64 x = a >> (bits * i) & ((u64{1} << bits) - 1);
          const s64 y = b >> (bits * i) & ((u64{1} << bits) - 1);
          result += static_cast<u32>(std::abs(x - y)) << (adds ? 0 : bits * i);
        }
        return result;
      };
      Check({"vabsdiff" + std::to_string(elements) + ".u32.u32.u32" + (adds ? ".add" : ""),
             "b32",
             {"b32", "b32", "b32"},
             Scalar<u32, u32, u32>(reference)});
    }
  }
}

TEST_P(BitOps, BytesArePermuted) {
  Check({"prmt.b32", "b32", {"b32", "b32", "b32"}, Scalar<u32, u32, u32>([](u32 a, u32 b, u32 c) {
           u32 result = 0;
           for (u32 i = 0; i < 4; ++i) {
             const u32 selector = c >> (4 * i) & 15;
             u32 byte = ByteAt(a, b, selector & 7);
             if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
             result |= byte << (8 * i);
           }
           return result;
         })});
  // The tables of PTX ISA, prmt: source bytes of d.b3 d.b2 d.b1 d.b0 by ctl[1:0].
  const struct {
    const char* mode;
    u32 bytes[4];
  } kModes[] = {
      {"f4e", {0x3210, 0x4321, 0x5432, 0x6543}}, {"b4e", {0x5670, 0x6701, 0x7012, 0x0123}},
      {"rc8", {0x0000, 0x1111, 0x2222, 0x3333}}, {"ecl", {0x3210, 0x3211, 0x3222, 0x3333}},
      {"ecr", {0x0000, 0x1110, 0x2210, 0x3210}}, {"rc16", {0x1010, 0x3232, 0x1010, 0x3232}},
  };
  for (const auto& mode : kModes) {
    Check({std::string("prmt.b32.") + mode.mode,
           "b32",
           {"b32", "b32", "b32"},
           Scalar<u32, u32, u32>([mode](u32 a, u32 b, u32 c) {
             u32 result = 0;
             for (u32 i = 0; i < 4; ++i) {
               result |= ByteAt(a, b, mode.bytes[c & 3] >> (4 * i) & 15) << (8 * i);
             }
             return result;
           })});
  }
}

TEST_P(BitOps, EveryTableOfThreeInputLogic) {
  for (u32 table = 0; table < 256; ++table) {
    Check({"lop3.b32",
           "b32",
           {"b32", "b32", "b32"},
           Scalar<u32, u32, u32>([table](u32 a, u32 b, u32 c) {
             u32 result = 0;
             for (u32 i = 0; i < 32; ++i) {
               const u32 row = u32{BitAt(a, i)} * 4 + u32{BitAt(b, i)} * 2 + u32{BitAt(c, i)};
               result |= (table >> row & 1) << i;
             }
             return result;
           }),
           ", " + std::to_string(table)});
    if (HasFailure()) break;
  }
}

// mov packs and unpacks vectors, the first element in the lowest bits.
TEST_P(BitOps, VectorsArePackedAndUnpacked) {
  Check({"mov.b32 from {b16, b16}",
         "b32",
         {"b16", "b16"},
         Scalar<u16, u16>([](u16 a, u16 b) { return u32{b} << 16 | a; }),
         {},
         "$g mov.b32 $d, {$a, $b};"});
  Check({"mov.b64 from {b32, b32}",
         "b64",
         {"b32", "b32"},
         Scalar<u32, u32>([](u32 a, u32 b) { return u64{b} << 32 | a; }),
         {},
         "$g mov.b64 $d, {$a, $b};"});
  Check({"mov.b64 from four",
         "b64",
         {"b16", "b16", "b16", "b16"},
         [](const Inputs& in) {
           u64 result = 0;
           for (u32 i = 0; i < 4; ++i) result |= (in[i] & 0xffff) << (16 * i);
           return Outputs{result, 0};
         },
         {},
         "$g mov.b64 $d, {$a, $b, $c, $f};"});
  Check({"mov.b32 to {b16, b16}",
         "b16",
         {"b32"},
         [](const Inputs& in) {
           return Outputs{in[0] & 0xffff, in[0] >> 16 & 0xffff};
         },
         {},
         "$g mov.b32 {$d, $e}, $a;",
         "b16"});
  Check({"mov.b64 to {b32, b32}",
         "b32",
         {"b64"},
         [](const Inputs& in) {
           return Outputs{in[0] & 0xffffffff, in[0] >> 32};
         },
         {},
         "$g mov.b64 {$d, $e}, $a;",
         "b32"});
  Check({"mov.b64 to {_, b32}",
         "b32",
         {"b64"},
         [](const Inputs& in) {
           return Outputs{in[0] >> 32, 0};
         },
         {},
         "$g mov.b64 {_, $d}, $a;"});
}

// Parts of 8 bits are in 8-bit registers; the four parts of a word are checked in pairs.
TEST_P(BitOps, BytesArePackedAndUnpacked) {
  const auto packed = [](const Inputs& in) {
    return Outputs{(in[0] & 0xff) | (in[1] & 0xff) << 8, 0};
  };
  const std::string bytes = "{\n.reg .b8 %x<4>;\n";
  const std::string two = bytes + "cvt.u8.u16 %x0, $a;\ncvt.u8.u16 %x1, $b;\n";
  Check({"mov.b16 from {b8, b8}",
         "b16",
         {"b16", "b16"},
         packed,
         {},
         two + "$g mov.b16 $d, {%x0, %x1};\n}"});
  Check(
      {"mov.b32 from four",
       "b32",
       {"b16", "b16", "b16", "b16"},
       [=](const Inputs& in) {
         return Outputs{packed(in)[0] | packed({in[2], in[3]})[0] << 16, 0};
       },
       {},
       two + "cvt.u8.u16 %x2, $c;\ncvt.u8.u16 %x3, $f;\n$g mov.b32 $d, {%x0, %x1, %x2, %x3};\n}"});
  Check({"mov.b16 to {b8, b8}",
         "b16",
         {"b16"},
         [](const Inputs& in) {
           return Outputs{in[0] & 0xff, in[0] >> 8 & 0xff};
         },
         {},
         bytes + "$g mov.b16 {%x0, %x1}, $a;\n$g cvt.u16.u8 $d, %x0;\n$g cvt.u16.u8 $e, %x1;\n}",
         "b16"});
  for (const u32 first : {0u, 2u}) {
    const std::string x = "%x" + std::to_string(first), y = "%x" + std::to_string(first + 1);
    Check({"mov.b32 to four",
           "b16",
           {"b32"},
           [first](const Inputs& in) {
             return Outputs{in[0] >> 8 * first & 0xff, in[0] >> (8 * first + 8) & 0xff};
           },
           {},
           bytes + "$g mov.b32 {%x0, %x1, %x2, %x3}, $a;\n$g cvt.u16.u8 $d, " + x +
               ";\n$g cvt.u16.u8 $e, " + y + ";\n}",
           "b16"});
    Check({"mov.b64 to four",
           "b16",
           {"b64"},
           [first](const Inputs& in) {
             return Outputs{in[0] >> 16 * first & 0xffff, in[0] >> (16 * first + 16) & 0xffff};
           },
           {},
           first == 0 ? "$g mov.b64 {$d, $e, _, _}, $a;" : "$g mov.b64 {_, _, $d, $e}, $a;",
           "b16"});
  }
}

TEST_P(BitOps, PredicatesMayBeLiterals) {
  for (const bool value : {false, true}) {
    const std::string literal = value ? "1" : "0";
    const auto same = [value](const Inputs&) { return Outputs{value, 0}; };
    Check({"mov.pred", "pred", {"pred"}, same, {}, "$g mov.pred $d, " + literal + ";"});
    Check({"and.pred",
           "pred",
           {"pred"},
           [value](const Inputs& in) {
             return Outputs{value ? in[0] : 0, 0};
           },
           {},
           "$g and.pred $d, $a, " + literal + ";"});
  }
}

// All elements are read before the first one is written.
TEST_P(BitOps, MovesOfVectors) {
  const auto check = [&](const std::string& type, const std::string& vector,
                         const std::string& code, const Reference& reference) {
    CheckForm(GetParam(), {.spelling = {},
                           .result = type,
                           .sources = {type, type, type, type},
                           .reference = reference,
                           .code = code,
                           .second_result = type,
                           .kernel_variables = "  .reg ." + vector + " %t<4>;\n"});
  };
  check("b32", "b32",
        "$g mov.v4.b32 {%t0, %t1, %t2, %t3}, {$a, $b, $c, $f};\n"
        "$g mov.v4.u32 {%t0, %t1, %t2, %t3}, {%t3, %t2, %t1, %t0};\n"
        "$g mov.v2.b32 {_, %t1}, {%t1, %t0};\n$g mov.v2.u32 {$d, $e}, {%t1, %t2};",
        [](const Inputs& in) {
          return Outputs{in[3], in[1]};
        });
  check("b32", "f32",
        "$g mov.v4.b32 {%t0, %t1, %t2, %t3}, {0, 0, 0, 1+2};\n"
        "$g mov.v2.f32 {%t0, %t1}, {%t3, 0.5+1.0};\n$g mov.b32 $d, %t0;\n$g mov.b32 $e, %t1;",
        [](const Inputs&) {
          return Outputs{3, 0x3fc00000};
        });
  check("b64", "b64", "$g mov.v2.b64 {$d, $e}, {$b, -1};", [](const Inputs& in) {
    return Outputs{in[1], ~Word{0}};
  });
  check("b16", "b16",
        "$g mov.v4.b16 {%t0, %t1, %t2, %t3}, {$d, $b, $c, $a};\n"
        "$g mov.v2.u16 {$d, $e}, {%t3, %t1};",
        [](const Inputs& in) {
          return Outputs{in[0], in[1]};
        });
}

// szext, by the pseudo-code of the PTX ISA.
TEST_P(BitOps, SzextExtendsBySignOrZeros) {
  for (const bool is_signed : {false, true}) {
    for (const bool wraps : {false, true}) {
      const auto extend = [=](u32 a, u32 b) {
        const u32 length = b & 31;
        const bool is_too_large = b >= 32 && !wraps;
        const u32 mask = is_too_large ? 0 : ~0u << length;
        const bool has_sign = length != 0 && !is_too_large && is_signed;
        const bool is_negative = has_sign && (a >> (length - 1) & 1) != 0;
        return (a & ~mask) | (is_negative ? mask : 0);
      };
      const std::string type = is_signed ? "s32" : "u32";
      Check({"szext." + std::string(wraps ? "wrap." : "clamp.") + type,
             type,
             {type, "u32"},
             Scalar<u32, u32>(extend)});
    }
  }
}

// lop3 also returns a predicate: whether any bit of the result is set, combined with another
// predicate.
TEST_P(BitOps, LogicTestsItsResult) {
  for (const bool is_any : {false, true}) {
    for (const bool inverts : {false, true}) {
      const std::string spelling = is_any ? "lop3.or.b32" : "lop3.and.b32";
      Form form = {spelling, "b32", {"b32", "b32", "b32", "pred"}, {}};
      form.code = "{ .reg .pred q; .reg .b32 w;\nmov.pred q, $f;\n$g " + spelling +
                  " $d|q, $a, $b, $c, 0x96, " + (inverts ? "!$f" : "$f") +
                  ";\nselp.b32 w, 1, 0, q;\n" + "$g mov.b32 $e, w;\n}";
      form.second_result = "b32";
      form.reference = [=](const Inputs& in) {
        const auto value = static_cast<u32>(in[0] ^ in[1] ^ in[2]);
        const bool with = (in[3] != 0) != inverts;
        return Outputs{value, is_any ? value != 0 || with : value != 0 && with};
      };
      std::vector<Inputs> tuples = EdgeTuples(form.sources);
      for (std::size_t i = 0; i < tuples.size(); i += 3) tuples[i][2] = tuples[i][0] ^ tuples[i][1];
      CheckForm(GetParam(), form, tuples);
      form.code = "$g " + spelling + " _|$d, $a, $b, $c, 0x96, $f;";
      form.result = "pred";
      form.second_result = "";
      form.reference = [=](const Inputs& in) {
        const bool has_bits = static_cast<u32>(in[0] ^ in[1] ^ in[2]) != 0, with = in[3] != 0;
        return Outputs{is_any ? has_bits || with : has_bits && with, 0};
      };
      CheckForm(GetParam(), form, tuples);
    }
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(BitOps);

}  // namespace
}  // namespace gpushared::testing
