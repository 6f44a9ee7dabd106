// SPDX-License-Identifier: Apache-2.0
// Arithmetic instructions. Their spelling is brought into a canonical form and looked up; a short
// signature describes the operands.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string_view>
#include <unordered_map>

#include "server/device/cpu/executor/decoder.h"

namespace gpushared::device::executor {
namespace {

// Types of the destination and of each source, one letter each: t the instruction's type, w twice
// its width, u 32 bits, s the last type (cvt's source), i an immediate.
struct InstructionForm {
  std::string_view opcode;
  std::string_view operands;
};
constexpr auto kInstructionForms = std::to_array<InstructionForm>({
    {"add", "ttt"},      {"sub", "ttt"},        {"mul", "ttt"},        {"mad", "tttt"},
    {"fma", "tttt"},     {"div", "ttt"},        {"rem", "ttt"},        {"min", "ttt"},
    {"max", "ttt"},      {"abs", "tt"},         {"neg", "tt"},         {"sad", "tttt"},
    {"mul24", "ttt"},    {"mad24", "tttt"},     {"and", "ttt"},        {"or", "ttt"},
    {"xor", "ttt"},      {"not", "tt"},         {"cnot", "tt"},        {"shl", "ttu"},
    {"shr", "ttu"},      {"popc", "ut"},        {"clz", "ut"},         {"bfind", "ut"},
    {"brev", "tt"},      {"fns", "tttt"},       {"bfe", "ttuu"},       {"bfi", "tttuu"},
    {"bmsk", "ttt"},     {"prmt", "tttt"},      {"lop3", "tttti"},     {"shf", "tttu"},
    {"sqrt", "tt"},      {"rcp", "tt"},         {"rsqrt", "tt"},       {"sin", "tt"},
    {"cos", "tt"},       {"lg2", "tt"},         {"ex2", "tt"},         {"tanh", "tt"},
    {"copysign", "ttt"}, {"dp4a", "uuuu"},      {"dp2a", "uuuu"},      {"szext", "ttu"},
    {"cvt", "ts"},       {"vabsdiff2", "uuuu"}, {"vabsdiff4", "uuuu"},
});

bool IsType(std::string_view modifier) { return ptx::TypeBytes(modifier) != 0; }

bool IsFloat(std::string_view type) {
  return type == "f32" || type == "f64" || type.starts_with("f16") || type.starts_with("bf16");
}

bool IsTexture(std::string_view opcode) {
  constexpr std::array<std::string_view, 7> kTextures = {"tex",  "tld4",  "txq", "suld",
                                                         "sust", "sured", "suq"};
  return std::find(kTextures.begin(), kTextures.end(), opcode) != kTextures.end();
}

// Unsupported: cubes, layers, levels, queries and more.
constexpr std::string_view kTexturesHere =
    " (of textures, this device has tex, suld.b and sust.b by handle in 1d, 2d and 3d, and tld4 in "
    "2d)";

bool IsRounding(std::string_view modifier) {
  return modifier == "rn" || modifier == "rz" || modifier == "rm" || modifier == "rp";
}

}  // namespace

// Returns the instruction's key in the op table.
std::string FunctionDecoder::Key() const {
  const auto& modifiers = instruction_->modifiers;
  std::string_view opcode = instruction_->opcode;
  const std::string_view type = modifiers.empty() ? "" : std::string_view(modifiers.back());
  const bool arithmetic =
      opcode == "add" || opcode == "sub" || opcode == "mul" || opcode == "fma" || opcode == "mad";
  const bool rounds = arithmetic && IsFloat(type);
  if (opcode == "mad" && rounds) opcode = "fma";
  std::string key(opcode);
  if (rounds && std::none_of(modifiers.begin(), modifiers.end(),
                             [](const std::string& m) { return IsRounding(m); })) {
    key += ".rn";
  }
  // A conversion from float to integer clamps with and without .sat.
  const bool clamps = opcode == "cvt" && modifiers.size() >= 2 && IsFloat(modifiers.back()) &&
                      !IsFloat(modifiers[modifiers.size() - 2]);
  for (const std::string& modifier : modifiers) {
    if (modifier == "noftz" || modifier == "cc" || (clamps && modifier == "sat")) continue;
    key += '.';
    key += modifier;
  }
  return key;
}

bool FunctionDecoder::DecodeSimple() {
  const std::string_view opcode = instruction_->opcode;
  const auto form = std::find_if(kInstructionForms.begin(), kInstructionForms.end(),
                                 [&](const InstructionForm& f) { return f.opcode == opcode; });
  if (form == kInstructionForms.end() || instruction_->modifiers.empty()) return false;
  const auto& modifiers = instruction_->modifiers;
  const auto first_type = std::find_if(modifiers.begin(), modifiers.end(),
                                       [](const std::string& m) { return IsType(m); });
  if (first_type == modifiers.end()) return false;
  const OperandType type = GetType(*first_type);
  OperandType last_type = type;
  for (const std::string& modifier : modifiers) {
    if (IsType(modifier)) last_type = GetType(modifier);
  }
  // Parts of registers, such as %r1.b3, which only video instructions have, are unsupported.
  if (opcode.starts_with('v') &&
      std::ranges::any_of(instruction_->operands, [](const Operand& each) {
        return each.text.find('.') != std::string::npos;
      })) {
    return false;
  }
  std::string operands(form->operands);
  const bool wide = instruction_->Has("wide") && IsType(modifiers.back());
  if (wide) {
    operands.front() = 'w';
    if (opcode == "mad") operands.back() = 'w';
  }
  // cvt to a packed pair has two sources.
  if (opcode == "cvt" && instruction_->operands.size() == 3) operands = "tss";
  if (instruction_->operands.size() != operands.size()) return false;

  const auto type_of = [&](char letter) {
    return letter == 'w'   ? GetWideType(type.name)
           : letter == 'u' ? GetType("u32")
           : letter == 's' ? last_type
                           : type;
  };
  std::array<std::uint32_t, 4> sources = {};
  std::int64_t immediate = 0;
  for (std::size_t i = 1; i < operands.size(); ++i) {
    if (operands[i] != 'i') {
      sources[i - 1] = Source(instruction_->operands[i], type_of(operands[i]));
    } else if (instruction_->operands[i].kind == Operand::Kind::kInteger) {
      immediate = instruction_->operands[i].integer;
    } else {
      return false;
    }
  }
  const std::uint32_t destination =
      Destination(instruction_->operands.front(), type_of(operands.front()));
  MicroOp& op = Emit(Key(), true);
  op.destination = destination;
  op.a = sources[0], op.b = sources[1], op.c = sources[2], op.extra = sources[3];
  op.immediate = immediate;
  return true;
}

bool FunctionDecoder::DecodeMove() {
  if (std::string_view(instruction_->opcode) != "mov" || instruction_->operands.size() != 2 ||
      instruction_->modifiers.empty()) {
    return false;
  }
  const Operand& to = instruction_->operands[0];
  const Operand& from = instruction_->operands[1];
  const std::string& name = instruction_->modifiers.back();
  if (name == "pred") {
    const std::uint32_t source = PredicateSource(from);
    MicroOp& op = Emit("mov.pred", true);
    op.a = source;
    op.destination = PredicateDestination(to);
    return true;
  }
  const std::uint32_t bytes = ptx::TypeBytes(name);
  const OperandType type = GetType(name);
  const std::string whole = "b" + std::to_string(bytes * 8);
  if (instruction_->Has("v2") || instruction_->Has("v4")) return DecodeVectorMove();
  if (bytes > 8) return false;
  const bool packs = from.kind == Operand::Kind::kVector;
  if (!packs && to.kind != Operand::Kind::kVector) {
    const std::uint32_t source = Source(from, type);
    const std::uint32_t destination = Destination(to, type);
    MicroOp& op = Emit("mov." + whole, true);
    op.a = source;
    op.destination = destination;
    return true;
  }
  const auto& parts = packs ? from.elements : to.elements;
  const std::size_t count = parts.size();
  if (count < 2 || count > 4 || bytes % count != 0) return false;
  const OperandType part =
      GetType("b" + std::to_string(bytes * 8 / static_cast<std::uint32_t>(count)));
  std::array<std::uint32_t, 4> rows = {};
  for (std::size_t i = 0; i < count; ++i) {
    rows[i] = packs ? Source(parts[i], part) : Destination(parts[i], part);
  }
  const std::uint32_t other = packs ? Destination(to, type) : Source(from, type);
  MicroOp& op = Emit((packs ? "pack." : "unpack.") + whole + "." + std::to_string(count), true);
  op.rows = rows;
  (packs ? op.destination : op.a) = other;
  return true;
}

// mov.v2, mov.v4: moved one element after the other, but with the effect of a simultaneous move.
bool FunctionDecoder::DecodeVectorMove() {
  const Operand& to = instruction_->operands[0];
  const Operand& from = instruction_->operands[1];
  const std::size_t count = instruction_->Has("v2") ? 2 : 4;
  const OperandType type = GetType(instruction_->modifiers.back());
  const std::uint32_t bytes = ptx::TypeBytes(type.name);
  if (to.kind != Operand::Kind::kVector || to.elements.size() != count) return false;
  if (from.kind != Operand::Kind::kVector || from.elements.size() != count) return false;
  if (bytes < 2 || bytes > 8 || bytes * count > 16) return false;
  const std::string key = "mov.b" + std::to_string(bytes * 8);
  std::array<std::uint32_t, 4> rows = {};
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t source = Source(from.elements[i], type);
    rows[i] = frame_.ScratchRow(type.width);
    MicroOp& read = Emit(key, false);
    read.a = source;
    read.destination = rows[i];
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t destination = Destination(to.elements[i], type);
    MicroOp& write = Emit(key, true);
    write.a = rows[i];
    write.destination = destination;
  }
  return true;
}

// and, or, xor and not of predicates.
bool FunctionDecoder::DecodePredicateLogic() {
  const std::string_view opcode = instruction_->opcode;
  const auto& operands = instruction_->operands;
  const bool inverts = opcode == "not";
  if (!inverts && opcode != "and" && opcode != "or" && opcode != "xor") return false;
  if (!instruction_->Has("pred") || operands.size() != (inverts ? 2u : 3u)) return false;
  const std::uint32_t a = PredicateSource(operands[1]);
  const std::uint32_t b = inverts ? kAlwaysTrue : PredicateSource(operands[2]);
  const std::uint32_t destination = PredicateDestination(operands[0]);
  MicroOp& op = Emit(std::string(opcode) + ".pred", true);
  op.a = a, op.b = b;
  op.destination = destination;
  return true;
}

// cvta and isspacep: addresses of shared and local memory are mapped to windows; others are
// unchanged.
bool FunctionDecoder::DecodeConvertAddress() {
  const std::string_view opcode = instruction_->opcode;
  const bool tests = opcode == "isspacep";
  if (!tests && opcode != "cvta") return false;
  if (instruction_->operands.size() != 2) return false;
  const bool to_space = instruction_->Has("to");
  std::string space;
  for (const std::string& modifier : instruction_->modifiers) {
    const std::string base = modifier.substr(0, modifier.find(':'));
    if (base == "shared" || base == "local" || base == "global" || base == "const" ||
        base == "param") {
      space = base;
    }
  }
  if (space.empty()) return false;
  const std::uint64_t window = space == "shared"  ? kSharedWindow
                               : space == "local" ? kLocalWindow
                               : space == "param" ? kParameterWindow
                                                  : 0;
  const OperandType wide = GetType("u64");
  const std::uint32_t source = Source(instruction_->operands[1], wide);
  if (tests) {
    const std::uint32_t destination = PredicateDestination(instruction_->operands[0]);
    MicroOp& op = Emit(window == 0 ? "isspacep.global" : "isspacep.window", true);
    op.a = source;
    op.destination = destination;
    op.immediate = static_cast<std::int64_t>(window);
    return true;
  }
  const std::uint32_t destination = Destination(instruction_->operands[0], wide);
  const std::uint32_t offset = window == 0 ? 0 : frame_.ConstantRow(window, 8);
  MicroOp& op = Emit(window == 0 ? "mov.b64" : to_space ? "sub.u64" : "add.u64", true);
  op.a = source;
  op.b = offset;
  op.destination = destination;
  return true;
}

namespace {

// Returns the relation of setp or set: the modifier that is neither the Boolean operation nor a
// type.
std::string GetRelation(const std::vector<std::string>& modifiers) {
  const auto relation = std::ranges::find_if(modifiers, [](const std::string& m) {
    return m != "and" && m != "or" && m != "xor" && m != "ftz" && !IsType(m);
  });
  return relation == modifiers.end() ? "" : *relation;
}

// Returns the key of a comparison. Unsigned relations such as lo get the name of the signed one,
// because the type in the key distinguishes them.
std::string CompareKey(const std::string& relation, const std::string& ftz,
                       const std::string& type) {
  static const std::unordered_map<std::string, std::string> kUnsigned = {
      {"lo", "lt"}, {"ls", "le"}, {"hi", "gt"}, {"hs", "ge"}};
  const auto renamed = kUnsigned.find(relation);
  return "setp." + (renamed == kUnsigned.end() ? relation : renamed->second) + ftz + "." + type;
}

}  // namespace

void FunctionDecoder::CompareInto(const std::string& key, const OperandType& type,
                                  std::uint32_t destination, const Operand& a, const Operand& b) {
  const std::uint32_t x = Source(a, type), y = Source(b, type);
  MicroOp& op = Emit(key, false);
  op.a = x, op.b = y;
  op.destination = destination;
}

// setp.CmpOp[.BoolOp][.ftz].type p[|q], a, b[, [!]c]
bool FunctionDecoder::DecodeCompare() {
  if (std::string_view(instruction_->opcode) != "setp" || instruction_->operands.size() < 3)
    return false;
  const auto& modifiers = instruction_->modifiers;
  if (modifiers.size() < 2) return false;
  const OperandType type = GetType(modifiers.back());
  const std::string ftz = instruction_->Has("ftz") ? ".ftz" : "";
  const std::string key = CompareKey(GetRelation(modifiers), ftz, type.name);
  const Operand& to = instruction_->operands[0];
  const bool pair = to.kind == Operand::Kind::kPair && to.elements.size() == 2;
  const bool combines = instruction_->operands.size() == 4;
  const Operand& a = instruction_->operands[1];
  const Operand& b = instruction_->operands[2];
  const bool halves = type.name.ends_with("x2");
  if (!pair && !combines && !halves) {
    const std::uint32_t x = Source(a, type), y = Source(b, type);
    const std::uint32_t destination = PredicateDestination(to);
    MicroOp& op = Emit(key, true);
    op.a = x, op.b = y;
    op.destination = destination;
    return true;
  }
  const std::uint32_t first = frame_.ScratchPredicate(), second = frame_.ScratchPredicate();
  CompareInto(key, type, first, a, b);
  if (halves) {
    code_.ops.back().rows[0] = second;
  } else {
    MicroOp& inverse = Emit("not.pred", false);
    inverse.a = first;
    inverse.destination = second;
  }
  std::string combine = "mov.pred";
  std::uint32_t with = kAlwaysTrue;
  if (combines) {
    combine = instruction_->Has("and")  ? "and.pred"
              : instruction_->Has("or") ? "or.pred"
                                        : "xor.pred";
    with = PredicateSource(instruction_->operands[3]);
    // c is copied first, because the destination may be the same predicate.
    const std::uint32_t copy = frame_.ScratchPredicate();
    MicroOp& keep = Emit("mov.pred", false);
    keep.a = with;
    keep.destination = copy;
    with = copy;
  }
  for (std::size_t i = 0; i < (pair ? 2u : 1u); ++i) {
    const std::uint32_t destination = PredicateDestination(pair ? to.elements[i] : to);
    MicroOp& op = Emit(combine, true);
    op.a = i == 0 ? first : second;
    op.b = with;
    op.destination = destination;
  }
  return true;
}

// set.CmpOp[.BoolOp][.ftz].dtype.stype d, a, b[, [!]c]: a comparison with a numeric result.
bool FunctionDecoder::DecodeSet() {
  const auto& modifiers = instruction_->modifiers;
  if (std::string_view(instruction_->opcode) != "set" || modifiers.size() < 3) return false;
  if (instruction_->operands.size() < 3) return false;
  const OperandType source = GetType(modifiers.back());
  const OperandType result = GetType(modifiers[modifiers.size() - 2]);
  const std::string ftz = instruction_->Has("ftz") ? ".ftz" : "";
  const std::string key = CompareKey(GetRelation(modifiers), ftz, source.name);
  std::uint64_t one = 0xffffffff;
  if (result.name == "f32") one = 0x3f800000;
  if (result.name.starts_with("f16")) one = 0x3c00;
  if (result.name.starts_with("bf16")) one = 0x3f80;
  if (source.name.ends_with("x2")) {
    if (instruction_->operands.size() != 3) return false;
    const std::uint32_t x = Source(instruction_->operands[1], source);
    const std::uint32_t y = Source(instruction_->operands[2], source);
    const std::uint32_t destination = Destination(instruction_->operands[0], result);
    MicroOp& op = Emit(key.substr(0, 3) + key.substr(4), true);
    op.a = x, op.b = y;
    op.destination = destination;
    op.immediate = static_cast<std::int64_t>(one & 0xffff);
    return true;
  }
  std::uint32_t holds = frame_.ScratchPredicate();
  CompareInto(key, source, holds, instruction_->operands[1], instruction_->operands[2]);
  if (instruction_->operands.size() == 4) {
    const std::uint32_t with = PredicateSource(instruction_->operands[3]);
    MicroOp& op = Emit(instruction_->Has("and")  ? "and.pred"
                       : instruction_->Has("or") ? "or.pred"
                                                 : "xor.pred",
                       false);
    op.a = holds, op.b = with;
    op.destination = holds;
  }
  const std::uint32_t yes = frame_.ConstantRow(one, 4), no = frame_.ConstantRow(0, 4);
  const std::uint32_t destination = Destination(instruction_->operands[0], result);
  const bool half = ptx::TypeBytes(result.name) == 2;
  MicroOp& op = Emit(half ? "selp.b16" : "selp.b32", true);
  op.a = yes, op.b = no, op.c = holds;
  op.destination = destination;
  return true;
}

// selp, slct and testp.
bool FunctionDecoder::DecodeSelect() {
  const std::string_view opcode = instruction_->opcode;
  const auto& operands = instruction_->operands;
  if (instruction_->modifiers.empty()) return false;
  const OperandType last = GetType(instruction_->modifiers.back());
  if (opcode == "testp" && operands.size() == 2) {
    const std::uint32_t source = Source(operands[1], last);
    const std::uint32_t destination = PredicateDestination(operands[0]);
    MicroOp& op = Emit(Key(), true);
    op.a = source;
    op.destination = destination;
    return true;
  }
  if ((opcode != "selp" && opcode != "slct") || operands.size() != 4) return false;
  if (opcode == "slct" && instruction_->modifiers.size() < 2) return false;
  std::uint32_t choice = 0;
  OperandType type = last;
  if (opcode == "selp") {
    choice = PredicateSource(operands[3]);
  } else {
    type = GetType(instruction_->modifiers[instruction_->modifiers.size() - 2]);
    choice = frame_.ScratchPredicate();
    const std::uint32_t c = Source(operands[3], last), zero = frame_.ConstantRow(0, 4);
    const std::string ftz = instruction_->Has("ftz") ? "ftz." : "";
    MicroOp& op = Emit("setp.ge." + ftz + last.name, false);
    op.a = c, op.b = zero;
    op.destination = choice;
  }
  const std::uint32_t a = Source(operands[1], type), b = Source(operands[2], type);
  const std::uint32_t destination = Destination(operands[0], type);
  MicroOp& op = Emit("selp.b" + std::to_string(ptx::TypeBytes(type.name) * 8), true);
  op.a = a, op.b = b, op.c = choice;
  op.destination = destination;
  return true;
}

// shfl, vote, match, redux, activemask, elect
bool FunctionDecoder::DecodeWarpWide() {
  const std::string_view opcode = instruction_->opcode;
  const auto& operands = instruction_->operands;
  const OperandType word = GetType("b32");
  const bool shuffles = opcode == "shfl", votes = opcode == "vote", elects = opcode == "elect";
  const bool matches = opcode == "match", reduces = opcode == "redux";
  if (opcode == "activemask" && operands.size() == 1) {
    const std::uint32_t destination = Destination(operands[0], word);
    Emit("activemask.b32", true).destination = destination;
    return true;
  }
  if (!shuffles && !votes && !elects && !matches && !reduces) return false;
  if (instruction_->modifiers.empty()) return false;
  const bool sync = instruction_->Has("sync");
  if (operands.size() < 2 || operands.size() != (shuffles ? 4u
                                                 : elects ? 1u
                                                          : 2u) +
                                                    (sync ? 1 : 0)) {
    return false;
  }
  const OperandType last = GetType(instruction_->modifiers.back());
  // Row of the members. Forms without .sync apply to the active lanes.
  std::uint32_t members = frame_.ScratchRow(4);
  if (sync)
    members = Source(operands.back(), word);
  else
    Emit("activemask.b32", true).destination = members;

  const bool to_predicate = votes && !instruction_->Has("ballot");
  std::uint32_t a = 0, b = 0, c = 0, second = 0;
  if (votes)
    a = PredicateSource(operands[1]);
  else if (!elects)
    a = Source(operands[1], matches ? last : word);
  if (shuffles) b = Source(operands[2], word), c = Source(operands[3], word);
  const Operand& to = operands[0];
  const bool pair = to.kind == Operand::Kind::kPair && to.elements.size() == 2;
  if (pair) second = PredicateDestination(to.elements[1]);
  const Operand& result = pair ? to.elements[0] : to;
  const std::uint32_t destination =
      to_predicate ? PredicateDestination(result) : Destination(result, word);
  std::string key(opcode);
  for (const std::string& modifier : instruction_->modifiers) {
    const bool type_of_form = IsType(modifier) || modifier == "pred";
    if (modifier != "sync" && (!type_of_form || matches || reduces)) key += "." + modifier;
  }
  MicroOp& op = Emit(key, true);
  op.destination = destination;
  op.a = a, op.b = b, op.c = c;
  op.rows[0] = second;
  op.rows[1] = members;
  op.extra = (votes ? kReadsPredicate : 0) | (matches && last.width == 8 ? kReadsWide : 0) |
             (shuffles ? kReadsThree : 0) | (to_predicate ? kWritesPredicate : 0);
  return true;
}

// bar, barrier and bar.warp
bool FunctionDecoder::DecodeBarrier() {
  const std::string_view opcode = instruction_->opcode;
  if (opcode != "bar" && opcode != "barrier") return false;
  const auto& operands = instruction_->operands;
  const OperandType word = GetType("b32");
  if (operands.empty() || instruction_->Has("cluster")) return false;
  if (instruction_->Has("warp")) {
    const std::uint32_t members = Source(operands[0], word);
    MicroOp& op = Emit("bar.warp", true);
    op.rows[1] = members;
    op.extra = kWritesNothing;
    return true;
  }
  const bool reduces = instruction_->Has("red");
  const std::size_t first = reduces ? 1 : 0;
  const std::size_t count = operands.size() - first - (reduces ? 1 : 0);
  if (operands.size() < (reduces ? 3u : 1u) || count > 2) return false;
  const std::uint32_t number = Source(operands[first], word);
  const std::uint32_t threads = count == 2 ? Source(operands[first + 1], word) : 0;
  std::string key = instruction_->Has("arrive") ? "bar.arrive" : "bar.sync";
  std::uint32_t predicate = 0, destination = 0;
  if (reduces) {
    const bool counts = instruction_->Has("popc");
    key = counts ? "bar.red.popc" : instruction_->Has("and") ? "bar.red.and" : "bar.red.or";
    predicate = PredicateSource(operands.back());
    destination = counts ? Destination(operands[0], word) : PredicateDestination(operands[0]);
  }
  MicroOp& op = Emit(key, true);
  op.a = number, op.b = threads, op.c = predicate;
  op.extra = count == 2 ? 1 : 0;
  op.destination = destination;
  return true;
}

// Returns whether the first operand, or a part of it, is the named predicate.
bool FunctionDecoder::WritesPredicate(const Instruction& instruction, const std::string& name) {
  if (instruction.operands.empty()) return false;
  const Operand& to = instruction.operands.front();
  return to.text == name || std::any_of(to.elements.begin(), to.elements.end(),
                                        [&](const Operand& part) { return part.text == name; });
}

// ptxas accepts modifiers in any order: LLVM writes `max.NaN.ftz`, and CUDA's headers place some
// after the types. The op table lists modifiers in the order below, before the types. Returns
// nothing for an instruction that is already in this order.
std::optional<ptx::Instruction> FunctionDecoder::InUsualOrder(const Instruction& instruction) {
  constexpr std::array<std::string_view, 6> kLast = {"ftz", "NaN", "xorsign", "abs", "relu", "sat"};
  const auto rank = [&](std::string_view modifier) {
    return std::ranges::find(kLast, modifier) - kLast.begin();
  };
  const auto is_last = [&](std::string_view m) { return rank(m) != std::ssize(kLast); };
  const std::vector<std::string>& modifiers = instruction.modifiers;
  const auto first = std::ranges::find_if(modifiers, is_last);
  if (first == modifiers.end()) return std::nullopt;
  // Usually the modifiers are contiguous, sorted by rank, and before the first type.
  const auto end = std::find_if_not(first, modifiers.end(), is_last);
  if (std::is_sorted(first, end, [&](auto& a, auto& b) { return rank(a) < rank(b); }) &&
      std::none_of(modifiers.begin(), first, IsType) && (end == modifiers.end() || IsType(*end)) &&
      std::none_of(end, modifiers.end(), is_last)) {
    return std::nullopt;
  }
  Instruction reordered = instruction;
  std::vector<std::string> last;
  std::ranges::copy_if(modifiers, std::back_inserter(last), is_last);
  std::ranges::stable_sort(last, {}, rank);
  std::erase_if(reordered.modifiers, is_last);
  const auto type = std::ranges::find_if(reordered.modifiers, IsType);
  reordered.modifiers.insert(type, last.begin(), last.end());
  return reordered;
}

// A cache policy operand is only a hint about the lifetime of cache lines.
ptx::Instruction FunctionDecoder::WithoutCachePolicy(Instruction instruction) {
  std::erase(instruction.modifiers, "L2::cache_hint");
  if (!instruction.operands.empty()) instruction.operands.pop_back();
  return instruction;
}

void FunctionDecoder::DecodeInstruction(const Instruction& instruction) {
  usual_ = InUsualOrder(instruction);
  if (instruction.Has("L2::cache_hint")) usual_ = WithoutCachePolicy(instruction);
  if (auto halves = InHalves(usual_ ? *usual_ : instruction)) usual_ = std::move(halves);
  instruction_ = usual_ ? &*usual_ : &instruction;
  frame_.ReleaseScratch();
  pending_.clear();
  guard_ = kAlwaysTrue;
  if (instruction.guard) {
    Operand predicate;
    predicate.text = instruction.guard->predicate;
    guard_ = PredicateSource(predicate);
    // The guard is copied, because the first op may overwrite it before the others run.
    if (WritesPredicate(instruction, predicate.text)) {
      const std::uint32_t copy = frame_.ScratchPredicate();
      MicroOp& keep = Emit("mov.pred", false);
      keep.a = guard_;
      keep.destination = copy;
      guard_ = copy;
    }
    if (instruction.guard->negated) guard_ |= 1u;
  }
  if (!HasOnlyKnownModifiers(*instruction_)) {
    Missing(instruction.Spelling());
    return;
  }
  const bool decoded = DecodeControl() || DecodeStack() || DecodeB128() || DecodeMemory() ||
                       DecodeCarry() || DecodeMove() || DecodePredicateLogic() ||
                       DecodeConvertAddress() || DecodeCompare() || DecodeSet() || DecodeSelect() ||
                       DecodePack() || DecodeLogicTest() || DecodeWarpWide() || DecodeBarrier() ||
                       DecodeMatrix() || DecodeWarpgroup() || DecodeTexture() || DecodeSimple();
  if (!decoded) {
    Missing(instruction.Spelling() +
            std::string(IsTexture(instruction.opcode) ? kTexturesHere : ""));
    return;
  }
  FinishDestinations();
}

}  // namespace gpushared::device::executor
