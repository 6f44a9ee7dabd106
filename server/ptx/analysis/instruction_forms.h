// SPDX-License-Identifier: Apache-2.0
// Operands of PTX instructions (PTX ISA, chapter 9, and the behaviour of ptxas).

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_INSTRUCTION_FORMS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_INSTRUCTION_FORMS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// Fundamental type of a register or an instruction.
//
// Thread-compatible value.
struct OperandType {
  enum class Kind : std::uint8_t { kPredicate, kBits, kInteger, kFloat, kHalfPair, kBrainFloat };
  Kind kind = Kind::kBits;
  std::uint8_t bytes = 0;  // 0 for predicates.
};
// Returns nothing for names that are not types and for types that registers cannot have.
std::optional<OperandType> TypeNamed(std::string_view name);

// How an operand's type is derived from the types in the instruction's name.
enum class Slot : char {
  kFirst = 'T',      // The first type.
  kLast = 'L',       // The last type.
  kWide = 'W',       // The first type, twice as wide.
  kCount = 'c',      // 32 bits, not a float.
  kPredicate = 'p',  // A predicate, which may be negated or a pair p|q.
  kLoose = 'R',      // Like kLast, in a register that may be wider.
  kLooseTo = 'D',    // Like kFirst, in a register that may be wider.
  kAddress = 'a',    // [register+offset], or a variable.
  kAny = '.',
};

// Operands of an instruction by Slot; the first `least` are required.
//
// Thread-compatible value.
struct InstructionForm {
  std::string_view opcode;
  std::string_view slots;
  std::uint8_t least = 0;
  // Allowed first types: p(redicate), b(its), i(nteger), f(loat). Half pairs and brain floats are
  // treated as floats.
  std::string_view kinds = {};
  std::uint8_t types = 1;  // Number of types in the instruction's name.
};

// Returns nothing for an instruction that is not checked, because it is unknown or has special
// types.
std::optional<InstructionForm> GetForm(const Instruction& instruction);

// Returns the reason why the modifiers are incompatible; empty if they are valid.
std::string_view WrongModifier(const Instruction& instruction);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_INSTRUCTION_FORMS_H_
