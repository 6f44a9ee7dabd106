// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/video.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace gpushared::ptx {
namespace {

using Operation = VideoForm::Operation;
using Second = VideoForm::Second;
using Relation = VideoForm::Relation;

struct Opcode {
  std::string_view name;
  Operation operation;
  bool is_single = true;    // vadd
  bool is_several = false;  // vadd2, vadd4
};
constexpr auto kOpcodes = std::to_array<Opcode>({
    {"vabsdiff", Operation::kAbsoluteDifference, true, true},
    {"vadd", Operation::kAdd, true, true},
    {"vavrg", Operation::kAverage, false, true},
    {"vmad", Operation::kMultiplyAdd},
    {"vmax", Operation::kMaximum, true, true},
    {"vmin", Operation::kMinimum, true, true},
    {"vset", Operation::kCompare, true, true},
    {"vshl", Operation::kShiftLeft},
    {"vshr", Operation::kShiftRight},
    {"vsub", Operation::kSubtract, true, true},
});

constexpr auto kRelations = std::to_array<std::pair<std::string_view, Relation>>({
    {"eq", Relation::kEqual},
    {"ne", Relation::kNotEqual},
    {"lt", Relation::kLess},
    {"le", Relation::kAtMost},
    {"gt", Relation::kGreater},
    {"ge", Relation::kAtLeast},
});
constexpr auto kSeconds = std::to_array<std::pair<std::string_view, Second>>({
    {"add", Second::kAdd},
    {"min", Second::kMinimum},
    {"max", Second::kMaximum},
});

template <typename T, std::size_t N>
std::optional<T> Named(const std::array<std::pair<std::string_view, T>, N>& names,
                       std::string_view name) {
  for (const auto& [each, value] : names) {
    if (each == name) return value;
  }
  return std::nullopt;
}

// Returns the opcode and its number of elements; nothing for another instruction.
std::optional<std::pair<Opcode, std::uint32_t>> Find(std::string_view opcode) {
  std::uint32_t elements = 1;
  if (opcode.ends_with('2') || opcode.ends_with('4')) {
    elements = static_cast<std::uint32_t>(opcode.back() - '0');
    opcode.remove_suffix(1);
  }
  const auto* const found = std::ranges::find(kOpcodes, opcode, &Opcode::name);
  if (found == kOpcodes.end() || !(elements == 1 ? found->is_single : found->is_several)) {
    return std::nullopt;
  }
  return std::pair(*found, elements);
}

std::string_view GetSelector(const Operand& operand) {
  const std::size_t dot = operand.text.rfind('.');
  if (operand.kind != Operand::Kind::kName || dot == std::string::npos) return {};
  return std::string_view(operand.text).substr(dot + 1);
}
bool IsNegated(const Operand& operand) {
  return operand.kind == Operand::Kind::kName && operand.text.starts_with('-');
}

class Reader {
 public:
  explicit Reader(const Instruction& instruction) : instruction_(instruction) {}

  Result<VideoForm> Run() {
    std::tie(opcode_, form_.elements) = *Find(instruction_.opcode);
    form_.operation = opcode_.operation;
    for (const std::string& modifier : instruction_.modifiers) ReadModifier(modifier);
    CheckModifiers();
    if (why_.empty()) ReadOperands();
    if (why_.empty()) return form_;
    return Status(StatusCode::kInvalidArgument, instruction_.Spelling() + " " + why_);
  }

 private:
  void Reject(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }
  bool Is(Operation operation) const { return form_.operation == operation; }
  bool IsShift() const { return Is(Operation::kShiftLeft) || Is(Operation::kShiftRight); }

  void ReadModifier(const std::string& modifier) {
    const bool is_sum = Is(Operation::kMultiplyAdd);
    const auto relation = Named(kRelations, modifier);
    const auto second = Named(kSeconds, modifier);
    if (modifier == "s32" || modifier == "u32") {
      if (types_ < is_signed_.size()) is_signed_[types_] = modifier == "s32";
      ++types_;
    } else if (modifier == "sat" && !Is(Operation::kCompare)) {
      form_.saturates = true;
    } else if (relation && Is(Operation::kCompare)) {
      form_.relation = *relation;
      ++relations_;
    } else if (second && !is_sum && (form_.elements == 1 || *second == Second::kAdd)) {
      form_.second = *second;
      ++seconds_;
    } else if ((modifier == "clamp" || modifier == "wrap") && IsShift()) {
      form_.wraps = modifier == "wrap";
      ++modes_;
    } else if (modifier == "po" && is_sum) {
      form_.adds_one = true;
    } else if ((modifier == "shr7" || modifier == "shr15") && is_sum) {
      form_.scale = modifier == "shr7" ? 7 : 15;
      ++scales_;
    } else {
      Reject("does not take ." + modifier);
    }
  }

  void CheckModifiers() {
    const std::size_t wanted = Is(Operation::kCompare) ? 2 : 3;
    if (types_ != wanted) Reject("needs " + std::to_string(wanted) + " types, each .u32 or .s32");
    const bool has_result = wanted == is_signed_.size();
    form_.is_result_signed = has_result && is_signed_[0];
    form_.is_a_signed = is_signed_[has_result ? 1 : 0];
    form_.is_b_signed = is_signed_[has_result ? 2 : 1];
    if (Is(Operation::kCompare) && relations_ != 1) Reject("needs exactly one comparison");
    if (IsShift() && modes_ != 1) Reject("needs .clamp or .wrap");
    if (IsShift() && form_.is_b_signed) Reject("needs a distance of type .u32");
    if (seconds_ > 1) Reject("takes at most one second operation");
    if (scales_ > 1) Reject("takes at most one of .shr7 and .shr15");
    if (form_.elements > 1 && form_.saturates && seconds_ != 0) Reject("takes no .sat with .add");
  }

  void ReadOperands() {
    const std::size_t count = instruction_.operands.size();
    const bool needs_third =
        form_.elements > 1 || Is(Operation::kMultiplyAdd) || form_.second != Second::kMerge;
    if (count < (needs_third ? 4u : 3u) || count > 4) {
      return Reject("has " + std::to_string(count) + " operands");
    }
    const auto& operands = instruction_.operands;
    ReadSigns();
    if (count == 4 && !GetSelector(operands[3]).empty()) {
      return Reject("takes no selector after its last operand");
    }
    if (form_.elements > 1) return ReadElements();
    if (!ReadPart(operands[1], form_.a) || !ReadPart(operands[2], form_.b) ||
        !ReadPart(operands[0], form_.result)) {
      return Reject("takes only the selectors .b0 to .b3, .h0 and .h1");
    }
    const bool selects = !GetSelector(operands[0]).empty();
    if (selects && (Is(Operation::kMultiplyAdd) || count == 3)) {
      return Reject("takes no selector after its result");
    }
    if (selects && form_.second != Second::kMerge) {
      Reject("takes a selector after its result or a second operation, but not both");
    }
  }

  void ReadSigns() {
    const auto& operands = instruction_.operands;
    const bool a = IsNegated(operands[1]), b = IsNegated(operands[2]);
    const bool c = operands.size() > 3 && IsNegated(operands[3]);
    if (IsNegated(operands[0])) return Reject("has a sign before its result");
    if (!Is(Operation::kMultiplyAdd) && (a || b || c)) return Reject("takes no sign");
    if (form_.adds_one && (a || b || c)) return Reject("takes no sign with .po");
    if (a != b && c) return Reject("negates either the product or the last operand, but not both");
    form_.negates_product = a != b;
    form_.negates_c = c;
  }

  static bool ReadPart(const Operand& operand, RegisterPart& part) {
    const std::string_view selector = GetSelector(operand);
    if (selector.empty()) return true;
    if (selector.size() != 2) return false;
    const int number = selector[1] - '0';
    const bool is_byte = selector[0] == 'b' && number >= 0 && number < 4;
    const bool is_half = selector[0] == 'h' && number >= 0 && number < 2;
    part.bits = is_byte ? 8 : 16;
    part.position = static_cast<std::uint8_t>(part.bits * number);
    return is_byte || is_half;
  }

  // Reads the digits of "b7654", the last one for the lowest element. Without a selector, elements
  // start at `first`.
  bool ReadSelection(const Operand& operand, std::uint8_t first, std::array<std::uint8_t, 4>& to) {
    const std::string_view selector = GetSelector(operand);
    for (std::uint8_t i = 0; i < form_.elements; ++i) to[i] = static_cast<std::uint8_t>(first + i);
    if (selector.empty()) return true;
    if (selector.size() != form_.elements + 1 || selector[0] != Letter()) return false;
    for (std::uint32_t i = 0; i < form_.elements; ++i) {
      const int digit = selector[form_.elements - i] - '0';
      if (digit < 0 || digit >= static_cast<int>(2 * form_.elements)) return false;
      to[i] = static_cast<std::uint8_t>(digit);
    }
    return true;
  }

  // Reads "b320", whose digits must decrease.
  bool ReadMask(const Operand& operand) {
    const std::string_view selector = GetSelector(operand);
    if (selector.empty()) {
      std::fill_n(form_.is_kept.begin(), form_.elements, true);
      return true;
    }
    if (selector.size() < 2 || selector[0] != Letter()) return false;
    int above = static_cast<int>(form_.elements);
    for (const char each : selector.substr(1)) {
      const int digit = each - '0';
      if (digit < 0 || digit >= above) return false;
      form_.is_kept[static_cast<std::size_t>(digit)] = true;
      above = digit;
    }
    return true;
  }

  char Letter() const { return form_.elements == 2 ? 'h' : 'b'; }

  void ReadElements() {
    const auto& operands = instruction_.operands;
    const auto first_of_b = static_cast<std::uint8_t>(form_.elements);
    if (!std::ranges::all_of(operands, [](const Operand& each) {
          return each.kind == Operand::Kind::kName && each.text != "_";
        })) {
      return Reject("takes only registers");
    }
    if (!ReadMask(operands[0]) || !ReadSelection(operands[1], 0, form_.a_elements) ||
        !ReadSelection(operands[2], first_of_b, form_.b_elements)) {
      Reject("has an unsupported selector");
    }
  }

  const Instruction& instruction_;
  Opcode opcode_ = {};
  VideoForm form_;
  std::array<bool, 3> is_signed_ = {};
  std::size_t types_ = 0, relations_ = 0, seconds_ = 0, modes_ = 0, scales_ = 0;
  std::string why_;
};

}  // namespace

bool IsVideo(std::string_view opcode) {
  return opcode.starts_with('v') && Find(opcode).has_value();
}

Result<VideoForm> ReadVideo(const Instruction& instruction) { return Reader(instruction).Run(); }

std::string_view VideoRegister(const Operand& operand) {
  std::string_view name = operand.text;
  if (name.starts_with('-')) name.remove_prefix(1);
  return name.substr(0, name.rfind('.'));
}

}  // namespace gpushared::ptx
