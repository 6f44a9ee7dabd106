// SPDX-License-Identifier: Apache-2.0
// Loads, stores, atomics, and memory ordering.
#include <algorithm>
#include <array>
#include <string_view>

#include "server/device/cpu/executor/decoder.h"

namespace gpushared::device::executor {
namespace {

// Returns the state space in the modifiers without "::cta" and the like; "generic" without a space.
// Constant memory is handled as global memory.
std::string GetSpace(const ptx::Instruction& instruction) {
  for (const std::string& modifier : instruction.modifiers) {
    if (modifier == "shared::cluster") return "cluster";
    std::string base = modifier.substr(0, modifier.find(':'));
    if (base == "const") return "global";
    if (base == "global" || base == "shared" || base == "local" || base == "param") return base;
  }
  return "generic";
}

// Returns whether other threads may access the location at the same time, so that each lane needs
// an atomic access.
bool IsStrong(const ptx::Instruction& instruction) {
  for (const char* word : {"volatile", "relaxed", "acquire", "release", "mmio"}) {
    if (instruction.Has(word)) return true;
  }
  return false;
}

std::string GetVector(const ptx::Instruction& instruction) {
  if (instruction.Has("v2")) return ".v2";
  if (instruction.Has("v4")) return ".v4";
  return instruction.Has("v8") ? ".v8" : "";
}

// Returns the type's part of the key: size and sign for a load, only the size for a store.
std::string ElementType(const std::string& type, bool keep_sign) {
  const std::uint32_t bytes = ptx::TypeBytes(type);
  const bool is_signed = keep_sign && type.starts_with('s') && bytes < 4;
  return (is_signed ? "s" : "u") + std::to_string(bytes * 8);
}

}  // namespace

bool FunctionDecoder::DecodeMemory() {
  const std::string_view opcode = instruction_->opcode;
  if (opcode == "ld" || opcode == "ldu" || opcode == "st") {
    if (instruction_->operands.size() != 2 || instruction_->modifiers.empty()) return false;
    DecodeLoadStore(opcode != "st");
    return true;
  }
  if (opcode == "atom" || opcode == "red") {
    if (instruction_->modifiers.empty() || instruction_->Has("async")) return false;
    DecodeAtomic(opcode == "atom");
    return true;
  }
  if (opcode == "mbarrier") return DecodeMbarrier();
  if (opcode == "membar" || opcode == "fence") {
    Emit("membar", false);
    return true;
  }
  if (opcode == "createpolicy") {
    // Any value is valid, because cache policies do not affect results.
    const std::uint32_t policy = frame_.ConstantRow(0, 8);
    const std::uint32_t destination = Destination(*OperandAt(0), GetType("b64"));
    MicroOp& op = Emit("mov.b64", true);
    op.a = policy;
    op.destination = destination;
    return true;
  }
  if (opcode == "discard" || opcode == "prefetch" || opcode == "prefetchu" ||
      opcode == "griddepcontrol" || opcode == "applypriority" || opcode == "pmevent" ||
      opcode == "setmaxnreg") {
    Emit("nothing", false);
    return true;
  }
  return false;
}

// Sets the row of the address' base and the offset; returns "a32" or "a64".
std::string FunctionDecoder::AddressRow(const Operand& address, const std::string& space,
                                        std::uint32_t* row, std::int64_t* immediate) {
  *immediate = address.offset;
  const std::uint32_t reg = flow_.FindRegister(address);
  if (reg != ptx::kNoRegister) {
    const std::uint32_t width = frame_.RegisterWidth(reg);
    if (width == 0 || width > 8) Missing("address in register '" + address.text + "'");
    const bool narrow = width == 4 && (space == "shared" || space == "local");
    *row = narrow ? frame_.RegisterOffset(reg)
                  : Resized(frame_.RegisterOffset(reg), width == 4 ? 4 : 8, 8, false);
    return narrow ? "a32" : "a64";
  }
  const OperandType wide = GetType("u64");
  if (const auto symbol = FindSymbol(address.text)) {
    Operand base;
    base.text = address.text;
    if (space == "shared" && symbol->kind == Symbol::Kind::kShared) {
      *row = frame_.ConstantRow(symbol->address, 4);
      return "a32";
    }
    const bool named_by_space = (space == "global" && symbol->kind == Symbol::Kind::kGlobal) ||
                                (space == "local" && symbol->kind == Symbol::Kind::kLocal) ||
                                (space == "generic" && symbol->kind == Symbol::Kind::kGlobal);
    if (!named_by_space) Missing(instruction_->Spelling() + " from '" + address.text + "'");
    *row = SymbolSource(base, *symbol, wide);
    return "a64";
  }
  const bool literal =
      !address.text.empty() && address.text.front() >= '0' && address.text.front() <= '9';
  if (!literal) {
    Missing("unknown name '" + address.text + "'");
    return "a64";
  }
  *row = frame_.ConstantRow(static_cast<std::uint64_t>(address.integer), 8);
  return "a64";
}

void FunctionDecoder::BindElements(const Operand& operand, const OperandType& type, bool load,
                                   std::array<std::uint32_t, 4>* rows, std::uint32_t* count) {
  const bool vector = operand.kind == Operand::Kind::kVector;
  *count = vector ? static_cast<std::uint32_t>(operand.elements.size()) : 1;
  if (*count == 0 || *count > 4) {
    Missing(instruction_->Spelling() + " with this vector");
    *count = 1;
    return;
  }
  for (std::uint32_t i = 0; i < *count; ++i) {
    const Operand& element = vector ? operand.elements[i] : operand;
    (*rows)[i] = load ? Destination(element, type) : Source(element, type);
  }
}

void FunctionDecoder::DecodeLoadStore(bool load) {
  const std::string space = GetSpace(*instruction_);
  const Operand& value = *OperandAt(load ? 0 : 1);
  const Operand& address = *OperandAt(load ? 1 : 0);
  const bool unshared = space == "local" || space == "param" || instruction_->Has("const");
  // Local memory is private, so a volatile access is a plain one.
  const bool plain = space == "local" && instruction_->Has("volatile");
  if (unshared && IsStrong(*instruction_) && !plain) {
    Missing(instruction_->Spelling());
    return;
  }
  if (space == "param") {
    DecodeParameter(address, load);
    return;
  }
  const OperandType type = GetType(instruction_->modifiers.back());
  std::uint32_t base = 0, count = 0;
  std::int64_t immediate = 0;
  const std::string index = AddressRow(address, space, &base, &immediate);
  std::array<std::uint32_t, 4> rows = {};
  BindElements(value, type, load, &rows, &count);
  const std::string vector = GetVector(*instruction_);
  if ((count == 1) != vector.empty()) Missing(instruction_->Spelling() + " with this vector");
  const bool strong = IsStrong(*instruction_) && (space == "global" || space == "generic");
  // One thread executes all warps of a block, so shared memory needs no atomics. A strong load
  // still indicates to the scheduler that the lane may be waiting for another one.
  const bool waits = load && IsStrong(*instruction_) && space == "shared";
  MicroOp& op =
      Emit(std::string(load ? "ld" : "st") + (strong || waits ? ".strong." : ".") + space + "." +
               index + vector + "." + ElementType(instruction_->modifiers.back(), load),
           true);
  op.a = base;
  op.immediate = immediate;
  op.rows = rows;
}

void FunctionDecoder::DecodeParameter(const Operand& address, bool load) {
  const auto symbol = FindSymbol(address.text);
  const bool in_area = symbol && symbol->kind == Symbol::Kind::kArea;
  if (!in_area) {
    if (load)
      DecodeKernelParameter(address);
    else
      Missing(instruction_->Spelling() + " to '" + address.text + "'");
    return;
  }
  const std::string& name = instruction_->modifiers.back();
  const OperandType type = GetType(name);
  const std::uint32_t bytes = ptx::TypeBytes(name);
  std::uint32_t count = 0;
  std::array<std::uint32_t, 4> rows = {};
  const Operand& value = *OperandAt(load ? 0 : 1);
  BindElements(value, type, load, &rows, &count);
  const std::int64_t offset = address.offset;
  if (bytes * count > 16) {
    Missing(instruction_->Spelling());
    return;
  }
  if (bytes == 0 || bytes > 8 || offset < 0 ||
      static_cast<std::uint64_t>(offset) + std::uint64_t{bytes} * count > symbol->bytes) {
    Missing(instruction_->Spelling() + " outside '" + address.text + "'");
    return;
  }
  MicroOp& op = Emit(load ? "ld.area" : "st.area", true);
  op.immediate = static_cast<std::int64_t>(symbol->address) + offset;
  op.rows = rows;
  op.extra = bytes | count << 8 | (type.is_signed ? 1u << 16 : 0u);
}

void FunctionDecoder::DecodeKernelParameter(const Operand& address) {
  const std::string& name = instruction_->modifiers.back();
  const OperandType type = GetType(name);
  std::uint32_t count = 0;
  std::array<std::uint32_t, 4> rows = {};
  BindElements(*OperandAt(0), type, true, &rows, &count);
  const std::string form = GetVector(*instruction_) + "." + ElementType(name, true);
  const std::uint64_t bytes = std::uint64_t{ptx::TypeBytes(name)} * count;
  const auto symbol = FindSymbol(address.text);
  if (symbol && symbol->kind == Symbol::Kind::kParameter) {
    const std::int64_t offset = address.offset;
    if (offset < 0 || static_cast<std::uint64_t>(offset) + bytes > symbol->bytes) {
      Missing(instruction_->Spelling() + " outside '" + address.text + "'");
      return;
    }
    MicroOp& op = Emit("ld.param" + form, true);
    op.immediate = static_cast<std::int64_t>(symbol->address) + offset;
    op.rows = rows;
    return;
  }
  std::uint32_t base = 0;
  std::int64_t immediate = 0;
  AddressRow(address, "param", &base, &immediate);
  MicroOp& op = Emit("ld.param.a64" + form, true);
  op.a = base;
  op.immediate = immediate;
  op.rows = rows;
}

// atom.global.v2.f32.add {d, e}, [a], {b, c}: one atomic operation per element, because PTX
// guarantees atomicity of the elements only. A preceding load checks that the whole vector is
// aligned and in accessible memory.
void FunctionDecoder::DecodeAtomicVector(bool wants_result) {
  const std::string vector = GetVector(*instruction_);
  const std::string space = GetSpace(*instruction_);
  const std::size_t first = wants_result ? 1 : 0;
  const auto count = static_cast<std::size_t>(vector[2] - '0');
  const auto type = std::ranges::find_if(
      instruction_->modifiers, [](const std::string& each) { return ptx::TypeBytes(each) != 0; });
  const std::size_t bytes = type == instruction_->modifiers.end() ? 0 : ptx::TypeBytes(*type);
  const auto is_vector = [&](std::size_t i) {
    const Operand& operand = *OperandAt(i);
    return operand.kind == Operand::Kind::kVector && operand.elements.size() == count;
  };
  if (instruction_->operands.size() != first + 2 || !is_vector(first + 1) ||
      (wants_result && !is_vector(0)) || !instruction_->Has("add") ||
      (space != "global" && space != "generic") || bytes * count < 4 || bytes * count > 16 ||
      type->find('f') == std::string::npos || bytes > 4) {
    Missing(instruction_->Spelling());
    return;
  }
  const OperandType element = GetType(*type);
  std::uint32_t base = 0;
  std::int64_t immediate = 0;
  const std::string index = AddressRow(instruction_->operands[first], space, &base, &immediate);
  const std::size_t words = bytes * count / 4;
  std::array<std::uint32_t, 4> loaded = {};
  for (std::size_t i = 0; i < words; ++i) loaded[i] = frame_.ScratchRow(4);
  MicroOp& load =
      Emit("ld." + space + "." + index + (words == 1 ? "" : ".v" + std::to_string(words)) + ".u32",
           true);
  load.a = base;
  load.immediate = immediate;
  load.rows = loaded;
  // Results go to scratch rows first, because they may overwrite registers that the address or
  // other elements use.
  std::vector<std::uint32_t> old, sources;
  for (std::size_t i = 0; i < count; ++i) {
    sources.push_back(Source(instruction_->operands[first + 1].elements[i], element));
    old.push_back(frame_.ScratchRow(element.width));
  }
  for (std::size_t i = 0; i < count; ++i) {
    MicroOp& op = Emit("atom." + space + "." + index + ".add." + *type, true);
    op.a = base, op.b = sources[i];
    op.destination = old[i];
    op.immediate = immediate + static_cast<std::int64_t>(i * bytes);
    op.extra = wants_result ? 1 : 0;
  }
  for (std::size_t i = 0; wants_result && i < count; ++i) {
    const std::uint32_t destination = Destination(instruction_->operands[0].elements[i], element);
    MicroOp& op = Emit("mov.b" + std::to_string(std::max<std::size_t>(bytes, 2) * 8), true);
    op.a = old[i];
    op.destination = destination;
  }
}

// atom[.sem][.scope][.space].op[.level].type d, [a], b[, c]; red without d.
void FunctionDecoder::DecodeAtomic(bool wants_result) {
  if (!GetVector(*instruction_).empty()) return DecodeAtomicVector(wants_result);
  static constexpr std::array<const char*, 10> kOperations = {"add", "and", "or",  "xor", "exch",
                                                              "cas", "min", "max", "inc", "dec"};
  const std::string space = GetSpace(*instruction_);
  const std::size_t first = wants_result ? 1 : 0;
  const std::string& name = instruction_->modifiers.back();
  const auto operation = std::find_if(kOperations.begin(), kOperations.end(),
                                      [&](const char* word) { return instruction_->Has(word); });
  const std::size_t count = instruction_->operands.size();
  const std::size_t wanted = first + (instruction_->Has("cas") ? 3 : 2);
  if (operation == kOperations.end() || count != wanted || ptx::TypeBytes(name) > 8 ||
      space == "local" || space == "param") {
    Missing(instruction_->Spelling());
    return;
  }
  const OperandType type = GetType(name);
  std::uint32_t base = 0;
  std::int64_t immediate = 0;
  const std::string index = AddressRow(*OperandAt(first), space, &base, &immediate);
  const std::uint32_t b = Source(*OperandAt(first + 1), type);
  const std::uint32_t c = count > first + 2 ? Source(*OperandAt(first + 2), type) : 0;
  const std::uint32_t destination = wants_result ? Destination(*OperandAt(0), type) : 0;
  MicroOp& op = Emit("atom." + space + "." + index + "." + *operation + "." + name, true);
  op.a = base, op.b = b, op.c = c;
  op.destination = destination;
  op.immediate = immediate;
  op.extra = wants_result ? 1 : 0;
}

// mbarrier.operation[.parity][.sem][.scope][.space].b64 [result,] [address][, operands]
bool FunctionDecoder::DecodeMbarrier() {
  const auto& modifiers = instruction_->modifiers;
  const auto& operands = instruction_->operands;
  if (modifiers.empty() || modifiers.back() != "b64") return false;
  std::string operation = modifiers.front();
  const OperandType word = GetType("u32"), state = GetType("u64");
  if (operation == "pending_count" && operands.size() == 2) {
    const std::uint32_t source = Source(operands[1], state);
    const std::uint32_t destination = Destination(operands[0], word);
    MicroOp& op = Emit("mbarrier.pending_count", true);
    op.a = source;
    op.destination = destination;
    return true;
  }
  // try_wait may return at once, so it is treated as test_wait.
  if (operation == "try_wait") operation = "test_wait";
  const bool begins = operation == "init" || operation == "inval";
  const bool arrives = operation == "arrive" || operation == "arrive_drop";
  const bool waits = operation == "test_wait";
  const bool by_parity = instruction_->Has("parity");
  const std::string space = GetSpace(*instruction_);
  if ((!begins && !arrives && !waits) || (by_parity && !waits)) return false;
  if (space != "shared" && space != "generic") return false;
  // Operands after the address: a count, a state or parity, and for try_wait the maximum waiting
  // time.
  const std::size_t first = begins ? 0 : 1, count = operands.size();
  const std::size_t least = first + (operation == "inval" || arrives ? 1 : 2);
  const std::size_t most = operation == "inval"              ? 1
                           : modifiers.front() == "try_wait" ? 4
                                                             : first + 2;
  if (count < least || count > most || operands[first].kind != Operand::Kind::kAddress)
    return false;

  std::uint32_t place = 0;
  std::int64_t immediate = 0;
  const std::string index = AddressRow(operands[first], space, &place, &immediate);
  if (index == "a32") place = Resized(place, 4, 8, false);
  if (space == "generic") immediate -= static_cast<std::int64_t>(kSharedWindow);
  const bool has_operand = count > first + 1;
  const std::uint32_t operand =
      has_operand ? Source(operands[first + 1], waits && !by_parity ? state : word)
                  : frame_.ConstantRow(1, 4);
  const std::uint32_t destination = begins  ? 0
                                    : waits ? PredicateDestination(operands[0])
                                            : Destination(operands[0], state);
  MicroOp& op = Emit("mbarrier." + operation + (by_parity ? ".parity" : ""), true);
  op.a = place, op.b = operand;
  op.destination = destination;
  op.immediate = immediate;
  return true;
}

}  // namespace gpushared::device::executor
