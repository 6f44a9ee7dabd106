// SPDX-License-Identifier: Apache-2.0
// 128-bit values: registers with two rows. Most instructions on them are executed like those on
// pairs of 64-bit values.
#include <string>

#include "server/device/cpu/executor/decoder.h"

namespace gpushared::device::executor {
namespace {

using ptx::Operand;

// Suffixes of register names that cannot occur in PTX.
constexpr const char* kLow = ".@0";
constexpr const char* kHigh = ".@1";

bool IsRegister(const Operand& operand) { return operand.kind == Operand::Kind::kName; }

// Returns the two halves of a register, or of a number; the upper half of a number is 0.
Operand Pair(const Operand& operand) {
  Operand pair{.kind = Operand::Kind::kVector};
  Operand low = operand, high = operand;
  if (!IsRegister(operand)) {
    high = {.kind = Operand::Kind::kInteger, .text = "0"};
  } else if (operand.text != "_") {
    low.text += kLow;
    high.text += kHigh;
  }
  pair.elements = {std::move(low), std::move(high)};
  return pair;
}

bool IsVectorOf(const Operand& operand, std::size_t count) {
  return operand.kind == Operand::Kind::kVector && operand.elements.size() == count;
}
bool IsPairOrOne(const Operand& operand) {
  return operand.kind != Operand::Kind::kVector || IsVectorOf(operand, 2);
}

}  // namespace

std::optional<std::uint32_t> FunctionDecoder::GetHalf(const Operand& operand,
                                                      std::uint32_t reg) const {
  if (operand.text.ends_with(kLow)) return frame_.RegisterOffset(reg);
  if (operand.text.ends_with(kHigh)) return frame_.UpperOffset(reg);
  return std::nullopt;
}

// Returns whether the operand is a 128-bit register or can be used instead of one: a number, or
// the sink "_".
bool FunctionDecoder::IsB128(const Operand& operand) const {
  if (!IsRegister(operand) || operand.text == "_") return operand.kind != Operand::Kind::kVector;
  const std::uint32_t reg = flow_.FindRegister(operand.text);
  return reg != ptx::kNoRegister && frame_.RegisterWidth(reg) == 16 && operand.offset == 0;
}

// Returns the .v2.b64 form of ld, ldu and st of .b128, and of mov.b128 between registers; no value
// for other instructions.
std::optional<ptx::Instruction> FunctionDecoder::InHalves(const Instruction& instruction) const {
  const std::string& opcode = instruction.opcode;
  const bool loads = opcode == "ld" || opcode == "ldu", moves = opcode == "mov";
  const bool is_known = loads || moves || opcode == "st";
  if (!is_known || instruction.modifiers.empty() || instruction.modifiers.back() != "b128" ||
      instruction.operands.size() != 2 || instruction.Has("v2")) {
    return std::nullopt;
  }
  Instruction halves = instruction;
  halves.modifiers.back() = "v2";
  halves.modifiers.emplace_back("b64");
  for (Operand& operand : halves.operands) {
    if (!IsPairOrOne(operand)) return std::nullopt;
    const bool is_value =
        operand.kind != Operand::Kind::kAddress && operand.kind != Operand::Kind::kVector;
    if (is_value && !IsB128(operand)) return std::nullopt;
    if (is_value) operand = Pair(operand);
  }
  return halves;
}

bool FunctionDecoder::DecodeB128() {
  if (instruction_->modifiers.empty() || instruction_->modifiers.back() != "b128") return false;
  if (instruction_->opcode == "mov") return DecodeB128Move();
  return instruction_->opcode == "atom" && DecodeB128Atomic();
}

// Packs or unpacks four words.
bool FunctionDecoder::DecodeB128Move() {
  if (instruction_->operands.size() != 2) return false;
  const Operand& to = instruction_->operands[0];
  const Operand& from = instruction_->operands[1];
  const bool packs = IsVectorOf(from, 4);
  if (packs == IsVectorOf(to, 4) || !IsB128(packs ? to : from)) return false;
  const OperandType word = GetType("b32"), half = GetType("b64");
  const Operand whole = Pair(packs ? to : from);
  for (std::size_t i = 0; i < 2; ++i) {
    std::array<std::uint32_t, 4> rows = {};
    for (std::size_t k = 0; k < 2; ++k) {
      const Operand& part = (packs ? from : to).elements[2 * i + k];
      rows[k] = packs ? Source(part, word) : Destination(part, word);
    }
    const std::uint32_t row =
        packs ? Destination(whole.elements[i], half) : Source(whole.elements[i], half);
    MicroOp& op = Emit(packs ? "pack.b64.2" : "unpack.b64.2", true);
    op.rows = rows;
    (packs ? op.destination : op.a) = row;
  }
  return true;
}

// atom.exch.b128 d, [a], b and atom.cas.b128 d, [a], b, c: b and c are in MicroOp::rows, each as
// two halves, and the upper half of d is in `extra`.
bool FunctionDecoder::DecodeB128Atomic() {
  const bool compares = instruction_->Has("cas");
  const auto& operands = instruction_->operands;
  if (compares == instruction_->Has("exch") || operands.size() != (compares ? 4u : 3u))
    return false;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (i != 1 && !IsB128(operands[i])) return false;
  }
  std::string space = "generic";
  for (const std::string& modifier : instruction_->modifiers) {
    if (modifier == "global") space = modifier;
    if (modifier == "shared" || modifier == "shared::cta") space = "shared";
    if (modifier == "shared::cluster") return false;
  }
  const OperandType half = GetType("b64");
  std::uint32_t base = 0;
  std::int64_t immediate = 0;
  const std::string index = AddressRow(operands[1], space, &base, &immediate);
  std::array<std::uint32_t, 4> rows = {};
  for (std::size_t i = 0; i + 2 < operands.size(); ++i) {
    const Operand pair = Pair(operands[i + 2]);
    rows[2 * i] = Source(pair.elements[0], half);
    rows[2 * i + 1] = Source(pair.elements[1], half);
  }
  const Operand old = Pair(operands[0]);
  const std::uint32_t low = Destination(old.elements[0], half);
  const std::uint32_t high = Destination(old.elements[1], half);
  MicroOp& op = Emit("atom." + space + "." + index + (compares ? ".cas" : ".exch") + ".b128", true);
  op.a = base;
  op.immediate = immediate;
  op.rows = rows;
  op.destination = low;
  op.extra = high;
  return true;
}

}  // namespace gpushared::device::executor
