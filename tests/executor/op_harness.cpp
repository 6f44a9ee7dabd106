// SPDX-License-Identifier: Apache-2.0
#include "tests/executor/op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <stdexcept>

#include "tests/executor/launcher.h"

namespace gpushared::testing {
namespace {

constexpr std::size_t kVariants = 5;
constexpr u32 kThreads = 96;
constexpr const char* kSourceNames[] = {"%a", "%b", "%c", "%f"};
constexpr Word kUntouched = 0x5aa5c33c0ff0a55a;

std::string Hex(Word word) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(word));
  return text;
}

bool IsFloat(const std::string& type) {
  return type.find('f') != std::string::npos;  // f16, bf16, f32, f64 and pairs.
}

// Width of the register that holds a type: 8-bit types are in 16-bit registers.
u32 RegisterBits(const std::string& type) { return std::max(GetBits(type), 16u); }

Word GetMask(u32 bits) { return bits >= 64 ? ~Word{0} : (Word{1} << bits) - 1; }

void Replace(std::string* text, const std::string& what, const std::string& with) {
  for (std::size_t at = 0; (at = text->find(what, at)) != std::string::npos; at += with.size()) {
    text->replace(at, what.size(), with);
  }
}

class KernelText {
 public:
  explicit KernelText(const Form& form) : form_(form) {
    text_ = ".version 9.0\n.target sm_90\n.address_size 64\n" + form.module_variables +
            ".visible .entry check(.param .u64 inputs, .param .u64 outputs, .param .u64 guards,"
            " .param .u32 count)\n{\n" +
            form.kernel_variables +
            "  .reg .pred %g, %in_range;\n  .reg .b32 %index, %count, %word;\n"
            "  .reg .b64 %in, %out, %guards, %at;\n";
    for (std::size_t i = 0; i < form.sources.size(); ++i) {
      Declare(kSourceNames[i], form.sources[i], RegisterBits(form.sources[i]));
    }
    for (std::size_t v = 0; v < kVariants; ++v) {
      Declare(Result(v), form.result, ResultBits(0));
      if (HasSecond()) Declare(Second(v), form.second_result, ResultBits(1));
    }
    text_ +=
        "  mov.u32 %index, %tid.x;\n  mov.u32 %word, %ctaid.x;\n"
        "  mad.lo.u32 %index, %word, " +
        std::to_string(kThreads) +
        ", %index;\n"
        "  ld.param.u32 %count, [count];\n  setp.ge.u32 %in_range, %index, %count;\n"
        "  @%in_range exit;\n"
        "  ld.param.u64 %in, [inputs];\n  ld.param.u64 %out, [outputs];\n"
        "  ld.param.u64 %guards, [guards];\n"
        "  mad.wide.u32 %guards, %index, 4, %guards;\n  ld.global.u32 %word, [%guards];\n"
        "  setp.ne.u32 %g, %word, 0;\n"
        "  mad.wide.u32 %in, %index, 32, %in;\n"
        "  mad.wide.u32 %out, %index, " +
        std::to_string(kVariants * 16) + ", %out;\n";
    for (std::size_t i = 0; i < form.sources.size(); ++i) {
      Load(kSourceNames[i], form.sources[i], RegisterBits(form.sources[i]), "%in", i * 8);
    }
    for (std::size_t v = 0; v < kVariants; ++v) {
      Load(Result(v), form.result, ResultBits(0), "%out", v * 16);
      if (HasSecond()) Load(Second(v), form.second_result, ResultBits(1), "%out", v * 16 + 8);
    }
    Use(0, "");
    Use(1, "@%g ");
    Use(2, "@!%g ");
    text_ += "  @!%g bra SKIP;\n";
    Use(3, "");
    text_ += "SKIP:\n";
    UseInPlace();
    for (std::size_t v = 0; v < kVariants; ++v) {
      Store(Result(v), form.result, ResultBits(0), v * 16);
      if (HasSecond()) Store(Second(v), form.second_result, ResultBits(1), v * 16 + 8);
    }
    text_ += "  ret;\n}\n";
  }

  const std::string& text() const { return text_; }
  u32 ResultBits(std::size_t which) const {
    const std::string& type = which == 0 ? form_.result : form_.second_result;
    if (which == 0 && form_.register_bits != 0) return form_.register_bits;
    return RegisterBits(type);
  }
  bool HasSecond() const { return !form_.second_result.empty(); }
  // Returns whether the result fits into the register of the first source.
  bool FitsInPlace() const {
    return !form_.sources.empty() && form_.result != "pred" && form_.sources[0] != "pred" &&
           ResultBits(0) == RegisterBits(form_.sources[0]) && form_.second_result.empty();
  }

 private:
  static std::string Result(std::size_t variant) { return "%d" + std::to_string(variant); }
  static std::string Second(std::size_t variant) { return "%e" + std::to_string(variant); }

  void Declare(const std::string& name, const std::string& type, u32 bits) {
    text_ +=
        "  .reg ." + (type == "pred" ? "pred" : "b" + std::to_string(bits)) + " " + name + ";\n";
  }
  void Load(const std::string& name, const std::string& type, u32 bits, const std::string& base,
            std::size_t offset) {
    const std::string from = "[" + base + "+" + std::to_string(offset) + "];\n";
    if (type == "pred") {
      text_ += "  ld.global.b32 %word, " + from + "  and.b32 %word, %word, 1;\n";
      text_ += "  setp.ne.u32 " + name + ", %word, 0;\n";
    } else {
      text_ += "  ld.global.b" + std::to_string(bits) + " " + name + ", " + from;
    }
  }
  void Store(const std::string& name, const std::string& type, u32 bits, std::size_t offset) {
    const std::string to = "[%out+" + std::to_string(offset) + "], ";
    if (type == "pred") {
      text_ += "  selp.u32 %word, 1, 0, " + name + ";\n  st.global.b32 " + to + "%word;\n";
    } else {
      text_ += "  st.global.b" + std::to_string(bits) + " " + to + name + ";\n";
    }
  }
  void Use(std::size_t variant, const std::string& guard, const std::string& first_source = "%a") {
    std::string code = form_.code;
    if (code.empty()) {
      code = "  $g " + form_.spelling + " $d";
      for (const char* name : {"$a", "$b", "$c", "$f"}) {
        if (static_cast<std::size_t>(std::string("abcf").find(name[1])) >= form_.sources.size()) {
          break;
        }
        code += std::string(", ") + name;
      }
      code += form_.tail + ";";
    }
    Replace(&code, "$g", guard);
    Replace(&code, "$d", Result(variant));
    Replace(&code, "$e", Second(variant));
    Replace(&code, "$a", first_source);
    Replace(&code, "$b", "%b");
    Replace(&code, "$c", "%c");
    Replace(&code, "$f", "%f");
    text_ += code + "\n";
  }
  void UseInPlace() {
    if (!FitsInPlace()) return;
    text_ += "  mov.b" + std::to_string(ResultBits(0)) + " " + Result(4) + ", %a;\n";
    Use(4, "", Result(4));
  }

  const Form& form_;
  std::string text_;
};

// Returns a floating-point value of a type, including f16 and bf16, as double.
double ValueFor(const std::string& type, Word word) {
  if (type == "f64") return FromWord<double>(word);
  if (type == "f32") return FromWord<float>(word);
  if (type == "bf16") return FromWord<float>((word & 0xffff) << 16);
  return static_cast<double>(FromWord<_Float16>(word));
}

// Maps float bits to integers with the order and distances of the values.
s64 Ordered(const std::string& type, Word word) {
  const u32 bits = GetBits(type);
  const s64 magnitude = static_cast<s64>(word & GetMask(bits - 1));
  return (word >> (bits - 1) & 1) != 0 ? -magnitude : magnitude;
}

bool SameValue(const std::string& type, Word expected, Word actual, double ulps, u32 bits) {
  if (((expected ^ actual) & GetMask(bits)) == 0) return true;
  if (!IsFloat(type)) return false;
  if (type.ends_with("x2")) {
    const std::string half = type.substr(0, type.size() - 2);
    return SameValue(half, expected & 0xffff, actual & 0xffff, ulps, 16) &&
           SameValue(half, expected >> 16 & 0xffff, actual >> 16 & 0xffff, ulps, 16);
  }
  const double x = ValueFor(type, expected), y = ValueFor(type, actual);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  const double distance =
      std::abs(static_cast<double>(Ordered(type, expected) - Ordered(type, actual)));
  return ulps > 0 && distance <= ulps;
}

std::vector<Word> FloatEdges(u32 fraction_bits, u32 exponent_bits) {
  const u32 sign_at = fraction_bits + exponent_bits;
  const Word one_exponent = (Word{1} << (exponent_bits - 1)) - 1;
  const Word fraction = (Word{1} << fraction_bits) - 1;
  const auto make = [&](Word exponent, Word bits) { return exponent << fraction_bits | bits; };
  const Word top = (Word{1} << exponent_bits) - 1;
  std::vector<Word> magnitudes = {
      0,                                                     // Zero.
      1,                                                     // Smallest subnormal.
      fraction,                                              // Largest subnormal.
      make(1, 0),                                            // Smallest normal.
      make(one_exponent, 0),                                 // 1
      make(one_exponent, 1),                                 // 1 + ulp
      make(one_exponent - 1, fraction),                      // 1 - ulp
      make(one_exponent - 1, 0),                             // 0.5
      make(one_exponent, fraction >> 1 & ~(fraction >> 2)),  // About 1.25.
      make(one_exponent, (fraction + 1) >> 1),               // 1.5
      make(one_exponent + 1, (fraction + 1) >> 2),           // 2.5
      make(one_exponent + 6, fraction / 3),                  // About 85.3
      make(top - 1, fraction),                               // Largest finite.
      make(top, 0),                                          // Infinity.
      make(top, (fraction + 1) >> 1),                        // Quiet NaN.
  };
  std::vector<Word> values;
  for (const Word magnitude : magnitudes) {
    values.push_back(magnitude);
    values.push_back(magnitude | Word{1} << sign_at);
  }
  return values;
}

std::vector<Word> IntegerEdges(u32 bits) {
  const Word top = Word{1} << (bits - 1);
  std::vector<Word> values = {0,
                              1,
                              2,
                              7,
                              8,
                              15,
                              16,
                              31,
                              32,
                              33,
                              63,
                              64,
                              65,
                              255 & GetMask(bits),
                              100,
                              127,
                              128,
                              top - 1,
                              top,
                              top + 1,
                              ~Word{0},
                              ~Word{1},
                              ~Word{6},
                              ~Word{31},
                              0x0123456789abcdef,
                              0xfedcba9876543210,
                              0x5555555555555555,
                              0xaaaaaaaaaaaaaaaa};
  for (Word& value : values) value &= GetMask(bits);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

u32 GetBits(const std::string& type) {
  if (type == "pred") return 1;
  if (type.ends_with("x2")) return 2 * GetBits(type.substr(0, type.size() - 2));
  const std::size_t digits = type.find_first_of("0123456789");
  return static_cast<u32>(std::stoul(type.substr(digits)));
}

std::vector<Word> EdgeValues(const std::string& type) {
  if (type == "pred") return {0, 1};
  if (type.ends_with("x2")) {
    const std::vector<Word> halves = EdgeValues(type.substr(0, type.size() - 2));
    std::vector<Word> pairs;
    for (std::size_t i = 0; i < halves.size(); ++i) {
      pairs.push_back(halves[i] | halves[(i * 7 + 3) % halves.size()] << 16);
    }
    return pairs;
  }
  if (type == "f16") return FloatEdges(10, 5);
  if (type == "bf16") return FloatEdges(7, 8);
  if (type == "f32") return FloatEdges(23, 8);
  if (type == "f64") return FloatEdges(52, 11);
  return IntegerEdges(GetBits(type));
}

std::vector<Inputs> EdgeTuples(const std::vector<std::string>& types) {
  std::vector<std::vector<Word>> values;
  std::size_t combinations = 1;
  for (const std::string& type : types) {
    values.push_back(EdgeValues(type));
    combinations *= values.back().size();
  }
  std::mt19937_64 random(types.size());
  // Values of every magnitude: a random pattern shifted by a random amount.
  const auto anywhere = [&](const std::string& type) {
    const u32 bits = GetBits(type);
    return IsFloat(type) ? random() & GetMask(bits) : (random() & GetMask(bits)) >> random() % bits;
  };
  std::vector<Inputs> tuples;
  if (combinations <= kTuplesMax) {
    for (std::size_t n = 0; n < combinations; ++n) {
      Inputs tuple = {};
      std::size_t rest = n;
      for (std::size_t i = 0; i < types.size(); ++i) {
        tuple[i] = values[i][rest % values[i].size()];
        rest /= values[i].size();
      }
      tuples.push_back(tuple);
    }
  }
  const std::size_t more = tuples.empty() ? kTuplesMax : 173;
  for (std::size_t n = 0; n < more; ++n) {
    Inputs tuple = {};
    for (std::size_t i = 0; i < types.size(); ++i) {
      tuple[i] = random() % 4 == 0 ? anywhere(types[i]) : values[i][random() % values[i].size()];
    }
    tuples.push_back(tuple);
  }
  return tuples;
}

void CheckForm(executor_flavour flavour, const Form& form) {
  CheckForm(flavour, form, EdgeTuples(form.sources));
}

namespace {

// A run of a form's kernel, and its outputs: kVariants pairs of results per tuple.
struct Run {
  Launcher launcher;
  const Word* outputs = nullptr;  // Null if the run failed; the failure has been reported.
  const u32* guards = nullptr;

  Run(executor_flavour flavour, const std::string& name, const KernelText& kernel,
      const std::vector<Inputs>& tuples)
      : launcher(std::uint64_t{1} << 20, flavour) {
    const std::size_t count = tuples.size();
    Inputs* inputs = launcher.Allocate<Inputs>(count);
    Word* results = launcher.Allocate<Word>(count * kVariants * 2);
    u32* lanes_on = launcher.Allocate<u32>(count);
    std::copy(tuples.begin(), tuples.end(), inputs);
    std::fill(results, results + count * kVariants * 2, kUntouched);
    std::mt19937 random(1);
    // Creates warps with all lanes active, with no lane active, and with some lanes active.
    for (std::size_t i = 0; i < count; ++i) {
      lanes_on[i] = i / 32 % 5 == 0 ? 1 : i / 32 % 5 == 1 ? 0 : random() & 1;
    }
    try {
      launcher.Load(kernel.text());
      const auto outcome =
          launcher.Run("check", {static_cast<u32>((count + kThreads - 1) / kThreads), 1, 1},
                       {kThreads, 1, 1}, inputs, results, lanes_on, static_cast<u32>(count));
      if (outcome.fault) throw std::runtime_error(outcome.fault->message);
      outputs = results;
      guards = lanes_on;
    } catch (const std::exception& error) {
      ADD_FAILURE() << name << ": " << error.what();
    }
  }
};

}  // namespace

void CheckForm(executor_flavour flavour, const Form& form, const std::vector<Inputs>& tuples) {
  const KernelText kernel(form);
  const std::string name = form.spelling.empty() ? form.code : form.spelling;
  const Run run(flavour, name, kernel, tuples);
  if (run.outputs == nullptr) return;
  for (std::size_t i = 0; i < tuples.size(); ++i) {
    const Outputs expected = form.reference(tuples[i]);
    for (std::size_t v = 0; v < kVariants; ++v) {
      if (v == 4 && !kernel.FitsInPlace()) continue;
      const bool runs = v == 0 || v == 4 || (run.guards[i] != 0) == (v != 2);
      for (std::size_t which = 0; which < (kernel.HasSecond() ? 2u : 1u); ++which) {
        const std::string& type = which == 0 ? form.result : form.second_result;
        const u32 bits = type == "pred" ? 1 : kernel.ResultBits(which);
        const Word actual = run.outputs[(i * kVariants + v) * 2 + which] & GetMask(bits);
        const Word wanted = (runs ? expected[which] : kUntouched) & GetMask(bits);
        if (SameValue(type, wanted, actual, runs ? form.ulps : 0, bits)) continue;
        ADD_FAILURE() << name << " of " << Hex(tuples[i][0]) << ", " << Hex(tuples[i][1]) << ", "
                      << Hex(tuples[i][2]) << ", " << Hex(tuples[i][3]) << " gives " << Hex(actual)
                      << " instead of " << Hex(wanted) << " (result " << which << ", variant " << v
                      << ", thread " << i << ", guard " << run.guards[i] << ")";
        return;
      }
    }
  }
}

std::vector<Outputs> RunForm(executor_flavour flavour, const Form& form,
                             const std::vector<Inputs>& tuples) {
  const Run run(flavour, form.spelling, KernelText(form), tuples);
  std::vector<Outputs> results;
  for (std::size_t i = 0; run.outputs != nullptr && i < tuples.size(); ++i) {
    const Word* plain = run.outputs + i * kVariants * 2;
    results.push_back({plain[0], plain[1]});
  }
  return results;
}

u32 GetSweep(u32 cases) {
  return std::getenv("GPUSHARED_WHOLE_SWEEPS") != nullptr ? cases : cases / 8;
}

void PerFlavour::SetUp() {
  if (GetParam() == executor_flavour::kV3 &&
      device::executor::BestFlavour() != executor_flavour::kV3) {
    GTEST_SKIP() << "this machine lacks x86-64-v3";
  }
  if (!device::executor::HasFlavour(GetParam())) {
    GTEST_SKIP() << "this build contains only the operations for this machine";
  }
}

std::string FlavourTestName(const ::testing::TestParamInfo<executor_flavour>& info) {
  return info.param == executor_flavour::kV3 ? "v3" : "baseline";
}

}  // namespace gpushared::testing
