// SPDX-License-Identifier: Apache-2.0
// Translates operands to rows: registers, literals, special registers and symbols.
#include <algorithm>
#include <array>
#include <utility>

#include "server/device/cpu/executor/decoder.h"
#include "server/device/cpu/executor/op_table.h"

namespace gpushared::device::executor {
namespace {

using Special = SpecialRegister;

constexpr std::array<std::pair<std::string_view, Special>, 38> kSpecialRegisters = {{
    {"%tid.x", Special::kThreadX},
    {"%tid.y", Special::kThreadY},
    {"%tid.z", Special::kThreadZ},
    {"%ntid.x", Special::kBlockSizeX},
    {"%ntid.y", Special::kBlockSizeY},
    {"%ntid.z", Special::kBlockSizeZ},
    {"%ctaid.x", Special::kBlockX},
    {"%ctaid.y", Special::kBlockY},
    {"%ctaid.z", Special::kBlockZ},
    {"%nctaid.x", Special::kGridX},
    {"%nctaid.y", Special::kGridY},
    {"%nctaid.z", Special::kGridZ},
    {"%laneid", Special::kLane},
    {"%warpid", Special::kWarp},
    {"%nwarpid", Special::kWarpsPerBlock},
    {"%lanemask_eq", Special::kLaneMaskEqual},
    {"%lanemask_lt", Special::kLaneMaskLess},
    {"%lanemask_le", Special::kLaneMaskLessEqual},
    {"%lanemask_gt", Special::kLaneMaskGreater},
    {"%lanemask_ge", Special::kLaneMaskGreaterEqual},
    {"%smid", Special::kMultiprocessor},
    {"%nsmid", Special::kMultiprocessors},
    {"%gridid", Special::kGridId},
    {"%dynamic_smem_size", Special::kDynamicSharedBytes},
    {"%total_smem_size", Special::kTotalSharedBytes},
    {"%aggr_smem_size", Special::kTotalSharedBytes},
    // Each cluster consists of one block.
    {"%clusterid.x", Special::kBlockX},
    {"%clusterid.y", Special::kBlockY},
    {"%clusterid.z", Special::kBlockZ},
    {"%nclusterid.x", Special::kGridX},
    {"%nclusterid.y", Special::kGridY},
    {"%nclusterid.z", Special::kGridZ},
    {"%cluster_ctarank", Special::kZero},
    {"%cluster_nctarank", Special::kOne},
    {"%cluster_nctaid.x", Special::kOne},
    {"%cluster_nctaid.y", Special::kOne},
    {"%cluster_nctaid.z", Special::kOne},
    {"%reserved_smem_offset_0", Special::kZero},
}};

// Registers whose value changes between reads.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kClocks = {{
    {"%clock", "clock.b32"},
    {"%clock_hi", "clock_hi.b32"},
    {"%clock64", "clock.b64"},
    {"%globaltimer", "globaltimer.b64"},
    {"%globaltimer_lo", "globaltimer_lo.b32"},
    {"%globaltimer_hi", "globaltimer_hi.b32"},
}};

// %pm0 to %pm7, %pm0_64 to %pm7_64
bool IsPerformanceMonitor(std::string_view name) {
  if (!name.starts_with("%pm")) return false;
  if (name.ends_with("_64")) name.remove_suffix(3);
  return name.size() == 4 && name[3] >= '0' && name[3] <= '7';
}

}  // namespace

FunctionDecoder::OperandType FunctionDecoder::GetType(std::string_view name) {
  return {std::string(name), ptx::TypeBytes(name) > 4 ? 8u : 4u, name.starts_with('s')};
}

FunctionDecoder::OperandType FunctionDecoder::GetWideType(std::string_view name) {
  const std::string letter(1, name.front());
  return GetType(letter + std::to_string(ptx::TypeBytes(name) * 16));
}

MicroOp& FunctionDecoder::Emit(std::string_view key, bool guarded) {
  Handler handler = FindHandler(plan_.flavour, key);
  if (handler == nullptr) {
    Missing(instruction_->Spelling());
    handler = FindHandler(plan_.flavour, "nothing");
  }
  const std::string spelling = instruction_ == nullptr ? "" : instruction_->Spelling();
  const auto [index, is_new] =
      spelling_index_.try_emplace(spelling, static_cast<std::uint32_t>(code_.spellings.size()));
  if (is_new) code_.spellings.push_back(spelling);
  code_.sources.push_back(
      {instruction_ == nullptr ? 0 : instruction_->position.line, index->second});
  MicroOp op;
  op.handler = handler;
  op.guard = guarded ? guard_ : kAlwaysTrue;
  code_.ops.push_back(op);
  return code_.ops.back();
}

void FunctionDecoder::Missing(const std::string& what) {
  plan_.missing.Add(instruction_ == nullptr ? 0 : instruction_->position.line, what);
}

const FunctionDecoder::Operand* FunctionDecoder::OperandAt(std::size_t index) {
  static const Operand kNone;
  if (index < instruction_->operands.size()) return &instruction_->operands[index];
  Missing(instruction_->Spelling() + " with " + std::to_string(instruction_->operands.size()) +
          " operands");
  return &kNone;
}

std::optional<Symbol> FunctionDecoder::FindSymbol(const std::string& name) const {
  const auto own = function_.symbols.find(name);
  if (own != function_.symbols.end()) return own->second;
  for (const SymbolTable* symbols : {&plan_.symbols, &plan_.module->symbols}) {
    const auto of_module = symbols->find(name);
    if (of_module != symbols->end()) return of_module->second;
  }
  return std::nullopt;
}

std::uint32_t FunctionDecoder::Resized(std::uint32_t row, std::uint32_t from, std::uint32_t to,
                                       bool is_signed) {
  if (from == to) return row;
  const std::uint32_t scratch = frame_.ScratchRow(to);
  MicroOp& op = Emit(to == 4     ? "resize.b32.b64"
                     : is_signed ? "resize.s64.s32"
                                 : "resize.u64.u32",
                     false);
  op.a = row;
  op.destination = scratch;
  return scratch;
}

std::uint32_t FunctionDecoder::Source(const Operand& operand, const OperandType& type) {
  switch (operand.kind) {
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat:
      return GetConstant(operand, type);
    case Operand::Kind::kName:
      return SourceName(operand, type);
    default:
      Missing(instruction_->Spelling() + " with this operand");
      return 0;
  }
}

std::uint32_t FunctionDecoder::GetConstant(const Operand& operand, const OperandType& type) {
  std::uint64_t value = static_cast<std::uint64_t>(operand.integer);
  if (operand.kind == Operand::Kind::kFloat) {
    std::string_view spelling = operand.text;
    if (spelling.starts_with('-')) spelling.remove_prefix(1);
    const bool single = spelling.starts_with("0f") || spelling.starts_with("0F");
    if (single && type.name == "f64") {
      const float narrow = __builtin_bit_cast(float, static_cast<std::uint32_t>(value));
      value = __builtin_bit_cast(std::uint64_t, static_cast<double>(narrow));
    } else if (!single && type.width == 4) {
      const double wide = __builtin_bit_cast(double, value);
      value = __builtin_bit_cast(std::uint32_t, static_cast<float>(wide));
    }
  }
  return frame_.ConstantRow(value, type.width);
}

std::uint32_t FunctionDecoder::SourceName(const Operand& operand, const OperandType& type) {
  const std::uint32_t reg = flow_.FindRegister(operand);
  if (reg != ptx::kNoRegister) {
    // A store may write fewer bytes of a 128-bit register, which are taken from its lower half.
    const std::uint32_t width = std::min(frame_.RegisterWidth(reg), 8u);
    const auto half = GetHalf(operand, reg);
    const bool is_cut = frame_.RegisterWidth(reg) == 16 && !half;
    if (width == 0 || (is_cut && instruction_->opcode != "st")) {
      Missing(instruction_->Spelling() + " with operand " + operand.text);
      return 0;
    }
    const std::uint32_t own = half.value_or(frame_.RegisterOffset(reg));
    const std::uint32_t row = Resized(own, width, type.width, type.is_signed);
    return operand.offset == 0 ? row : SumSource(row, operand.offset, type);
  }
  if (operand.text.starts_with('%')) return SpecialSource(operand.text, type);
  if (const auto symbol = FindSymbol(operand.text)) return SymbolSource(operand, *symbol, type);
  Missing("unknown name '" + operand.text + "'");
  return 0;
}

// register+constant: an addition of integers, also in instructions of bit types. Unsupported in
// instructions of float types.
std::uint32_t FunctionDecoder::SumSource(std::uint32_t row, std::int64_t addend,
                                         const OperandType& type) {
  if (type.name.find('f') != std::string::npos) {
    Missing(instruction_->Spelling() + " of a register and an offset");
  }
  const std::uint32_t sum = frame_.ScratchRow(type.width);
  const std::uint32_t constant = frame_.ConstantRow(static_cast<std::uint64_t>(addend), type.width);
  MicroOp& op = Emit(type.width == 8 ? "add.u64" : "add.u32", false);
  op.a = row, op.b = constant;
  op.destination = sum;
  return sum;
}

std::uint32_t FunctionDecoder::SpecialSource(const std::string& name, const OperandType& type) {
  for (const auto& [spelling, what] : kSpecialRegisters) {
    if (name == spelling) return frame_.SpecialRowFor(what, type.width == 8);
  }
  if (name.starts_with("%envreg")) {
    // Address of the workspace for grid barriers.
    if (name == "%envreg1") {
      return frame_.SpecialRowFor(SpecialRegister::kGridWorkspaceHigh, type.width == 8);
    }
    if (name == "%envreg2") {
      return frame_.SpecialRowFor(SpecialRegister::kGridWorkspaceLow, type.width == 8);
    }
    return frame_.SpecialRowFor(SpecialRegister::kZero, type.width == 8);
  }
  // Performance counters always read as 0.
  if (IsPerformanceMonitor(name)) {
    return frame_.SpecialRowFor(SpecialRegister::kZero, type.width == 8);
  }
  for (const auto& [spelling, key] : kClocks) {
    if (name != spelling) continue;
    const std::uint32_t width = key.ends_with("b64") ? 8 : 4;
    const std::uint32_t row = frame_.ScratchRow(width);
    Emit(key, false).destination = row;
    return Resized(row, width, type.width, false);
  }
  Missing("special register " + name);
  return 0;
}

std::uint32_t FunctionDecoder::SymbolSource(const Operand& operand, const Symbol& symbol,
                                            const OperandType& type) {
  const std::uint64_t address = symbol.address + static_cast<std::uint64_t>(operand.offset);
  if (symbol.kind == Symbol::Kind::kLocal) {
    const std::uint32_t row = frame_.ScratchRow(8);
    MicroOp& op = Emit("local_address", false);
    op.destination = row;
    op.immediate = static_cast<std::int64_t>(address);
    return Resized(row, 8, type.width, false);
  }
  if (symbol.kind == Symbol::Kind::kFunction && type.width != 8) {
    Missing("address of function '" + operand.text + "' in less than 64 bits");
    return 0;
  }
  if (symbol.kind == Symbol::Kind::kArea) {
    Missing("address of parameter '" + operand.text + "' of a function");
    return 0;
  }
  if (symbol.kind == Symbol::Kind::kGlobal) return frame_.VariableRow(address, type.width);
  return frame_.ConstantRow(address, type.width);
}

std::uint32_t FunctionDecoder::Destination(const Operand& operand, const OperandType& type) {
  if (operand.text == "_") return frame_.ScratchRow(type.width);
  const std::uint32_t reg = flow_.FindRegister(operand);
  if (reg == ptx::kNoRegister || frame_.RegisterWidth(reg) == 0 || operand.offset != 0) {
    Missing("unknown register '" + operand.text + "'");
    return frame_.ScratchRow(type.width);
  }
  if (const auto half = GetHalf(operand, reg)) return *half;
  if (frame_.RegisterWidth(reg) == 16) {
    Missing(instruction_->Spelling() + " into a register of 128 bits");
    return frame_.ScratchRow(type.width);
  }
  const std::uint32_t offset = frame_.RegisterOffset(reg);
  const std::uint32_t width = frame_.RegisterWidth(reg);
  if (width == type.width) return offset;
  const std::uint32_t scratch = frame_.ScratchRow(type.width);
  pending_.push_back({scratch, offset, width == 8, type.is_signed});
  return scratch;
}

void FunctionDecoder::FinishDestinations() {
  for (const PendingDestination& pending : pending_) {
    MicroOp& op = Emit(!pending.widen      ? "resize.b32.b64"
                       : pending.is_signed ? "resize.s64.s32"
                                           : "resize.u64.u32",
                       true);
    op.a = pending.from;
    op.destination = pending.to;
  }
  pending_.clear();
}

std::uint32_t FunctionDecoder::PredicateSource(const Operand& operand) {
  std::uint32_t offset = kAlwaysTrue;
  bool negated = operand.negated;
  if (operand.kind == Operand::Kind::kInteger) {
    negated = operand.integer == 0;
  } else {
    const std::uint32_t reg = flow_.FindRegister(operand);
    if (reg == ptx::kNoRegister || frame_.RegisterWidth(reg) != 0 || operand.offset != 0) {
      Missing("unknown predicate '" + operand.text + "'");
      return kAlwaysTrue;
    }
    offset = frame_.RegisterOffset(reg);
  }
  if (!negated) return offset;
  const std::uint32_t scratch = frame_.ScratchPredicate();
  MicroOp& op = Emit("not.pred", false);
  op.a = offset;
  op.destination = scratch;
  return scratch;
}

std::uint32_t FunctionDecoder::PredicateDestination(const Operand& operand) {
  if (operand.text == "_") return frame_.ScratchPredicate();
  const std::uint32_t reg = flow_.FindRegister(operand);
  if (reg == ptx::kNoRegister || frame_.RegisterWidth(reg) != 0) {
    Missing("unknown predicate '" + operand.text + "'");
    return frame_.ScratchPredicate();
  }
  return frame_.RegisterOffset(reg);
}

}  // namespace gpushared::device::executor
