// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/fence_function.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "server/ptx/call_graph.h"
#include "server/ptx/fence.h"
#include "server/ptx/fence_flow.h"
#include "server/ptx/fence_residue.h"
#include "server/ptx/memory_access.h"

namespace gpushared::ptx {
namespace {

// Immediates this far from the margin's end leave room for the widest access.
constexpr std::int64_t kImmediateMax = static_cast<std::int64_t>(kFenceMarginBytes) - 8192;

std::string LineOf(const SourcePosition& position) {
  return "line " + std::to_string(position.line) + ": ";
}

bool IsInteger(std::string_view text) {
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

// Whether [offset, offset + bytes) lies in a variable of `size` bytes.
bool IsInside(std::int64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return offset >= 0 && bytes <= size && static_cast<std::uint64_t>(offset) <= size - bytes;
}

class FunctionFence {
 public:
  FunctionFence(ModuleEditor& names, Function& function, const FenceFacts& facts)
      : names_(names), editor_(names, function), function_(function), facts_(facts) {}

  std::string Run() {
    CheckDeclarations();
    Result<ControlFlow> flow = AnalyseControlFlow(function_);
    if (!flow) return std::string(flow.status().message());
    if (!reason_.empty()) return std::move(reason_);
    flow_.emplace(*std::move(flow));
    if (flow_->dominators.empty() && !flow_->flow.blocks.empty()) {
      return LineOf(function_.position) + "the branches are too entangled";
    }
    for (std::size_t i = 0; i < editor_.size(); ++i) {
      if (std::holds_alternative<Instruction>(editor_.At(i))) statements_.push_back(i);
    }
    MergeLocals();
    flow_->VisitBlocks([this](std::uint32_t block) { EnterBlock(block); },
                       [this](std::uint32_t block) { LeaveBlock(block); });
    if (!reason_.empty()) return std::move(reason_);
    if (depot_ && zero_depot_) ZeroLocal(editor_, *depot_);
    LoadConstants();
    editor_.Apply();
    return {};
  }

 private:
  void Refuse(const SourcePosition& position, const std::string& why) {
    if (reason_.empty()) reason_ = LineOf(position) + why;
  }

  // --- Declarations -------------------------------------------------------------------------

  // Names that mean a variable of the module must not mean anything else in the body.
  void CheckName(const Variable& variable) {
    const std::string& name = variable.name;
    const bool known = facts_.moved.contains(name) || facts_.constants.contains(name) ||
                       facts_.foreign.contains(name);
    if (known) {
      Refuse(variable.position, "'" + name + "' is also the name of a variable of the module");
    }
  }

  void CheckDeclarations() {
    for (const Variable& parameter : function_.parameters) CheckName(parameter);
    for (const Variable& result : function_.returns) CheckName(result);
    std::uint32_t depth = 0;
    for (const Statement& statement : *function_.body) {
      if (std::holds_alternative<ScopeBegin>(statement)) ++depth;
      if (std::holds_alternative<ScopeEnd>(statement)) --depth;
      if (const auto* directive = std::get_if<Directive>(&statement)) {
        const std::string& text = directive->text;
        const bool known = text.starts_with(".pragma") || text.starts_with(".branchtargets") ||
                           text.starts_with(".calltargets") || text.starts_with(".callprototype");
        if (!known) {
          Refuse(directive->position, "'" + text.substr(0, text.find(' ')) + "' is not known");
        }
      }
      const auto* variable = std::get_if<Variable>(&statement);
      if (variable == nullptr) continue;
      CheckName(*variable);
      const bool shared = variable->space == StateSpace::kShared;
      if (variable->space == StateSpace::kGlobal || variable->space == StateSpace::kConstant) {
        Refuse(variable->position, "declares '" + variable->name + "' in its body");
      }
      if (shared && (depth > 0 || !function_.is_entry)) {
        Refuse(variable->position, "declares shared memory elsewhere than in the kernel's body");
      }
    }
  }

  // One array with all local variables, so that one bound holds for whatever points into them.
  void MergeLocals() {
    std::uint64_t bytes = 0;
    std::uint32_t alignment = 1;
    std::vector<const Variable*> locals;
    for (const Variable& variable : flow_->flow.variables) {
      if (variable.space != StateSpace::kLocal || variable.linkage == ".extern") continue;
      const std::uint32_t own = std::max<std::uint32_t>(variable.NaturalAlignment(), 1);
      bytes = (bytes + own - 1) / own * own;
      local_offsets_[variable.name] = static_cast<std::int64_t>(bytes);
      local_bytes_[variable.name] = variable.Bytes();
      bytes += variable.Bytes();
      alignment = std::max(alignment, own);
      locals.push_back(&variable);
    }
    if (locals.empty() || bytes == 0) return;
    if (locals.size() == 1 && locals[0]->name.find('@') == std::string::npos) {
      depot_ = *locals[0];
      return;
    }
    Variable merged;
    merged.space = StateSpace::kLocal;
    merged.alignment = alignment;
    merged.type = "b8";
    merged.name = names_.UniqueName("local");
    merged.extents = {(bytes + alignment - 1) / alignment * alignment};
    depot_ = merged;
    merges_ = true;
    editor_.InsertAtEntry(std::move(merged));
  }

  void LoadConstants() {
    const auto load = [this](const std::string& name, std::string_view type, std::size_t member) {
      if (name.empty()) return;
      editor_.InsertAtEntry(
          Make("ld.const." + std::string(type),
               {Name(name), Address(facts_.constant, static_cast<std::int64_t>(member))}));
    };
    load(mask_, "u32", offsetof(FenceConstant, mask_high));
    load(base_, "u32", offsetof(FenceConstant, base_high));
    load(variables_, "u64", offsetof(FenceConstant, variables));
    if (depot_base_.empty()) return;
    const std::string wide = editor_.NewRegister("b64");
    editor_.InsertAtEntry(Make("mov.u64", {Name(wide), Name(depot_->name)}));
    editor_.InsertAtEntry(Make("cvt.u32.u64", {Name(depot_base_), Name(wide)}));
  }

  // --- Walk ---------------------------------------------------------------------------------

  void EnterBlock(std::uint32_t b) {
    const BasicBlock& block = flow_->flow.blocks[b];
    kept_.emplace_back();
    in_block_.clear();
    for (std::uint32_t k = block.first; k < block.first + block.count; ++k) {
      if (!reason_.empty()) return;
      Rewrite(k);
      for (const std::uint32_t r : flow_->written[k]) {
        std::erase_if(in_block_, [r](const auto& entry) { return entry.first.base == r; });
      }
    }
  }

  void LeaveBlock(std::uint32_t) {
    for (const Key& key : kept_.back()) in_dominated_.erase(key);
    kept_.pop_back();
  }

  Instruction& At(std::uint32_t k) { return std::get<Instruction>(editor_.At(statements_[k])); }
  void Before(std::uint32_t k, std::string_view spelling, std::vector<Operand> operands) {
    editor_.InsertBefore(statements_[k], Make(spelling, std::move(operands)));
  }

  void Rewrite(std::uint32_t k) {
    const MemoryAccesses accesses = FindMemoryAccesses(At(k));
    if (!accesses.refusal.empty()) return Refuse(At(k).position, accesses.refusal);
    const std::string& opcode = At(k).opcode;
    if (opcode == "brx") ClampIndex(k);
    if (opcode == "call" && CalleeName(At(k)) == "__assertfail") {
      // Its arguments are addresses that code of the driver's would read through.
      Instruction trap = Make("trap");
      trap.position = At(k).position;
      trap.guard = At(k).guard;
      At(k) = std::move(trap);
      return;
    }
    for (const MemoryAccess& access : accesses.list) {
      switch (access.space) {
        case AccessSpace::kShared:
          break;
        case AccessSpace::kParameter:
          CheckParameter(k, access);
          break;
        case AccessSpace::kLocal:
          FenceLocal(k, access);
          break;
        default:
          FenceAddress(k, access);
      }
      if (!reason_.empty()) return;
    }
    ReplaceNames(k);
  }

  // What the list of brx.idx does not have is its last entry.
  void ClampIndex(std::uint32_t k) {
    const BasicBlock& block = flow_->flow.blocks[flow_->flow.block_of[k]];
    const std::string index = editor_.NewRegister("b32");
    Before(k, "min.u32",
           {Name(index), At(k).operands[0],
            Integer(static_cast<std::int64_t>(block.branch_table.size()) - 1)});
    At(k).operands[0] = Name(index);
  }

  // Parameters of calls lie on the stack, beside what must not be overwritten.
  void CheckParameter(std::uint32_t k, const MemoryAccess& access) {
    const Operand& address = flow_->flow.instructions[k].operands[access.operand];
    const Variable* found = nullptr;
    const auto look = [&](const std::vector<Variable>& variables) {
      for (const Variable& variable : variables) {
        const bool is_it =
            variable.space == StateSpace::kParameter && variable.name == address.text;
        if (is_it && found == nullptr) found = &variable;
      }
    };
    look(flow_->flow.variables);
    look(function_.parameters);
    look(function_.returns);
    const bool loads_of_launch = function_.is_entry && At(k).opcode == "ld";
    if (found == nullptr && loads_of_launch &&
        flow_->flow.FindRegister(address.text) != kNoRegister) {
      return;  // The device bounds what it reads of a launch.
    }
    if (found == nullptr || !IsInside(address.offset, access.bytes, found->Bytes())) {
      Refuse(At(k).position, "'" + At(k).Spelling() + "' outside of a parameter");
    }
  }

  // --- Global and generic addresses -----------------------------------------------------------

  // A fenced address can be used again where `base` + `immediate` is the same.
  struct Key {
    std::uint32_t base = kNoRegister;
    std::int64_t immediate = 0;
    std::uint32_t bytes = 0;   // 0 when they do not matter.
    bool has_windows = false;  // Fenced by MaskOutsideWindows.
    auto operator<=>(const Key&) const = default;
  };

  const std::string* FindKept(const Key& key) const {
    if (const auto found = in_block_.find(key); found != in_block_.end()) return &found->second;
    if (const auto found = in_dominated_.find(key); found != in_dominated_.end()) {
      return &found->second;
    }
    return nullptr;
  }

  void Keep(std::uint32_t k, const Key& key, const std::string& fenced) {
    if (flow_->IsStable(key.base, k)) {
      if (in_dominated_.emplace(key, fenced).second) kept_.back().push_back(key);
    } else {
      in_block_[key] = fenced;
    }
  }

  std::string Sum(std::uint32_t k, const std::string& base, std::int64_t addend) {
    if (addend == 0) return base;
    std::string sum = editor_.NewRegister("b64");
    Before(k, "add.s64", {Name(sum), Name(base), Integer(addend)});
    return sum;
  }

  // The address in the client's range that has the same place in it.
  std::string Mask(std::uint32_t k, const std::string& address) {
    if (mask_.empty()) mask_ = editor_.NewRegister("b32");
    if (base_.empty()) base_ = editor_.NewRegister("b32");
    const std::string low = editor_.NewRegister("b32"), high = editor_.NewRegister("b32");
    std::string masked = editor_.NewRegister("b64");
    Before(k, "mov.b64", {Vector({Name(low), Name(high)}), Name(address)});
    Before(k, "and.b32", {Name(high), Name(high), Name(mask_)});
    Before(k, "or.b32", {Name(high), Name(high), Name(base_)});
    Before(k, "mov.b64", {Name(masked), Vector({Name(low), Name(high)})});
    return masked;
  }

  bool HasWindows(const MemoryAccess& access) const {
    return access.space == AccessSpace::kGeneric &&
           (facts_.has_generic_shared || facts_.has_generic_local);
  }

  // As Mask, but what lies in the windows of shared and local memory stays there: the hardware
  // bounds the one, the declared array the other.
  std::string MaskOutsideWindows(std::uint32_t k, const std::string& address, std::uint32_t bytes) {
    std::string fenced = Mask(k, address);
    const auto select = [&](const char* space, const std::string& inside) {
      const std::string in_window = editor_.NewRegister("pred");
      std::string selected = editor_.NewRegister("b64");
      Before(k, std::string("isspacep.") + space, {Name(in_window), Name(address)});
      Before(k, "selp.b64", {Name(selected), Name(inside), Name(fenced), Name(in_window)});
      fenced = std::move(selected);
    };
    if (facts_.has_generic_shared) select("shared", address);
    if (facts_.has_generic_local && depot_ && bytes <= depot_->Bytes()) {
      const std::string wide = editor_.NewRegister("b64"), word = editor_.NewRegister("b32");
      const std::string clamped = editor_.NewRegister("b64"), generic = editor_.NewRegister("b64");
      Before(k, "cvta.to.local.u64", {Name(wide), Name(address)});
      Before(k, "cvt.u32.u64", {Name(word), Name(wide)});
      Before(k, "cvt.u64.u32", {Name(clamped), Name(ClampLocal(k, word, 0, bytes))});
      Before(k, "cvta.local.u64", {Name(generic), Name(clamped)});
      select("local", generic);
    }
    return fenced;
  }

  // Whether addresses of this instruction can be formed with immediates behind them.
  static bool Fits(std::int64_t immediate) {
    return immediate >= -kImmediateMax && immediate <= kImmediateMax;
  }

  void FenceAddress(std::uint32_t k, const MemoryAccess& access) {
    Operand& operand = At(k).operands[access.operand];
    if (access.space == AccessSpace::kGeneric && facts_.has_generic_local && !function_.is_entry) {
      return Refuse(At(k).position, "generic address in function '" + function_.name +
                                        "', which may be one of its caller's local memory");
    }
    if (access.stride && HasWindows(access)) {
      return Refuse(At(k).position, "strided access to a generic address");
    }
    const std::uint32_t r =
        flow_->flow.FindRegister(flow_->flow.instructions[k].operands[access.operand].text);
    if (const auto moved = facts_.moved.find(operand.text); moved != facts_.moved.end()) {
      operand = MovedAddress(k, access, moved->second, operand.offset);
    } else if (const auto constant = facts_.constants.find(operand.text);
               constant != facts_.constants.end()) {
      if (access.space != AccessSpace::kConstant ||
          !IsInside(operand.offset, access.bytes, constant->second)) {
        return Refuse(At(k).position, "access outside of constant '" + operand.text + "'");
      }
    } else if (r != kNoRegister) {
      operand = RegisterAddress(k, access, operand, r);
    } else if (IsInteger(operand.text)) {
      const std::string address = editor_.NewRegister("b64");
      Before(k, "mov.u64", {Name(address), Integer(operand.integer + operand.offset)});
      operand = Address(Fence(k, access, address));
    } else {
      return Refuse(At(k).position, "address of '" + operand.text + "', which is not known");
    }
    if (access.stride) BoundStride(k, access);
  }

  std::string Fence(std::uint32_t k, const MemoryAccess& access, const std::string& address) {
    return HasWindows(access) ? MaskOutsideWindows(k, address, access.bytes) : Mask(k, address);
  }

  std::string Variables() {
    if (variables_.empty()) variables_ = editor_.NewRegister("b64");
    return variables_;
  }

  Operand MovedAddress(std::uint32_t k, const MemoryAccess& access,
                       const VariablePlacement& variable, std::int64_t offset) {
    const std::int64_t immediate = static_cast<std::int64_t>(variable.offset) + offset;
    if (IsInside(offset, access.bytes, variable.bytes) && !access.stride) {
      if (Fits(immediate)) return Address(Variables(), immediate);
      return Address(Sum(k, Variables(), immediate));
    }
    return Address(Mask(k, Sum(k, Variables(), immediate)));
  }

  Operand RegisterAddress(std::uint32_t k, const MemoryAccess& access, const Operand& operand,
                          std::uint32_t r) {
    const Register& base = flow_->flow.registers[r];
    if (TypeBytes(base.type) != 8) {
      Refuse(At(k).position, "address in a register of type " + base.type);
      return operand;
    }
    const bool windows = HasWindows(access);
    const bool folds = windows || !Fits(operand.offset);
    Key key{.base = r, .immediate = folds ? operand.offset : 0, .bytes = 0, .has_windows = windows};
    if (windows && facts_.has_generic_local) key.bytes = access.bytes;
    // Components of a vector are one register here.
    const bool keeps = base.vector_size == 1;
    const std::string* kept = keeps ? FindKept(key) : nullptr;
    std::string fenced;
    if (kept != nullptr) {
      fenced = *kept;
    } else {
      fenced = Fence(k, access, Sum(k, operand.text, key.immediate));
      if (keeps) Keep(k, key, fenced);
    }
    return Address(fenced, folds ? 0 : operand.offset);
  }

  // Rows that would lie beyond the range all become the first one.
  void BoundStride(std::uint32_t k, const MemoryAccess& access) {
    Operand& stride = At(k).operands[*access.stride];
    const Operand address = At(k).operands[access.operand];
    const std::string length = editor_.NewRegister("b64"), end = editor_.NewRegister("b64");
    const std::string inside = editor_.NewRegister("pred"), bounded = editor_.NewRegister("b32");
    const std::string given = editor_.NewRegister("b32");
    Before(k, "mov.b32", {Name(given), stride});
    Before(
        k, "mul.wide.u32",
        {Name(length), Name(given), Integer(std::int64_t{access.rows - 1} * access.stride_bytes)});
    Before(k, "add.s64", {Name(end), Name(length), Name(address.text)});
    Before(k, "setp.eq.s64", {Name(inside), Name(Mask(k, end)), Name(end)});
    Before(k, "selp.b32", {Name(bounded), Name(given), Integer(0), Name(inside)});
    stride = Name(bounded);
  }

  // --- Local memory -------------------------------------------------------------------------

  // `word` + `immediate`, when that lies in the array with `bytes` behind it; else some place in
  // it.
  std::string ClampLocal(std::uint32_t k, const std::string& word, std::int64_t immediate,
                         std::uint32_t bytes) {
    if (depot_base_.empty()) depot_base_ = editor_.NewRegister("b32");
    std::string at = editor_.NewRegister("b32");
    Before(k, "sub.u32", {Name(at), Name(word), Name(depot_base_)});
    if (immediate != 0) Before(k, "add.u32", {Name(at), Name(at), Integer(immediate)});
    Before(k, "min.u32",
           {Name(at), Name(at), Integer(static_cast<std::int64_t>(depot_->Bytes() - bytes))});
    Before(k, "add.u32", {Name(at), Name(at), Name(depot_base_)});
    zero_depot_ = true;
    return at;
  }

  void FenceLocal(std::uint32_t k, const MemoryAccess& access) {
    Operand& operand = At(k).operands[access.operand];
    const Operand& named = flow_->flow.instructions[k].operands[access.operand];
    if (At(k).opcode != "st") zero_depot_ = true;
    if (const auto bytes = local_bytes_.find(named.text); bytes != local_bytes_.end()) {
      if (!IsInside(operand.offset, access.bytes, bytes->second)) {
        return Refuse(At(k).position, "access outside of '" + operand.text + "'");
      }
      if (!merges_) return;
      operand = Address(depot_->name, local_offsets_.at(named.text) + operand.offset);
      return;
    }
    const std::uint32_t r = flow_->flow.FindRegister(named.text);
    if (r == kNoRegister || !depot_ || access.bytes > depot_->Bytes()) {
      return Refuse(At(k).position, "local memory that the function does not declare");
    }
    const std::optional<std::int64_t> known = LocalOffset(r, k, kChainMax);
    if (known && IsInside(*known + operand.offset, access.bytes, depot_->Bytes())) return;
    std::string word = operand.text;
    if (TypeBytes(flow_->flow.registers[r].type) == 8) {
      word = editor_.NewRegister("b32");
      Before(k, "cvt.u32.u64", {Name(word), Name(operand.text)});
    }
    operand = Address(ClampLocal(k, word, operand.offset, access.bytes));
  }

  // What register `r` holds at instruction `k`, counted from the array's start; nothing when
  // that is not the same for every way to get there.
  static constexpr int kChainMax = 8;
  std::optional<std::int64_t> LocalOffset(std::uint32_t r, std::uint32_t k, int chain) const {
    if (chain == 0 || !flow_->IsStable(r, k)) return std::nullopt;
    const std::uint32_t at = flow_->written_at[r];
    const Instruction& from = flow_->flow.instructions[at];
    const bool moves = from.opcode == "mov" && from.operands.size() == 2;
    const bool adds = from.opcode == "add" && from.operands.size() == 3 &&
                      from.operands[2].kind == Operand::Kind::kInteger;
    const bool is_64 = !from.modifiers.empty() && TypeBytes(from.modifiers.back()) == 8;
    if ((!moves && !adds) || from.guard || !is_64 ||
        from.operands[1].kind != Operand::Kind::kName) {
      return std::nullopt;
    }
    const Operand& source = from.operands[1];
    std::optional<std::int64_t> start;
    if (const auto local = local_offsets_.find(source.text); local != local_offsets_.end()) {
      start = local->second + source.offset;
    } else if (const std::uint32_t other = flow_->flow.FindRegister(source.text);
               other != kNoRegister && source.offset == 0) {
      start = LocalOffset(other, at, chain - 1);
    }
    if (!start) return std::nullopt;
    const std::int64_t sum = *start + (adds ? from.operands[2].integer : 0);
    constexpr std::int64_t kFarthest = std::int64_t{1} << 31;
    return sum > -kFarthest && sum < kFarthest ? std::optional(sum) : std::nullopt;
  }

  // --- Names outside of addresses -------------------------------------------------------------

  void ReplaceNames(std::uint32_t k) {
    Instruction& instruction = At(k);
    const Instruction& named = flow_->flow.instructions[k];
    bool replaced = false;
    for (std::size_t o = 0; o < instruction.operands.size(); ++o) {
      replaced |= ReplaceName(k, instruction.operands[o], named.operands[o], true);
    }
    // The address is one of global memory now, which is its generic address, too.
    const bool of_constant =
        facts_.constants_move && instruction.opcode == "cvta" && instruction.Has("const");
    if (of_constant) instruction.modifiers = {"u64"}, instruction.opcode = "mov";
    if (facts_.constants_move && !of_constant) {
      std::ranges::replace(instruction.modifiers, std::string("const"), std::string("global"));
    }
    const bool fits = instruction.modifiers.empty() ||
                      TypeBytes(instruction.modifiers.back()) == 8 || instruction.opcode == "call";
    if (replaced && !fits) {
      Refuse(instruction.position, "address of a variable in less than 64 bits");
    }
  }

  bool ReplaceName(std::uint32_t k, Operand& operand, const Operand& named, bool is_whole) {
    bool replaced = false;
    for (std::size_t e = 0; e < operand.elements.size() && e < named.elements.size(); ++e) {
      replaced |= ReplaceName(k, operand.elements[e], named.elements[e], false);
    }
    if (operand.kind != Operand::Kind::kName) return replaced;
    if (const auto moved = facts_.moved.find(operand.text); moved != facts_.moved.end()) {
      operand = Name(
          Sum(k, Variables(), static_cast<std::int64_t>(moved->second.offset) + operand.offset));
      return is_whole;
    }
    if (facts_.foreign.contains(operand.text)) {
      Refuse(At(k).position, "variable '" + operand.text + "' of another module");
    }
    const auto local = local_offsets_.find(named.text);
    if (merges_ && local != local_offsets_.end()) {
      operand.text = depot_->name;
      operand.offset += local->second;
    }
    return replaced;
  }

  ModuleEditor& names_;
  FunctionEditor editor_;
  Function& function_;
  const FenceFacts& facts_;
  std::optional<FenceFlow> flow_;
  std::string reason_;
  std::vector<std::size_t> statements_;  // Of each instruction of the flow.

  std::optional<Variable> depot_;  // All local memory of the function.
  bool merges_ = false;            // It is an array that the client has not declared.
  bool zero_depot_ = false;
  std::unordered_map<std::string, std::int64_t> local_offsets_;  // In it.
  std::unordered_map<std::string, std::uint64_t> local_bytes_;

  // Registers loaded at the entry; empty as long as nothing needs them.
  std::string mask_, base_, variables_, depot_base_;

  // Fenced addresses by what they were made of: within the block at hand, and those that hold in
  // all blocks that the block dominates which made them.
  std::map<Key, std::string> in_block_, in_dominated_;
  std::vector<std::vector<Key>> kept_;  // Of in_dominated_: those of each block on the way.
};

}  // namespace

void NoteGenericAddresses(const Function& function, FenceFacts& facts) {
  for (const Statement& statement : *function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr || instruction->opcode != "cvta" || instruction->Has("to")) {
      continue;
    }
    facts.has_generic_shared |= instruction->Has("shared") || instruction->Has("shared::cta");
    facts.has_generic_local |= instruction->Has("local");
    facts.constants_move |= instruction->Has("const");
  }
}

bool TouchesShared(const Function& function, const FenceFacts& facts) {
  for (const Statement& statement : *function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    for (const MemoryAccess& access : FindMemoryAccesses(*instruction).list) {
      const bool generic = access.space == AccessSpace::kGeneric && facts.has_generic_shared;
      if (generic || access.space == AccessSpace::kShared) return true;
    }
  }
  return false;
}

std::string FenceFunction(ModuleEditor& names, Function& function, const FenceFacts& facts) {
  return FunctionFence(names, function, facts).Run();
}

}  // namespace gpushared::ptx
