// SPDX-License-Identifier: Apache-2.0
// Random chains of all instructions that read or write the condition code, in any mixture of
// additions, subtractions and products, compared with exact integers (PTX ISA, Extended-Precision
// Integer Arithmetic Instructions). A subtraction sets the carry of a + ~b + 1, which is 1 if no
// borrow occurs, because ptxas compiles it to IADD3 with a negated operand. The manual's
// "borrow-out" describes the same behaviour as long as additions and subtractions are not mixed.
#include <random>
#include <string>
#include <vector>

#include "tests/executor/op_harness.h"

namespace gpushared::testing {
namespace {

__extension__ using s128 = __int128;
__extension__ using u128 = unsigned __int128;

constexpr u32 kChains = 400;
constexpr u32 kStepsMax = 12;
constexpr u64 kMixer = 0x9e3779b97f4a7c15;

enum class CarryKind : u32 { kAdd, kSubtract, kLowProduct, kHighProduct, kCount };

struct CarryStep {
  CarryKind kind = CarryKind::kAdd;
  bool is_signed = false;
  u32 bits = 32;
  bool reads = false;
  bool writes = false;
  std::array<u32, 3> sources = {};  // Indices of the form's four operands, or kSumSource.
};
constexpr u32 kSumSource = 4;  // A mixture of all results so far.

u128 LowOnes(u32 bits) { return (u128{1} << bits) - 1; }

// Returns the high or low half of a product, with the operands as the instruction reads them.
u128 ProductPart(const CarryStep& step, u64 a, u64 b) {
  u128 product = u128{a} * b;
  if (step.is_signed && step.bits == 32) {
    product = static_cast<u128>(s128{static_cast<s32>(a)} * static_cast<s32>(b));
  } else if (step.is_signed) {
    product = static_cast<u128>(s128{static_cast<s64>(a)} * static_cast<s64>(b));
  }
  if (step.kind == CarryKind::kHighProduct) product >>= step.bits;
  return product & LowOnes(step.bits);
}

// Computes one step in numbers that cannot overflow.
u64 ComputeStep(const CarryStep& step, u64 a, u64 b, u64 c, bool& carry) {
  const u128 modulus = u128{1} << step.bits;
  u128 sum;
  if (step.kind == CarryKind::kSubtract) {
    const u128 borrowed = step.reads && !carry ? 1 : 0;
    sum = modulus + a - b - borrowed;
  } else {
    const u128 first = step.kind == CarryKind::kAdd ? u128{a} : ProductPart(step, a, b);
    sum = first + (step.kind == CarryKind::kAdd ? b : c) + (step.reads && carry ? 1 : 0);
  }
  if (step.writes) carry = sum >= modulus;
  return static_cast<u64>(sum % modulus);
}

std::string CarryStepText(const CarryStep& step) {
  constexpr const char* kWords[] = {"add", "sub", "mad", "mad"};
  constexpr const char* kSources[] = {"$a", "$b", "$c", "$f", "$d"};
  const bool is_product =
      step.kind == CarryKind::kLowProduct || step.kind == CarryKind::kHighProduct;
  const std::string width = std::to_string(step.bits);
  const std::string result = "%step" + width;
  std::string text, operands;
  for (u32 i = 0; i < (is_product ? 3u : 2u); ++i) {
    const std::string source = kSources[step.sources[i]];
    const std::string taken = "%source" + std::to_string(i);
    operands += ", " + (step.bits == 64 ? source : taken);
    if (step.bits == 32) text += "$g cvt.u32.u64 " + taken + ", " + source + ";\n";
  }
  text += std::string("$g ") + kWords[static_cast<u32>(step.kind)] + (step.reads ? "c" : "");
  if (is_product) text += step.kind == CarryKind::kHighProduct ? ".hi" : ".lo";
  text += std::string(step.writes ? ".cc" : "") + (step.is_signed ? ".s" : ".u") + width + " " +
          result + operands + ";\n";
  if (step.bits == 32) text += "$g cvt.u64.u32 %step64, %step32;\n";
  return text + "$g mad.lo.u64 $d, $d, " + std::to_string(kMixer) + ", %step64;\n";
}

std::vector<CarryStep> RandomChain(std::mt19937& random) {
  std::vector<CarryStep> chain(2 + random() % (kStepsMax - 1));
  for (CarryStep& step : chain) {
    const bool is_first = &step == &chain.front();
    step.kind = static_cast<CarryKind>(random() % static_cast<u32>(CarryKind::kCount));
    step.is_signed = random() % 2 != 0;
    step.bits = random() % 2 != 0 ? 64 : 32;
    step.reads = !is_first && random() % 8 != 0;
    step.writes = is_first || random() % 8 != 0;
    if (!step.reads && !step.writes) step.writes = true;
    for (u32& source : step.sources) source = static_cast<u32>(random() % (kSumSource + 1));
  }
  return chain;
}

class CarryChains : public PerFlavour {};

TEST_P(CarryChains, KeepOneCarryThroughAdditionsSubtractionsAndProducts) {
  std::mt19937 random(41);
  for (u32 i = 0; i < GetSweep(kChains) && !HasFailure(); ++i) {
    const std::vector<CarryStep> chain = RandomChain(random);
    std::string code = "$g mov.u64 $d, 0;\n";
    for (const CarryStep& step : chain) code += CarryStepText(step);
    code += "$g addc.u64 $e, 0, 0;";
    const Reference reference = [&chain](const Inputs& in) {
      bool carry = false;
      u64 mixed = 0;
      for (const CarryStep& step : chain) {
        std::array<u64, 3> source = {};
        for (u32 k = 0; k < source.size(); ++k) {
          source[k] = step.sources[k] == kSumSource ? mixed : in[step.sources[k]];
          source[k] &= static_cast<u64>(LowOnes(step.bits));
        }
        mixed = mixed * kMixer + ComputeStep(step, source[0], source[1], source[2], carry);
      }
      return Outputs{mixed, carry};
    };
    CheckForm(GetParam(),
              {.spelling = {},
               .result = "u64",
               .sources = {"u64", "u64", "u64", "u64"},
               .reference = reference,
               .code = code,
               .second_result = "u64",
               .kernel_variables = "  .reg .b32 %source<3>, %step32;\n  .reg .b64 %step64;\n"});
  }
}

struct CarryPair {
  const char* code;  // Leaves the second result for the operands 5 and 3, or 3 and 5, in $e.
  u64 of_5_and_3;
  u64 of_3_and_5;
};

// The mixtures of additions and subtractions in nvcc's division of 128-bit numbers, one at a time.
TEST_P(CarryChains, CarryWhereASubtractionBorrowsNothing) {
  const CarryPair pairs[] = {
      {"sub.cc.u32 $d, $a, $b; $g addc.u32 $e, 0, 0;", 1, 0},
      {"sub.cc.s32 $d, $a, $b; $g madc.lo.s32 $e, $a, $b, 0;", 16, 15},
      {"sub.cc.u32 $d, $a, $b; $g madc.hi.u32 $e, $a, $b, 0;", 1, 0},
      {"sub.cc.u32 $d, $a, $b; $g subc.cc.u32 $d, $a, $b; $g addc.cc.u32 $e, 0, 0;", 1, 0},
      {"add.cc.u32 $d, $a, -4; $g subc.u32 $e, 0, 0;", 0, 0xffffffff},
      {"mad.lo.cc.u32 $d, $a, 1, -4; $g subc.u32 $e, 0, 0;", 0, 0xffffffff},
      {"sub.cc.u32 $d, $a, $b; $g subc.u32 $e, 0, 0;", 0, 0xffffffff},
  };
  for (const CarryPair& pair : pairs) {
    const Reference reference = [&pair](const Inputs& in) {
      return Outputs{0, in[0] == 5 ? pair.of_5_and_3 : pair.of_3_and_5};
    };
    CheckForm(GetParam(),
              {.spelling = {},
               .result = "u32",
               .sources = {"u32", "u32"},
               .reference = reference,
               .code = std::string("$g ") + pair.code + " $g mov.u32 $d, 0;",
               .second_result = "u32"},
              {{5, 3, 0, 0}, {3, 5, 0, 0}});
  }
}

GPUSHARED_INSTANTIATE_FLAVOURS(CarryChains);

}  // namespace
}  // namespace gpushared::testing
