// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/instruction_forms.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

namespace gpushared::ptx {
namespace {

using Kind = OperandType::Kind;

// Sorted by opcode. GetForm applies the effects of modifiers.
constexpr auto kForms = std::to_array<InstructionForm>({
    {"abs", "TT", 2, "if"},        {"add", "TTT", 3, "if"},    {"addc", "TTT", 3, "i"},
    {"alloca", "TT.", 2, "i"},     {"and", "TTT", 3, "bp"},    {"atom", "TaTT", 3, "bif"},
    {"bfe", "TTcc", 4, "i"},       {"bfi", "TTTcc", 5, "b"},   {"bfind", "cT", 2, "i"},
    {"brev", "TT", 2, "b"},        {"clz", "cT", 2, "b"},      {"cnot", "TT", 2, "b"},
    {"copysign", "TTT", 3, "f"},   {"cos", "TT", 2, "f"},      {"cvt", "DRR.", 2, "if", 2},
    {"cvta", "TT", 2, "i"},        {"div", "TTT", 3, "if"},    {"ex2", "TT", 2, "f"},
    {"fma", "TTTT", 4, "f"},       {"ld", "Ra.", 2, "bif"},    {"ldu", "Ra", 2, "bif"},
    {"lg2", "TT", 2, "f"},         {"lop3", "TTTT..", 5, "b"}, {"mad", "TTTT", 4, "if"},
    {"mad24", "TTTT", 4, "i"},     {"madc", "TTTT", 4, "i"},   {"max", "TTTT", 3, "if"},
    {"min", "TTTT", 3, "if"},      {"mov", "TT", 2, "pbif"},   {"mul", "TTT", 3, "if"},
    {"mul24", "TTT", 3, "i"},      {"neg", "TT", 2, "if"},     {"not", "TT", 2, "bp"},
    {"or", "TTT", 3, "bp"},        {"popc", "cT", 2, "b"},     {"prmt", "TTTT", 4, "b"},
    {"rcp", "TT", 2, "f"},         {"red", "aT.", 2, "bif"},   {"rem", "TTT", 3, "i"},
    {"rsqrt", "TT", 2, "f"},       {"sad", "TTTT", 4, "i"},    {"selp", "TTTp", 4, "bif"},
    {"set", "TLLp", 3, "if", 2},   {"setp", "pTTp", 3, "bif"}, {"shf", "TTTc", 4, "b"},
    {"shl", "TTc", 3, "b"},        {"shr", "TTc", 3, "bi"},    {"sin", "TT", 2, "f"},
    {"slct", "TTTL", 4, "bif", 2}, {"sqrt", "TT", 2, "f"},     {"st", "aR.", 2, "bif"},
    {"stackrestore", "T", 1, "i"}, {"stacksave", "T", 1, "i"}, {"sub", "TTT", 3, "if"},
    {"subc", "TTT", 3, "i"},       {"szext", "TTc", 3, "i"},   {"tanh", "TT", 2, "f"},
    {"testp", "pT", 2, "f"},       {"xor", "TTT", 3, "bp"},
});
static_assert(std::ranges::is_sorted(kForms, {}, &InstructionForm::opcode));

bool IsFloat(Kind kind) {
  return kind == Kind::kFloat || kind == Kind::kHalfPair || kind == Kind::kBrainFloat;
}

struct NamedTypes {
  std::array<OperandType, 2> found = {};
  std::size_t count = 0;
};
NamedTypes GetTypes(const Instruction& instruction) {
  NamedTypes types;
  for (const std::string& modifier : instruction.modifiers) {
    const std::optional<OperandType> type = TypeNamed(modifier);
    if (!type) continue;
    if (types.count < types.found.size()) types.found[types.count] = *type;
    ++types.count;
  }
  return types;
}

bool HasRounding(const Instruction& instruction) {
  return std::ranges::any_of(std::to_array<std::string_view>({"rn", "rz", "rm", "rp", "rna", "rs"}),
                             [&](std::string_view each) { return instruction.Has(each); });
}
bool HasIntegerRounding(const Instruction& instruction) {
  return std::ranges::any_of(std::to_array<std::string_view>({"rni", "rzi", "rmi", "rpi"}),
                             [&](std::string_view each) { return instruction.Has(each); });
}

std::string_view WrongConversion(const Instruction& cvt, const NamedTypes& types) {
  if (types.count != 2) return {};
  const auto& [to, from] = types.found;
  const bool is_plain = (to.kind == Kind::kInteger || to.kind == Kind::kFloat) &&
                        (from.kind == Kind::kInteger || from.kind == Kind::kFloat);
  if (!is_plain) return {};
  const bool to_float = to.kind == Kind::kFloat, from_float = from.kind == Kind::kFloat;
  const bool needs = (to_float && !from_float) || (to_float && from_float && to.bytes < from.bytes);
  if (needs && !HasRounding(cvt)) return "needs a rounding modifier";
  const bool widens = to_float && from_float && to.bytes > from.bytes;
  if (widens && HasRounding(cvt)) return "takes no rounding modifier: it is exact";
  const bool needs_integer = !to_float && from_float;
  if (needs_integer && !HasIntegerRounding(cvt)) return "needs a rounding modifier such as .rzi";
  return {};
}

std::string_view WrongAllocation(const Instruction& alloca) {
  if (!alloca.Has("u32") && !alloca.Has("u64")) return "needs type .u32 or .u64";
  if (alloca.operands.size() < 3) return {};
  const Operand& alignment = alloca.operands[2];
  constexpr std::int64_t kAlignmentMax = std::int64_t{1} << 23;
  const bool is_power = alignment.kind == Operand::Kind::kInteger && alignment.integer > 0 &&
                        alignment.integer <= kAlignmentMax &&
                        std::has_single_bit(static_cast<std::uint64_t>(alignment.integer));
  return is_power ? std::string_view() : "needs an alignment that is a power of two up to 2^23";
}

// Checks instructions that are rare in kernels.
std::string_view WrongSeldomForm(const Instruction& instruction, const OperandType& type) {
  const std::string_view opcode = instruction.opcode;
  if (opcode == "alloca") return WrongAllocation(instruction);
  const bool is_of_stack = opcode == "stacksave" || opcode == "stackrestore";
  if (is_of_stack && !instruction.Has("u32") && !instruction.Has("u64")) {
    return "needs type .u32 or .u64";
  }
  if (opcode == "szext") {
    if (type.bytes != 4) return "needs a 32-bit type";
    if (instruction.Has("clamp") == instruction.Has("wrap")) return "needs .clamp or .wrap";
  }
  if ((opcode == "min" || opcode == "max") && instruction.Has("relu") && !instruction.Has("s32")) {
    return "takes .relu only with .s32 and .s16x2";
  }
  if (type.bytes != 16) return {};
  const bool is_exchange = instruction.Has("exch") || instruction.Has("cas");
  if (opcode == "atom" && !is_exchange) return "takes .b128 only with .exch or .cas";
  if (opcode == "setp" || opcode == "selp") return "does not take .b128";
  if (instruction.Has("v2") || instruction.Has("v4")) return "has vectors of 128 bits at most";
  return {};
}

std::string_view WrongPack(const Instruction& cvt) {
  if (!cvt.Has("sat")) return "needs .sat";
  const bool is_whole = cvt.Has("s16") || cvt.Has("u16");
  if (!cvt.Has("s32") || cvt.Has("b32") == is_whole)
    return "has an unsupported combination of types";
  if (cvt.operands.size() != (is_whole ? 3 : 4)) return "has the wrong number of operands";
  return {};
}

std::string_view WrongComparison(const Instruction& setp, Kind kind) {
  const bool combines = setp.Has("and") || setp.Has("or") || setp.Has("xor");
  if (setp.operands.size() != (combines ? 4 : 3)) return "has the wrong number of operands";
  if (kind == Kind::kBits && !setp.Has("eq") && !setp.Has("ne"))
    return "compares bits only by .eq and .ne";
  return {};
}

}  // namespace

std::optional<OperandType> TypeNamed(std::string_view name) {
  struct Named {
    std::string_view name;
    OperandType type;
  };
  static constexpr auto kTypes = std::to_array<Named>({
      {"b128", {Kind::kBits, 16}},        {"b16", {Kind::kBits, 2}},
      {"b32", {Kind::kBits, 4}},          {"b64", {Kind::kBits, 8}},
      {"b8", {Kind::kBits, 1}},           {"bf16", {Kind::kBrainFloat, 2}},
      {"bf16x2", {Kind::kBrainFloat, 4}}, {"f16", {Kind::kFloat, 2}},
      {"f16x2", {Kind::kHalfPair, 4}},    {"f32", {Kind::kFloat, 4}},
      {"f64", {Kind::kFloat, 8}},         {"pred", {Kind::kPredicate, 0}},
      {"s16", {Kind::kInteger, 2}},       {"s32", {Kind::kInteger, 4}},
      {"s64", {Kind::kInteger, 8}},       {"s8", {Kind::kInteger, 1}},
      {"u16", {Kind::kInteger, 2}},       {"u32", {Kind::kInteger, 4}},
      {"u64", {Kind::kInteger, 8}},       {"u8", {Kind::kInteger, 1}},
  });
  static_assert(std::ranges::is_sorted(kTypes, {}, &Named::name));
  const auto* const found = std::ranges::lower_bound(kTypes, name, {}, &Named::name);
  if (found == kTypes.end() || found->name != name) return std::nullopt;
  return found->type;
}

std::optional<InstructionForm> GetForm(const Instruction& instruction) {
  const std::string_view opcode = instruction.opcode;
  // Video instructions: vadd, vmad, vset4 and others. Their suffixes are left to ptxas.
  constexpr InstructionForm kVideo = {"", "cccc", 3, "i", 3},
                            kVideoComparison = {"", "cccc", 3, "i", 2};
  InstructionForm form = opcode.starts_with("vset") ? kVideoComparison : kVideo;
  if (!opcode.starts_with('v') || opcode == "vote") {
    const auto* const found =
        std::ranges::lower_bound(kForms, opcode, {}, &InstructionForm::opcode);
    if (found == kForms.end() || found->opcode != opcode) return std::nullopt;
    form = *found;
  }
  if (opcode == "cvt" && instruction.Has("pack")) {
    form.slots = "cRRc";
    form.least = 3;
    if (GetTypes(instruction).count == 3) form.types = 3;
  }
  if (GetTypes(instruction).count != form.types) return std::nullopt;
  if (instruction.Has("wide")) form.slots = opcode == "mad" ? "WTTW" : "WTT";
  // A cache policy follows the operands.
  if (instruction.Has("L2::cache_hint")) form.slots = opcode == "atom" ? "TaT.." : form.slots;
  if (opcode == "atom" && instruction.Has("cas")) form.least = 4;
  return form;
}

std::string_view WrongModifier(const Instruction& instruction) {
  const NamedTypes types = GetTypes(instruction);
  if (types.count == 0) return {};
  const std::string_view opcode = instruction.opcode;
  if (opcode == "cvt" && instruction.Has("pack")) return WrongPack(instruction);
  if (opcode == "cvt") return WrongConversion(instruction, types);
  const Kind kind = types.found[0].kind;
  const bool is_single = kind == Kind::kFloat && types.found[0].bytes >= 4 && types.count == 1;
  if (opcode == "mul" || opcode == "mad") {
    const bool has_half = instruction.Has("lo") || instruction.Has("hi") || instruction.Has("wide");
    if (kind == Kind::kInteger && !has_half) return "needs .lo, .hi or .wide";
    if (IsFloat(kind) && has_half) return "takes no .lo, .hi or .wide with floats";
  }
  const bool is_approximate = instruction.Has("approx") || instruction.Has("full");
  if (is_single && (opcode == "div" || opcode == "sqrt" || opcode == "rcp") && !is_approximate &&
      !HasRounding(instruction)) {
    return "needs a rounding modifier or .approx";
  }
  if (is_single && (opcode == "fma" || opcode == "mad") && !HasRounding(instruction)) {
    return "needs a rounding modifier";
  }
  if (is_single && !is_approximate &&
      (opcode == "ex2" || opcode == "lg2" || opcode == "sin" || opcode == "cos" ||
       opcode == "tanh" || opcode == "rsqrt")) {
    return "needs .approx";
  }
  const bool is_unsigned =
      instruction.Has("u16") || instruction.Has("u32") || instruction.Has("u64");
  if (is_unsigned && (opcode == "neg" || opcode == "abs")) return "needs a signed type";
  if (is_unsigned && (opcode == "add" || opcode == "sub") && instruction.Has("sat")) {
    return "saturates signed types only";
  }
  if (const std::string_view why = WrongSeldomForm(instruction, types.found[0]); !why.empty()) {
    return why;
  }
  if (opcode == "setp") return WrongComparison(instruction, kind);
  const bool is_arithmetic = opcode == "add" || opcode == "sub" || opcode == "mul" ||
                             opcode == "div" || opcode == "mad" || opcode == "neg" ||
                             opcode == "min" || opcode == "max";
  if (is_arithmetic && kind == Kind::kInteger && HasRounding(instruction)) {
    return "takes no rounding modifier with integers";
  }
  return {};
}

}  // namespace gpushared::ptx
