// SPDX-License-Identifier: Apache-2.0
// setp, set, selp and slct (PTX ISA, Comparison and Selection Instructions).
#include <cmath>
#include <string>

#include "tests/executor/half_reference.h"
#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

float WithoutSubnormals(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

// Converts a value of any PTX type to a type that C++ compares exactly.
template <typename T>
struct Plain {
  static T Of(Word word) { return FromWord<T>(word); }
};
struct Bfloat {};
template <>
struct Plain<Bfloat> {
  static float Of(Word word) { return FromWord<float>((word & 0xffff) << 16); }
};
template <>
struct Plain<_Float16> {
  static float Of(Word word) { return static_cast<float>(FromWord<_Float16>(word)); }
};

template <typename T>
bool Related(const std::string& relation, T a, T b) {
  const bool unordered = a != a || b != b;
  if (relation == "num") return !unordered;
  if (relation == "nan") return unordered;
  const bool or_unordered = relation.size() == 3;  // equ, ltu, ...
  if (unordered) return or_unordered;
  const std::string base = relation.substr(0, 2);
  if (base == "eq") return a == b;
  if (base == "ne") return a != b;
  if (base == "lt" || base == "lo") return a < b;
  if (base == "le" || base == "ls") return a <= b;
  if (base == "gt" || base == "hi") return a > b;
  return a >= b;
}

const std::vector<std::string> kOrdered = {"eq", "ne", "lt", "le", "gt", "ge"};
const std::vector<std::string> kUnsigned = {"eq", "ne", "lt", "le", "gt",
                                            "ge", "lo", "ls", "hi", "hs"};
const std::vector<std::string> kFloat = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                         "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

class CompareOps : public PerFlavour {
 protected:
  void Check(const Form& form) { CheckForm(GetParam(), form); }

  // Calls f(T{}, name, relations) for every type.
  template <typename F>
  static void ForEachType(F f) {
    f(u16{}, "b16", {"eq", "ne"});
    f(u32{}, "b32", {"eq", "ne"});
    f(u64{}, "b64", {"eq", "ne"});
    f(u16{}, "u16", kUnsigned);
    f(u32{}, "u32", kUnsigned);
    f(u64{}, "u64", kUnsigned);
    f(s16{}, "s16", kOrdered);
    f(s32{}, "s32", kOrdered);
    f(s64{}, "s64", kOrdered);
    f(float{}, "f32", kFloat);
    f(double{}, "f64", kFloat);
    f(_Float16{}, "f16", kFloat);
    f(Bfloat{}, "bf16", kFloat);
  }
};

TEST_P(CompareOps, EveryRelationOfEveryType) {
  ForEachType([&]<typename T>(T, const std::string& type,
                              const std::vector<std::string>& relations) {
    for (const std::string& relation : relations) {
      const auto holds = [relation](const Inputs& in) {
        return Outputs{Related(relation, Plain<T>::Of(in[0]), Plain<T>::Of(in[1])), 0};
      };
      Check({"setp." + relation + "." + type, "pred", {type, type}, holds});
      if (type != "f32") continue;
      Check({"setp." + relation + ".ftz.f32", "pred", {type, type}, [relation](const Inputs& in) {
               return Outputs{Related(relation, WithoutSubnormals(FromWord<float>(in[0])),
                                      WithoutSubnormals(FromWord<float>(in[1]))),
                              0};
             }});
    }
  });
}

bool Combined(const std::string& logic, bool a, bool b) {
  return logic == "and" ? a && b : logic == "or" ? a || b : a != b;
}

// p = (a < b) BoolOp c, q = !(a < b) BoolOp c; c may be inverted.
TEST_P(CompareOps, ResultsAreCombinedWithAPredicate) {
  for (const std::string logic : {"and", "or", "xor"}) {
    for (const bool inverted : {false, true}) {
      const auto both = [=](const Inputs& in) {
        const bool holds = FromWord<s32>(in[0]) < FromWord<s32>(in[1]);
        const bool with = (in[2] != 0) != inverted;
        return Outputs{Combined(logic, holds, with), Combined(logic, !holds, with)};
      };
      const std::string c = inverted ? "!$c" : "$c";
      const std::string opcode = "setp.lt." + logic + ".s32";
      Check({opcode,
             "pred",
             {"s32", "s32", "pred"},
             both,
             {},
             "$g " + opcode + " $d|$e, $a, $b, " + c + ";",
             "pred"});
      Check({opcode,
             "pred",
             {"s32", "s32", "pred"},
             both,
             {},
             "$g " + opcode + " $d, $a, $b, " + c + ";"});
      // The destination may be the predicate with which the result is combined.
      Check({opcode + " over c",
             "pred",
             {"s32", "s32", "pred"},
             both,
             {},
             "$g mov.pred $d, $c;\n$g " + opcode + " $d, $a, $b, " + (inverted ? "!$d" : "$d") +
                 ";"});
      Check({opcode + " pair over c",
             "pred",
             {"s32", "s32", "pred"},
             both,
             {},
             "$g mov.pred $d, $c;\n$g " + opcode + " $d|$e, $a, $b, " + (inverted ? "!$d" : "$d") +
                 ";",
             "pred"});
    }
  }
  Check({"setp.eq.u64 pair",
         "pred",
         {"u64", "u64"},
         [](const Inputs& in) {
           return Outputs{in[0] == in[1], in[0] != in[1]};
         },
         {},
         "$g setp.eq.u64 $d|$e, $a, $b;",
         "pred"});
  Check({"setp with a sink",
         "pred",
         {"u64", "u64"},
         [](const Inputs& in) {
           return Outputs{in[0] != in[1], 0};
         },
         {},
         "$g setp.eq.u64 _|$d, $a, $b;"});
}

// An instruction may overwrite the predicate that guards it; the previous value decides whether it
// runs.
TEST_P(CompareOps, GuardMayBeTheDestination) {
  for (const bool negated : {false, true}) {
    const auto runs = [negated](const Inputs& in) { return (in[2] != 0) != negated; };
    const auto less = [](const Inputs& in) { return FromWord<s32>(in[0]) < FromWord<s32>(in[1]); };
    const auto sources = std::vector<std::string>{"s32", "s32", "pred"};
    const auto check = [&](const std::string& instruction, Reference reference, bool second) {
      Form form = {instruction, "pred", sources, std::move(reference)};
      form.code = "{\n.reg .pred %x, %y;\nmov.pred %x, $c;\nmov.pred %y, $c;\n" + instruction +
                  "\n$g mov.pred $d, %x;\n" + (second ? "$g mov.pred $e, %y;\n" : "") + "}";
      if (second) form.second_result = "pred";
      Check(form);
    };
    const std::string at = negated ? "@!%x " : "@%x ";
    check(
        at + "setp.lt.s32 %x, $a, $b;",
        [=](const Inputs& in) {
          return Outputs{runs(in) ? less(in) : in[2], 0};
        },
        false);
    check(
        at + "setp.lt.s32 %x|%y, $a, $b;",
        [=](const Inputs& in) {
          return Outputs{runs(in) ? less(in) : in[2], runs(in) ? !less(in) : in[2]};
        },
        true);
    check(
        at + "setp.lt.s32 %y|%x, $a, $b;",
        [=](const Inputs& in) {
          return Outputs{runs(in) ? !less(in) : in[2], runs(in) ? less(in) : in[2]};
        },
        true);
    check(
        at + "setp.lt.xor.s32 %x|%y, $a, $b, %x;",
        [=](const Inputs& in) {
          const bool with = in[2] != 0;
          return Outputs{runs(in) ? less(in) != with : in[2], runs(in) ? less(in) == with : in[2]};
        },
        true);
    check(
        at + "setp.lt.and.s32 %x|%y, $a, $b, !%x;",
        [=](const Inputs& in) {
          const bool with = in[2] == 0;
          return Outputs{runs(in) ? less(in) && with : in[2], runs(in) ? !less(in) && with : in[2]};
        },
        true);
    check(
        at + "and.pred %x, %x, !%y;",
        [=](const Inputs& in) {
          return Outputs{runs(in) ? false : in[2] != 0, 0};
        },
        false);
  }
}

// set: all ones or 1.0 in the destination's type.
TEST_P(CompareOps, SetWritesNumbers) {
  const struct {
    const char* type;
    Word one;
  } kResults[] = {{"u32", 0xffffffff}, {"s32", 0xffffffff}, {"f32", 0x3f800000}};
  for (const auto& result : kResults) {
    const Word one = result.one;
    ForEachType(
        [&]<typename T>(T, const std::string& type, const std::vector<std::string>& relations) {
          if (type == "f16" || type == "bf16") return;
          for (const std::string& relation : relations) {
            Check({"set." + relation + "." + result.type + "." + type,
                   "b32",
                   {type, type},
                   [=](const Inputs& in) {
                     return Outputs{
                         Related(relation, Plain<T>::Of(in[0]), Plain<T>::Of(in[1])) ? one : 0, 0};
                   }});
          }
        });
    for (const std::string logic : {"and", "or", "xor"}) {
      Check({"set.gt." + logic + ".ftz." + result.type + ".f32",
             "b32",
             {"f32", "f32", "pred"},
             [=](const Inputs& in) {
               const bool holds = Related<float>("gt", WithoutSubnormals(FromWord<float>(in[0])),
                                                 WithoutSubnormals(FromWord<float>(in[1])));
               return Outputs{Combined(logic, holds, in[2] != 0) ? one : 0, 0};
             }});
    }
  }
  // For halves, set writes 1.0 of the half type.
  const auto half = [&]<typename T>(T, const std::string& type, Word one) {
    for (const std::string& relation : kFloat) {
      Check(
          {"set." + relation + "." + type + "." + type, "b16", {type, type}, [=](const Inputs& in) {
             return Outputs{Related(relation, Plain<T>::Of(in[0]), Plain<T>::Of(in[1])) ? one : 0,
                            0};
           }});
    }
  };
  half(_Float16{}, "f16", 0x3c00);
  half(Bfloat{}, "bf16", 0x3f80);
}

// Pairs of halves give two predicates, or two numbers in one word. Only f16 has .ftz.
TEST_P(CompareOps, PairsCompareHalfByHalf) {
  const auto check = [&]<typename T>(T, const HalfType& type, Word one, bool flushes) {
    const std::string pair = type.name + "x2", ftz = flushes ? ".ftz." : ".";
    const auto half = [=](const std::string& relation, const Inputs& in, u32 which) {
      const auto value = [&](Word word) {
        const u16 bits = static_cast<u16>(word >> 16 * which);
        return Plain<T>::Of(flushes ? type.Flush(bits) : bits);
      };
      return Related(relation, value(in[0]), value(in[1]));
    };
    for (const std::string& relation : kFloat) {
      Form form = {"setp." + relation + ftz + pair, "pred", {pair, pair}, [=](const Inputs& in) {
                     return Outputs{half(relation, in, 0), half(relation, in, 1)};
                   }};
      form.code = "$g " + form.spelling + " $d|$e, $a, $b;";
      form.second_result = "pred";
      Check(form);
      Check(
          {"set." + relation + ftz + pair + "." + pair, "b32", {pair, pair}, [=](const Inputs& in) {
             return Outputs{
                 (half(relation, in, 0) ? one : 0) | (half(relation, in, 1) ? one << 16 : 0), 0};
           }});
    }
    Form combined = {
        "setp.lt.and" + ftz + pair, "pred", {pair, pair, "pred"}, [=](const Inputs& in) {
          return Outputs{half("lt", in, 0) && in[2] != 0, half("lt", in, 1) && in[2] != 0};
        }};
    combined.code = "$g " + combined.spelling + " $d|$e, $a, $b, $c;";
    combined.second_result = "pred";
    Check(combined);
  };
  check(_Float16{}, kHalfTypes[0], 0x3c00, false);
  check(_Float16{}, kHalfTypes[0], 0x3c00, true);
  check(Bfloat{}, kHalfTypes[1], 0x3f80, false);
}

TEST_P(CompareOps, SelectionByPredicate) {
  for (const char* type : {"b16", "b32", "b64", "u16", "s32", "u64", "f32", "f64"}) {
    const auto select = [](const Inputs& in) { return Outputs{in[2] != 0 ? in[0] : in[1], 0}; };
    Check({std::string("selp.") + type, type, {type, type, "pred"}, select});
  }
}

// slct: a if c >= 0, otherwise b; NaN chooses b; .ftz treats negative subnormals as -0, which is
// not below 0 (PTX ISA, slct).
TEST_P(CompareOps, SelectionBySign) {
  for (const char* type : {"b16", "b32", "b64", "u32", "s64", "f32", "f64"}) {
    Check({std::string("slct.") + type + ".s32", type, {type, type, "s32"}, [](const Inputs& in) {
             return Outputs{FromWord<s32>(in[2]) >= 0 ? in[0] : in[1], 0};
           }});
    Check({std::string("slct.") + type + ".f32", type, {type, type, "f32"}, [](const Inputs& in) {
             return Outputs{FromWord<float>(in[2]) >= 0 ? in[0] : in[1], 0};
           }});
    Check(
        {std::string("slct.ftz.") + type + ".f32", type, {type, type, "f32"}, [](const Inputs& in) {
           return Outputs{WithoutSubnormals(FromWord<float>(in[2])) >= 0 ? in[0] : in[1], 0};
         }});
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(CompareOps);

}  // namespace
}  // namespace gpushared::testing
