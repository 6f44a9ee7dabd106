// SPDX-License-Identifier: Apache-2.0
// Branches, returns and calls, and the order in which blocks become ops.
#include <algorithm>

#include "server/device/cpu/executor/decoder.h"

namespace gpushared::device::executor {

FunctionDecoder::FunctionDecoder(ProgramPlan& plan, std::uint32_t index)
    : plan_(plan),
      function_(plan.functions[index]),
      flow_(function_.flow),
      index_(index),
      code_(*plan.code),
      frame_(flow_) {}

void FunctionDecoder::Decode() {
  FunctionCode& function = code_.functions[index_];
  function.name = function_.function->name;
  function.entry = static_cast<std::uint32_t>(code_.ops.size());
  function.local_bytes = function_.local_bytes;
  std::vector<bool> meets(flow_.blocks.size(), false);
  for (const ptx::BasicBlock& block : flow_.blocks) {
    const bool splits = block.end == ptx::BasicBlock::End::kConditionalBranch ||
                        block.end == ptx::BasicBlock::End::kIndexedBranch;
    if (splits && block.immediate_post_dominator != ptx::kNoBlock) {
      meets[block.immediate_post_dominator] = true;
    }
  }
  for (std::size_t b = 0; b < flow_.blocks.size(); ++b) {
    const ptx::BasicBlock& block = flow_.blocks[b];
    block_op_.push_back(static_cast<std::uint32_t>(code_.ops.size()));
    if (meets[b]) Emit("reconverge", false);
    for (std::uint32_t i = 0; i < block.count; ++i) {
      position_ = block.first + i;
      DecodeInstruction(flow_.instructions[position_]);
    }
  }
  block_op_.push_back(static_cast<std::uint32_t>(code_.ops.size()));
  Emit(function_.function->is_entry ? "exit" : "return", false);
  ResolveBranches();
  frame_.Finish(function_.area_bytes, &function);
  if (function.frame_bytes > kRegisterBytesPerWarpMax) {
    Missing("function '" + function.name + "' needs " + std::to_string(function.frame_bytes) +
            " bytes of registers per warp, the device has " +
            std::to_string(kRegisterBytesPerWarpMax));
  }
}

void FunctionDecoder::ResolveBranches() {
  const auto op_of = [&](std::uint32_t block) {
    return block == ptx::kNoBlock ? block_op_.back() : block_op_[block];
  };
  for (const BranchFix& fix : fixes_) {
    MicroOp& op = code_.ops[fix.op];
    op.target = op_of(fix.target_block);
    op.reconvergence = fix.reconvergence_block == ptx::kNoBlock ? kNoReconvergence
                                                                : op_of(fix.reconvergence_block);
  }
  for (const TableFix& fix : table_fixes_) {
    for (const std::uint32_t block : fix.blocks) {
      code_.branch_tables[fix.table].push_back(op_of(block));
    }
  }
}

bool FunctionDecoder::DecodeControl() {
  const std::string& opcode = instruction_->opcode;
  if (opcode == "bra") {
    DecodeBranch();
  } else if (opcode == "brx") {
    DecodeIndexedBranch();
  } else if (opcode == "ret") {
    Emit(function_.function->is_entry ? "exit" : "return", true);
  } else if (opcode == "exit") {
    Emit(opcode, true);
  } else if (opcode == "nanosleep") {
    const std::uint32_t time = Source(*OperandAt(0), TypeOf("u32"));
    Emit(opcode, true).a = time;
  } else if (opcode == "trap" || opcode == "brkpt") {
    Emit("trap", true);
  } else if (opcode == "call") {
    DecodeCall();
  } else {
    return false;
  }
  return true;
}

void FunctionDecoder::DecodeBranch() {
  const ptx::BasicBlock& block = flow_.blocks[flow_.block_of[position_]];
  if (block.successors.empty()) {
    Missing(instruction_->Spelling() + " to nowhere");
    return;
  }
  const bool conditional = block.end == ptx::BasicBlock::End::kConditionalBranch;
  fixes_.push_back({static_cast<std::uint32_t>(code_.ops.size()), block.successors[0],
                    block.immediate_post_dominator});
  Emit(conditional ? "bra.if" : "bra", conditional);
}

void FunctionDecoder::DecodeIndexedBranch() {
  const ptx::BasicBlock& block = flow_.blocks[flow_.block_of[position_]];
  const std::uint32_t index = Source(*OperandAt(0), TypeOf("u32"));
  const std::uint32_t table = static_cast<std::uint32_t>(code_.branch_tables.size());
  code_.branch_tables.emplace_back();
  table_fixes_.push_back({table, block.branch_table});
  fixes_.push_back({static_cast<std::uint32_t>(code_.ops.size()), ptx::kNoBlock,
                    block.immediate_post_dominator});
  MicroOp& op = Emit("brx.idx", true);
  op.a = index;
  op.immediate = table;
}

std::uint32_t FunctionDecoder::AreaOffset(const Operand& operand) {
  const auto symbol = FindSymbol(operand.text);
  if (symbol && symbol->kind == Symbol::Kind::kArea) {
    return static_cast<std::uint32_t>(symbol->address);
  }
  Missing("call with argument '" + operand.text + "'");
  return 0;
}

std::vector<ArgumentCopy> FunctionDecoder::MatchArguments(const Operand* list,
                                                          const std::vector<ptx::Variable>& formal,
                                                          const SymbolTable& callee_symbols) {
  std::vector<ArgumentCopy> copies;
  const std::size_t count = list == nullptr ? 0 : list->elements.size();
  if (count != formal.size()) {
    Missing("call with " + std::to_string(count) + " arguments or results instead of " +
            std::to_string(formal.size()));
    return copies;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& actual = list->elements[i];
    const auto target = callee_symbols.find(formal[i].name);
    const auto source = FindSymbol(actual.text);
    if (target == callee_symbols.end() || !source || source->kind != Symbol::Kind::kArea) {
      Missing("call with argument '" + actual.text + "'");
      continue;
    }
    const std::uint64_t bytes = std::min(source->bytes, target->second.bytes);
    copies.push_back({static_cast<std::uint32_t>(source->address),
                      static_cast<std::uint32_t>(target->second.address),
                      static_cast<std::uint32_t>(bytes)});
  }
  return copies;
}

bool FunctionDecoder::DecodeBuiltinCall(const std::string& name, const Operand* results,
                                        const Operand* arguments) {
  const std::size_t wanted = name == "vprintf" ? 2 : name == "__assertfail" ? 5 : 0;
  if (wanted == 0 || arguments == nullptr || arguments->elements.size() != wanted) return false;
  std::array<std::uint32_t, 4> rows = {};
  for (std::size_t i = 0; i < std::min<std::size_t>(wanted, 4); ++i) {
    rows[i] = AreaOffset(arguments->elements[i]);
  }
  if (name == "vprintf") {
    if (results == nullptr || results->elements.size() != 1) return false;
    rows[2] = AreaOffset(results->elements[0]);
  }
  Emit(name, true).rows = rows;
  return true;
}

// call[.uni] [(results),] function[, (arguments)]
void FunctionDecoder::DecodeCall() {
  const Operand* results = nullptr;
  const Operand* arguments = nullptr;
  const Operand* callee = nullptr;
  for (const Operand& operand : instruction_->operands) {
    const bool list = operand.kind == Operand::Kind::kList;
    if (!list && callee == nullptr) {
      callee = &operand;
    } else if (list && callee == nullptr) {
      results = &operand;
    } else if (list) {
      arguments = &operand;
    } else {
      Missing("indirect call");
      return;
    }
  }
  if (callee == nullptr) {
    Missing("call of nothing");
    return;
  }
  if (DecodeBuiltinCall(callee->text, results, arguments)) return;
  const auto found = plan_.function_index.find(callee->text);
  if (found == plan_.function_index.end()) {
    const bool in_register = flow_.FindRegister(callee->text) != ptx::kNoRegister;
    Missing(in_register ? "indirect call" : "call of '" + callee->text + "'");
    return;
  }
  const FunctionPlan& target = plan_.functions[found->second];
  CallSite site;
  site.function = found->second;
  site.arguments = MatchArguments(arguments, target.function->parameters, target.symbols);
  site.results = MatchArguments(results, target.function->returns, target.symbols);
  code_.calls = true;
  MicroOp& op = Emit("call", true);
  op.immediate = static_cast<std::int64_t>(code_.call_sites.size());
  code_.call_sites.push_back(std::move(site));
}

}  // namespace gpushared::device::executor
