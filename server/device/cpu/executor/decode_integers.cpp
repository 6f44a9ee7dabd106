// SPDX-License-Identifier: Apache-2.0
// Integer instructions that do not fit the forms of decode_instructions.cpp: carry arithmetic,
// packing, and logic that also tests its result.
#include <string>
#include <vector>

#include "server/device/cpu/executor/decoder.h"

namespace gpushared::device::executor {

// add.cc, addc, addc.cc, sub.cc, subc, subc.cc, mad.cc, madc, madc.cc
bool FunctionDecoder::DecodeCarry() {
  const std::string& opcode = instruction_->opcode;
  const bool reads = opcode.ends_with("c") && opcode != "mad";
  const bool writes = instruction_->Has("cc");
  const bool known = opcode == "add" || opcode == "sub" || opcode == "mad" || opcode == "addc" ||
                     opcode == "subc" || opcode == "madc";
  if (!known || (!reads && !writes) || instruction_->modifiers.empty()) return false;
  const OperandType type = GetType(instruction_->modifiers.back());
  const bool product = opcode.starts_with("mad");
  if (instruction_->operands.size() != (product ? 4u : 3u)) return false;
  const std::uint32_t a = Source(instruction_->operands[1], type);
  const std::uint32_t b = Source(instruction_->operands[2], type);
  const std::uint32_t c = product ? Source(instruction_->operands[3], type) : 0;
  const std::uint32_t destination = Destination(instruction_->operands[0], type);
  std::string key = opcode.substr(0, 3) + "c";
  if (product) key += instruction_->Has("hi") ? ".hi" : ".lo";
  MicroOp& op = Emit(key + "." + type.name, true);
  op.destination = destination;
  op.a = a, op.b = b, op.c = c;
  op.immediate = (reads ? 1 : 0) | (writes ? 2 : 0);
  return true;
}

// cvt.pack.sat.convertType.s32[.b32] d, a, b[, c]: c is present if two values of the first type do
// not fill the register.
bool FunctionDecoder::DecodePack() {
  const auto& operands = instruction_->operands;
  std::vector<std::string> modifiers = instruction_->modifiers;
  if (instruction_->opcode != "cvt" || !instruction_->Has("pack")) return false;
  std::erase_if(modifiers, [](const std::string& m) { return m == "pack" || m == "sat"; });
  const bool fills = modifiers.size() == 2 && modifiers[0].ends_with("16");
  const bool takes_rest =
      modifiers.size() == 3 && !modifiers[0].ends_with("16") && modifiers[2] == "b32";
  if ((!fills && !takes_rest) || modifiers[1] != "s32" || !instruction_->Has("sat") ||
      operands.size() != (fills ? 3u : 4u)) {
    return false;
  }
  const OperandType word = GetType("s32");
  const std::uint32_t a = Source(operands[1], word), b = Source(operands[2], word);
  const std::uint32_t rest = fills ? 0 : Source(operands[3], word);
  const std::uint32_t destination = Destination(operands[0], word);
  MicroOp& op = Emit("cvt.pack." + modifiers[0], true);
  op.a = a, op.b = b, op.c = rest;
  op.destination = destination;
  return true;
}

// lop3.BoolOp.b32 d|p, a, b, c, table, q: p is (d != 0), combined with q.
bool FunctionDecoder::DecodeLogicTest() {
  const auto& operands = instruction_->operands;
  const bool is_any = instruction_->Has("or");
  if (instruction_->opcode != "lop3" || is_any == instruction_->Has("and")) return false;
  const bool has_pair = operands.size() == 6 && operands[0].kind == Operand::Kind::kPair &&
                        operands[0].elements.size() == 2;
  if (!has_pair || operands[4].kind != Operand::Kind::kInteger) return false;
  const OperandType word = GetType("b32");
  const std::uint32_t a = Source(operands[1], word), b = Source(operands[2], word);
  const std::uint32_t c = Source(operands[3], word), with = PredicateSource(operands[5]);
  const std::uint32_t value = frame_.ScratchRow(4), holds = frame_.ScratchPredicate();
  MicroOp& logic = Emit("lop3.b32", false);
  logic.a = a, logic.b = b, logic.c = c;
  logic.immediate = operands[4].integer;
  logic.destination = value;
  const std::uint32_t zero = frame_.ConstantRow(0, 4);
  MicroOp& test = Emit("setp.ne.u32", false);
  test.a = value, test.b = zero;
  test.destination = holds;
  const std::uint32_t destination = Destination(operands[0].elements[0], word);
  MicroOp& move = Emit("mov.b32", true);
  move.a = value;
  move.destination = destination;
  const std::uint32_t predicate = PredicateDestination(operands[0].elements[1]);
  MicroOp& combine = Emit(is_any ? "or.pred" : "and.pred", true);
  combine.a = holds, combine.b = with;
  combine.destination = predicate;
  return true;
}

}  // namespace gpushared::device::executor
