// SPDX-License-Identifier: Apache-2.0
// Which operands PTX instructions take (PTX ISA, chapter 9, and what ptxas says of it).

#ifndef GPUSHARED_SERVER_PTX_ANALYSIS_INSTRUCTION_FORMS_H_
#define GPUSHARED_SERVER_PTX_ANALYSIS_INSTRUCTION_FORMS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/ptx/text/module.h"

namespace gpushared::ptx {

// A fundamental type, of a register or of an instruction.
//
// Thread-compatible value.
struct OperandType {
  enum class Kind : std::uint8_t { kPredicate, kBits, kInteger, kFloat, kHalfPair, kBrainFloat };
  Kind kind = Kind::kBits;
  std::uint8_t bytes = 0;  // 0 for predicates.
};
// Nothing for a type that is none of a register's, and for what is no type.
std::optional<OperandType> TypeNamed(std::string_view name);

// How an operand's type follows from the types that the instruction names.
enum class Slot : char {
  kFirst = 'T',      // The first type.
  kLast = 'L',       // The last type.
  kWide = 'W',       // The first type, twice as wide.
  kCount = 'c',      // 32 bits that are no float.
  kPredicate = 'p',  // Perhaps negated, perhaps two: p|q.
  kLoose = 'R',      // The last type, in a register that may be wider.
  kLooseTo = 'D',    // The first type, in a register that may be wider.
  kAddress = 'a',    // [register+offset], or a variable.
  kAny = '.',
};

// One instruction: its operands, by Slot, of which the first `least` must be there.
//
// Thread-compatible value.
struct InstructionForm {
  std::string_view opcode;
  std::string_view slots;
  std::uint8_t least = 0;
  // What the first type may be: p(redicate), b(its), i(nteger), f(loat). Half pairs and brain
  // floats count as floats.
  std::string_view kinds = {};
  std::uint8_t types = 1;  // As many types the instruction names.
};

// Nothing for an instruction that is not judged: one that is unknown, or has types of its own.
std::optional<InstructionForm> GetForm(const Instruction& instruction);

// Why the modifiers do not go together; empty when they do.
std::string_view WrongModifier(const Instruction& instruction);

}  // namespace gpushared::ptx

#endif  // GPUSHARED_SERVER_PTX_ANALYSIS_INSTRUCTION_FORMS_H_
