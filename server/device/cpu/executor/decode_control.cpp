// SPDX-License-Identifier: Apache-2.0
// Branches, returns and calls, and the translation of blocks into ops.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "common/ptx/text/written_module.h"
#include "server/device/cpu/executor/decoder.h"

namespace gpushared::device::executor {
namespace {

// A function that the device implements; modules only declare and call it.
struct Builtin {
  std::string_view name;
  std::size_t arguments;
  std::array<std::uint32_t, 4> argument_bytes;  // Sizes of the used arguments.
  std::uint32_t result_bytes;                   // 0 if it returns nothing.
  std::string_view key;                         // Key of the operation that implements it.
};
// LLVM declares vprintf without a result if the source does not use it.
constexpr std::array<Builtin, 5> kBuiltins = {{
    {"vprintf", 2, {8, 8}, 4, "vprintf"},
    {"vprintf", 2, {8, 8}, 0, "vprintf.unread"},
    {"__assertfail", 5, {8, 8, 4, 8}, 0, "__assertfail"},
    {"malloc", 1, {8}, 8, "malloc"},
    {"free", 1, {8}, 0, "free"},
}};

}  // namespace

FunctionDecoder::FunctionDecoder(ProgramPlan& plan, std::uint32_t index)
    : plan_(plan),
      function_(plan.functions[index]),
      flow_(*function_.flow),
      index_(index),
      code_(*plan.code),
      frame_(flow_) {}

void FunctionDecoder::Decode() {
  FunctionCode& function = code_.functions[index_];
  function.name = function_.function->name;
  function.entry = static_cast<std::uint32_t>(code_.ops.size());
  function.local_bytes = function_.local_bytes;
  if (!function_.function->is_entry) {
    function.arguments = OwnArea(function_.function->parameters);
    function.results = OwnArea(function_.function->returns);
  }
  const bool has_own_stack = function_.has_stack && !function_.function->is_entry;
  if (has_own_stack) caller_stack_ = frame_.KeptRow(8);
  std::vector<bool> meets(flow_.blocks.size(), false);
  for (const ptx::BasicBlock& block : flow_.blocks) {
    const bool splits = block.end == ptx::BasicBlock::End::kConditionalBranch ||
                        block.end == ptx::BasicBlock::End::kIndexedBranch;
    if (splits && block.immediate_post_dominator != ptx::kNoBlock) {
      meets[block.immediate_post_dominator] = true;
    }
  }
  // For each block: number of ops since the last check for a kill on the longest path to it.
  // Backward branches check on their own. Like verify.cpp, assumes that each block continues to the
  // next one, even if it ends in an exit.
  std::vector<std::size_t> since_check(flow_.blocks.size() + 1, 0);
  if (has_own_stack) {
    Emit("stack.save", false).destination = caller_stack_;
    since_check[0] = 1;
  }
  for (std::size_t b = 0; b < flow_.blocks.size(); ++b) {
    const ptx::BasicBlock& block = flow_.blocks[b];
    block_op_.push_back(static_cast<std::uint32_t>(code_.ops.size()));
    if (meets[b]) Emit("reconverge", false);
    const std::size_t since = DecodeBlock(block, since_check[b] + (meets[b] ? 1 : 0));
    since_check[b + 1] = std::max(since_check[b + 1], since);
    for (const std::uint32_t next : block.successors) {
      if (next > b && next < since_check.size()) {
        since_check[next] = std::max(since_check[next], since);
      }
    }
  }
  block_op_.push_back(static_cast<std::uint32_t>(code_.ops.size()));
  guard_ = kAlwaysTrue;
  RestoreStack();
  Emit(function_.function->is_entry ? "exit" : "return", false);
  // Never reached in code that this decoder made; invalid code from a compromised process may reach
  // it (verify.h).
  Emit("end", false);
  ResolveBranches();
  frame_.Finish(function_.area_bytes, &function);
  if (function.frame_bytes > kRegisterBytesPerWarpMax) {
    Missing("function '" + function.name + "' needs " + std::to_string(function.frame_bytes) +
            " bytes of registers per warp, the device has " +
            std::to_string(kRegisterBytesPerWarpMax));
  }
}

std::size_t FunctionDecoder::DecodeBlock(const ptx::BasicBlock& block, std::size_t since_check) {
  // A frame beyond its limit is rejected, so further instructions are skipped.
  for (std::uint32_t i = 0; i < block.count && frame_.bytes() <= kRegisterBytesPerWarpMax; ++i) {
    if (since_check >= kOpsPerCheck) {
      Emit("look", false);
      since_check = 0;
    }
    const std::size_t before = code_.ops.size();
    position_ = block.first + i;
    DecodeInstruction(flow_.instructions[position_]);
    since_check += code_.ops.size() - before;
  }
  return since_check;
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
  const std::string_view opcode = instruction_->opcode;
  if (opcode == "bra") {
    DecodeBranch();
  } else if (opcode == "brx") {
    DecodeIndexedBranch();
  } else if (opcode == "ret") {
    RestoreStack();
    Emit(function_.function->is_entry ? "exit" : "return", true);
  } else if (opcode == "exit") {
    Emit(opcode, true);
  } else if (opcode == "nanosleep") {
    const std::uint32_t time = Source(*OperandAt(0), GetType("u32"));
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

// Frees the stack allocations of a function when it returns.
void FunctionDecoder::RestoreStack() {
  if (function_.has_stack && !function_.function->is_entry) {
    Emit("stack.restore", true).a = caller_stack_;
  }
}

// alloca.type pointer, size[, alignment]; stacksave.type d; stackrestore.type a
bool FunctionDecoder::DecodeStack() {
  const std::string& opcode = instruction_->opcode;
  const auto& operands = instruction_->operands;
  const bool allocates = opcode == "alloca", restores = opcode == "stackrestore";
  if (!allocates && !restores && opcode != "stacksave") return false;
  const auto& modifiers = instruction_->modifiers;
  const bool has_type = modifiers.size() == 1 && (modifiers[0] == "u32" || modifiers[0] == "u64");
  const std::size_t most = allocates ? 3 : 1;
  if (!has_type || operands.size() < (allocates ? 2 : 1) || operands.size() > most) return false;
  constexpr std::int64_t kAlignmentMin = 8, kAlignmentMax = std::int64_t{1} << 23;
  std::int64_t alignment = kAlignmentMin;
  if (operands.size() == 3) {
    const std::int64_t asked = operands[2].integer;
    const bool is_power = asked > 0 && (asked & (asked - 1)) == 0;
    if (operands[2].kind != Operand::Kind::kInteger || !is_power || asked > kAlignmentMax) {
      return false;
    }
    alignment = std::max(alignment, asked);
  }
  const OperandType wide = GetType("u64");
  const std::uint32_t source = allocates  ? Source(operands[1], wide)
                               : restores ? Source(operands[0], wide)
                                          : 0;
  const std::uint32_t destination = restores ? 0 : Destination(operands[0], wide);
  MicroOp& op = Emit(allocates  ? "stack.allocate"
                     : restores ? "stack.restore"
                                : "stack.save",
                     true);
  op.a = source;
  op.destination = destination;
  op.immediate = allocates ? alignment : 0;
  return true;
}

void FunctionDecoder::DecodeBranch() {
  const ptx::BasicBlock& block = flow_.blocks[flow_.block_of[position_]];
  if (block.successors.empty()) {
    Missing(instruction_->Spelling() + " without a destination");
    return;
  }
  const bool conditional = block.end == ptx::BasicBlock::End::kConditionalBranch;
  fixes_.push_back({static_cast<std::uint32_t>(code_.ops.size()), block.successors[0],
                    block.immediate_post_dominator});
  Emit(conditional ? "bra.if" : "bra", conditional);
}

void FunctionDecoder::DecodeIndexedBranch() {
  const ptx::BasicBlock& block = flow_.blocks[flow_.block_of[position_]];
  const std::uint32_t index = Source(*OperandAt(0), GetType("u32"));
  const std::uint32_t table = static_cast<std::uint32_t>(code_.branch_tables.size());
  code_.branch_tables.emplace_back();
  table_fixes_.push_back({table, block.branch_table});
  fixes_.push_back({static_cast<std::uint32_t>(code_.ops.size()), ptx::kNoBlock,
                    block.immediate_post_dominator});
  MicroOp& op = Emit("brx.idx", true);
  op.a = index;
  op.immediate = table;
}

// Returns the offset of an argument or result of at least `bytes` bytes.
std::uint32_t FunctionDecoder::AreaOffset(const Operand& operand, std::uint32_t bytes) {
  const auto symbol = FindSymbol(operand.text);
  if (symbol && symbol->kind == Symbol::Kind::kArea && symbol->bytes >= bytes) {
    return static_cast<std::uint32_t>(symbol->address);
  }
  Missing("call with argument '" + operand.text + "'");
  return 0;
}

// Returns the offsets of the parameters or results with which the function was called.
std::vector<AreaSlot> FunctionDecoder::OwnArea(const std::vector<ptx::Variable>& variables) const {
  std::vector<AreaSlot> slots;
  for (const ptx::Variable& variable : variables) {
    const auto symbol = function_.symbols.find(variable.name);
    // The parameter was rejected because it is too large.
    if (symbol == function_.symbols.end()) continue;
    slots.push_back({static_cast<std::uint32_t>(symbol->second.address),
                     static_cast<std::uint32_t>(symbol->second.bytes)});
  }
  return slots;
}

std::vector<AreaSlot> FunctionDecoder::MatchArguments(const Operand* list,
                                                      const std::vector<ptx::Variable>& formal) {
  std::vector<AreaSlot> slots;
  const std::size_t count = list == nullptr ? 0 : list->elements.size();
  if (count != formal.size()) {
    Missing("call with " + std::to_string(count) + " arguments or results instead of " +
            std::to_string(formal.size()));
    return slots;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Operand& actual = list->elements[i];
    const auto source = FindSymbol(actual.text);
    if (!source || source->kind != Symbol::Kind::kArea) {
      Missing("call with argument '" + actual.text + "'");
      continue;
    }
    const std::uint64_t bytes = std::min(source->bytes, formal[i].Bytes());
    slots.push_back(
        {static_cast<std::uint32_t>(source->address), static_cast<std::uint32_t>(bytes)});
  }
  return slots;
}

bool FunctionDecoder::DecodeBuiltinCall(const std::string& name, const Operand* results,
                                        const Operand* arguments) {
  const std::size_t given = arguments == nullptr ? 0 : arguments->elements.size();
  const std::size_t returned = results == nullptr ? 0 : results->elements.size();
  const auto builtin = std::ranges::find_if(kBuiltins, [&](const Builtin& known) {
    return known.name == name && known.arguments == given &&
           returned == (known.result_bytes == 0 ? 0u : 1u);
  });
  if (builtin == kBuiltins.end()) return false;
  std::array<std::uint32_t, 4> rows = {};
  std::size_t row = 0;
  for (; row < std::min(given, rows.size()); ++row) {
    rows[row] = AreaOffset(arguments->elements[row], builtin->argument_bytes[row]);
  }
  if (returned != 0) rows[row] = AreaOffset(results->elements[0], builtin->result_bytes);
  code_.allocates |= name == "malloc";
  Emit(builtin->key, true).rows = rows;
  return true;
}

// Reads a .callprototype or .calltargets of this function.
void FunctionDecoder::ReadTargets(const std::string& directive, IndirectTargets* targets) {
  if (directive.starts_with(".callprototype")) {
    Result<ptx::Function> prototype = ptx::ParsePrototype(directive);
    if (!prototype) return;
    prototypes_.push_back(std::make_unique<const ptx::Function>(std::move(*prototype)));
    targets->prototype = prototypes_.back().get();
  } else if (directive.starts_with(".calltargets")) {
    std::vector<std::uint64_t> addresses;
    for (const std::string& name : ptx::DirectiveTargets(directive)) {
      const auto symbol = FindSymbol(name);
      const auto function = plan_.module->functions.find(name);
      const bool known = symbol && symbol->kind == Symbol::Kind::kFunction;
      if (!known || function == plan_.module->functions.end()) continue;
      addresses.push_back(symbol->address);
      if (targets->prototype == nullptr) targets->prototype = function->second;
    }
    std::ranges::sort(addresses);
    targets->target_list = static_cast<std::uint32_t>(code_.target_lists.size());
    code_.target_lists.push_back(std::move(addresses));
  }
}

const FunctionDecoder::IndirectTargets& FunctionDecoder::GetTargets(const std::string& list) {
  if (!are_targets_read_) {
    for (const ptx::NamedDirective& named : flow_.directives) {
      ReadTargets(named.directive.text, &indirect_targets_[named.name]);
    }
    are_targets_read_ = true;
  }
  return indirect_targets_[list];
}

// An indirect call: each lane calls the function whose address it holds.
void FunctionDecoder::DecodeIndirectCall(const Operand& callee, const Operand* results,
                                         const Operand* arguments, const Operand* list) {
  const IndirectTargets& targets = GetTargets(list == nullptr ? "" : list->text);
  if (targets.prototype == nullptr) {
    Missing("indirect call without a prototype");
    return;
  }
  CallSite site;
  site.arguments = MatchArguments(arguments, targets.prototype->parameters);
  site.results = MatchArguments(results, targets.prototype->returns);
  site.target_list = targets.target_list;
  code_.calls = true;
  const std::uint32_t address = Source(callee, GetType("u64"));
  MicroOp& op = Emit("call.indirect", true);
  op.a = address;
  op.immediate = static_cast<std::int64_t>(code_.call_sites.size());
  code_.call_sites.push_back(std::move(site));
  Emit("reconverge", false);  // Lanes that called different functions reconverge here.
}

// call[.uni] [(results),] function[, (arguments)][, prototype]
void FunctionDecoder::DecodeCall() {
  const Operand* results = nullptr;
  const Operand* arguments = nullptr;
  const Operand* callee = nullptr;
  const Operand* targets = nullptr;
  for (const Operand& operand : instruction_->operands) {
    const bool list = operand.kind == Operand::Kind::kList;
    if (!list && callee == nullptr) {
      callee = &operand;
    } else if (list && callee == nullptr) {
      results = &operand;
    } else if (list) {
      arguments = &operand;
    } else {
      targets = &operand;
    }
  }
  if (callee == nullptr) {
    Missing("call without a function");
    return;
  }
  if (flow_.FindRegister(callee->text) != ptx::kNoRegister) {
    DecodeIndirectCall(*callee, results, arguments, targets);
    return;
  }
  const auto found = plan_.function_index.find(callee->text);
  if (found == plan_.function_index.end()) {
    if (DecodeBuiltinCall(callee->text, results, arguments)) return;
    Missing("call of '" + callee->text + "'");
    return;
  }
  const FunctionPlan& target = plan_.functions[found->second];
  CallSite site;
  site.function = found->second;
  site.arguments = MatchArguments(arguments, target.function->parameters);
  site.results = MatchArguments(results, target.function->returns);
  code_.calls = true;
  MicroOp& op = Emit("call", true);
  op.immediate = static_cast<std::int64_t>(code_.call_sites.size());
  code_.call_sites.push_back(std::move(site));
}

}  // namespace gpushared::device::executor
