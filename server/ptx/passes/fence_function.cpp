// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/fence_function.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/analysis/memory_access.h"
#include "server/ptx/analysis/value_flow.h"
#include "server/ptx/passes/fence_code.h"
#include "server/ptx/passes/fence_residue.h"
#include "server/ptx/passes/kernel_words.h"

namespace gpushared::ptx {
namespace {

// Largest immediate offset; leaves space for the widest access before the margin's end.
constexpr std::int64_t kImmediateMax = static_cast<std::int64_t>(kFenceMarginBytes) - 8192;
constexpr std::uint32_t kWidestAccess = 32;
// Alignment of rows of matrix fragments, in bytes.
constexpr std::uint32_t kStrideAlignment = 16;
// Maximum number of steps back from an address to the register from which it is computed.
constexpr int kStepsBackMax = 8;

bool IsInteger(std::string_view text) {
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

// Whether [offset, offset + bytes) is inside a variable of `size` bytes.
bool IsInside(std::int64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return offset >= 0 && bytes <= size && static_cast<std::uint64_t>(offset) <= size - bytes;
}

bool IsGenericParameter(const Instruction& instruction) {
  return instruction.opcode == "cvta" && !instruction.Has("to") &&
         std::ranges::any_of(instruction.modifiers,
                             [](const std::string& each) { return each.starts_with("param"); });
}

class FunctionFence {
 public:
  FunctionFence(ModuleEditor& names, Function& function, const FenceFacts& facts)
      : names_(names),
        editor_(names, function),
        code_(editor_, facts),
        function_(function),
        facts_(facts) {}

  std::string Run(std::string& shared_begin) {
    CheckDeclarations();
    Result<ControlFlow> flow = AnalyseControlFlow(function_);
    if (!flow) return std::string(flow.status().message());
    if (!reason_.empty()) return std::move(reason_);
    flow_.emplace(*std::move(flow));
    if (flow_->dominators.empty() && !flow_->flow.blocks.empty()) {
      return GetLine(function_.position) + "the branches are too entangled";
    }
    for (std::size_t i = 0; i < editor_.size(); ++i) {
      if (std::holds_alternative<Instruction>(editor_.At(i))) statements_.push_back(i);
    }
    has_scopes_ = std::ranges::any_of(flow_->flow.registers, [](const Register& known) {
      return known.name.find('@') != std::string::npos;
    });
    RecordVariables();
    if (function_.is_entry) code_.SetKernel();
    locals_.emplace(*flow_);
    locals_->Merge(names_, editor_, facts_.contains ? kWidestAccess : 1);
    code_.SetLocal(locals_->array());
    has_generic_parameter_ = function_.is_entry && MakesGenericParameter(function_) != nullptr;
    if (has_generic_parameter_ && !function_.parameters.empty()) {
      code_.SetParameters(function_.parameters[0].name, ParameterBytes(function_));
    }
    reason_ = ZeroUnwritten(editor_, function_, *flow_, statements_);
    if (!reason_.empty()) return std::move(reason_);
    flow_->VisitBlocks([this](std::uint32_t block) { EnterBlock(block); },
                       [this](std::uint32_t block) { LeaveBlock(block); });
    if (!reason_.empty()) return std::move(reason_);
    const Variable* locals = locals_->array();
    if (locals != nullptr && (reads_locals_ || code_.has_clamped_local())) {
      ZeroLocal(editor_, *locals);
    }
    code_.Finish();
    shared_begin = code_.shared_begin();
    editor_.Apply();
    return {};
  }

 private:
  void Reject(const SourcePosition& position, const std::string& why) {
    if (reason_.empty()) reason_ = GetLine(position) + why;
  }

  // --- Declarations -------------------------------------------------------------------------

  void CheckDeclarations() {
    std::uint32_t depth = 0;
    for (const Statement& statement : *function_.body) {
      if (std::holds_alternative<ScopeBegin>(statement)) ++depth;
      if (std::holds_alternative<ScopeEnd>(statement)) --depth;
      const auto* variable = std::get_if<Variable>(&statement);
      if (variable == nullptr) continue;
      const bool shared = variable->space == StateSpace::kShared;
      if (variable->space == StateSpace::kGlobal || variable->space == StateSpace::kConstant) {
        Reject(variable->position, "declares '" + variable->name + "' in its body");
      }
      if (shared && (depth > 0 || !function_.is_entry)) {
        Reject(variable->position,
               "declares shared memory outside of the kernel's outermost scope");
      }
    }
  }

  void RecordVariables() {
    const auto note = [this](const std::vector<Variable>& variables) {
      for (const Variable& variable : variables) {
        if (variable.space == StateSpace::kParameter) {
          parameters_.emplace(variable.name, &variable);
        }
      }
    };
    note(flow_->flow.variables);
    note(function_.parameters);
    note(function_.returns);
    for (const Variable& variable : flow_->flow.variables) {
      declared_.emplace(variable.name, &variable);
    }
  }

  // --- Walk ---------------------------------------------------------------------------------

  void EnterBlock(std::uint32_t b) {
    const BasicBlock& block = flow_->flow.blocks[b];
    kept_.emplace_back();
    in_block_.clear();
    for (std::uint32_t k = block.first; k < block.first + block.count; ++k) {
      if (!reason_.empty()) return;
      Rewrite(k);
      for (const std::uint32_t r : flow_->written[k]) Forget(r);
    }
  }

  // The keys are sorted by register, so removing them takes at most as long as creating them did.
  void Forget(std::uint32_t r) {
    Key first;
    first.base = r;
    first.space = AccessSpace::kGeneric;
    first.immediate = std::numeric_limits<std::int64_t>::min();
    auto at = in_block_.lower_bound(first);
    while (at != in_block_.end() && at->first.base == r) at = in_block_.erase(at);
  }

  void LeaveBlock(std::uint32_t) {
    for (const Key& key : kept_.back()) in_dominated_.erase(key);
    kept_.pop_back();
  }

  Instruction& At(std::uint32_t k) { return std::get<Instruction>(editor_.At(statements_[k])); }
  void Before(std::uint32_t k, std::string_view spelling, std::vector<Operand> operands) {
    code_.Add(statements_[k], spelling, std::move(operands));
  }

  // Replaces discard by prefetch, a harmless hint, because discarded memory may contain another
  // client's data again: the zeroes that overwrote it may have been in the cache only.
  void KeepContents(Instruction& instruction) {
    if (instruction.opcode != "discard") return;
    instruction.opcode = "prefetch";
    if (instruction.operands.size() > 1) instruction.operands.resize(1);
  }

  // If contained: drops a cache policy, because an invalid one may fault, and a valid one does not
  // change results.
  static void DropCachePolicy(Instruction& instruction) {
    if (instruction.opcode == "createpolicy" && !instruction.operands.empty()) {
      instruction.opcode = "mov", instruction.modifiers = {"b64"};
      instruction.operands = {instruction.operands.front(), Integer(0)};
    } else if (instruction.Has("L2::cache_hint") && !instruction.operands.empty()) {
      std::erase(instruction.modifiers, "L2::cache_hint");
      instruction.operands.pop_back();
    }
  }

  void Rewrite(std::uint32_t k) {
    KeepContents(At(k));
    if (facts_.contains) DropCachePolicy(At(k));
    const MemoryAccesses accesses = FindMemoryAccesses(At(k));
    if (!accesses.rejection.empty()) return Reject(At(k).position, accesses.rejection);
    const std::string_view opcode = At(k).opcode;
    if (opcode == "brx") ClampIndex(k);
    if (!function_.is_entry && IsGenericParameter(At(k))) {
      return Reject(At(k).position, "generic address of a function's parameter");
    }
    if (opcode == "call" && CalleeName(At(k)) == "__assertfail" && !facts_.contains) {
      // __assertfail becomes a trap, because its arguments are addresses through which the driver's
      // code would read.
      Instruction trap = Make("trap");
      trap.position = At(k).position;
      trap.guard = At(k).guard;
      At(k) = std::move(trap);
      return;
    }
    for (const MemoryAccess& access : accesses.list) {
      switch (access.space) {
        case AccessSpace::kShared:
          if (facts_.contains) FenceShared(k, access);
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
    if (opcode == "cp" && At(k).operands.size() > 3) BoundSource(k);
    ReplaceNames(k);
  }

  // cp.async: limits the bytes read from the source. The rest of the `operands[2]` bytes becomes
  // zero.
  void BoundSource(std::uint32_t k) {
    Operand& bytes = At(k).operands[3];
    const std::int64_t most = At(k).operands[2].integer;
    if (bytes.kind == Operand::Kind::kInteger && bytes.integer >= 0 && bytes.integer <= most)
      return;
    const std::uint32_t r = flow_->flow.FindRegister(flow_->flow.instructions[k].operands[3].text);
    if (r != kNoRegister && flow_->flow.registers[r].type == "pred") return;  // ignore-src
    const std::string bounded = code_.NewWord();
    Before(k, "mov.b32", {Name(bounded), bytes});
    Before(k, "min.u32", {Name(bounded), Name(bounded), At(k).operands[2]});
    bytes = Name(bounded);
  }

  // Returns the alignment that fenced addresses must have. Contained code must not fault on
  // misaligned addresses; other code may.
  std::uint32_t GetAlignment(const MemoryAccess& access) const {
    return facts_.contains ? access.alignment : 1;
  }
  bool IsAligned(std::int64_t offset, const MemoryAccess& access) const {
    return offset % GetAlignment(access) == 0;
  }

  // Replaces an index outside of the list of brx.idx by the last entry.
  void ClampIndex(std::uint32_t k) {
    const BasicBlock& block = flow_->flow.blocks[flow_->flow.block_of[k]];
    const std::string index = editor_.NewRegister("b32");
    Before(k, "min.u32",
           {Name(index), At(k).operands[0],
            Integer(static_cast<std::int64_t>(block.branch_table.size()) - 1)});
    At(k).operands[0] = Name(index);
  }

  // Call parameters are on the stack, next to data that must not be overwritten.
  void CheckParameter(std::uint32_t k, const MemoryAccess& access) {
    const Operand& address = flow_->flow.instructions[k].operands[access.operand];
    const auto known = parameters_.find(address.text);
    const Variable* found = known == parameters_.end() ? nullptr : known->second;
    const bool loads_of_launch = function_.is_entry && At(k).opcode == "ld";
    const std::uint32_t r = flow_->flow.FindRegister(address.text);
    if (found == nullptr && loads_of_launch && r != kNoRegister) {
      ClampParameter(k, access, r);
      return;
    }
    if (found == nullptr || !IsInside(address.offset, access.bytes, found->Bytes()) ||
        !IsAligned(address.offset, access)) {
      Reject(At(k).position, "'" + At(k).Spelling() + "' outside of a parameter");
    }
  }

  void ClampParameter(std::uint32_t k, const MemoryAccess& access, std::uint32_t r) {
    const std::uint64_t size = ParameterBytes(function_);
    if (size < access.bytes || TypeBytes(flow_->flow.registers[r].type) != 8) {
      return Reject(At(k).position, "'" + At(k).Spelling() + "' outside of a parameter");
    }
    Operand& operand = At(k).operands[access.operand];
    operand = Address(code_.ClampParameter(statements_[k], function_.parameters[0].name, size,
                                           operand.text, operand.offset, access.bytes,
                                           GetAlignment(access)));
  }

  // --- Global and generic addresses -----------------------------------------------------------

  // Accesses with equal keys can use the same fenced address.
  struct Key {
    std::uint32_t base = kNoRegister;
    AccessSpace space = AccessSpace::kGlobal;  // If kGeneric, MaskOutsideWindows fences it.
    std::int64_t immediate = 0;
    std::uint32_t bytes = 0;  // 0 if irrelevant.
    std::uint32_t alignment = 1;
    // For generic addresses: whether those in local memory, or in parameters, are preserved.
    bool local = false;
    bool parameter = false;
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

  bool HasWindows(const MemoryAccess& access) const {
    return access.space == AccessSpace::kGeneric &&
           ((facts_.has_generic_shared && access.takes_shared) ||
            (facts_.has_generic_local && access.takes_local) ||
            (has_generic_parameter_ && access.takes_parameter));
  }

  // Whether an access may keep this immediate offset from its fenced base. In contained code a
  // negative one may not, because memory before the range may be unmapped.
  bool Fits(std::int64_t immediate) const {
    return immediate >= (facts_.contains ? 0 : -kImmediateMax) && immediate <= kImmediateMax;
  }

  void FenceAddress(std::uint32_t k, const MemoryAccess& access) {
    Operand& operand = At(k).operands[access.operand];
    if (access.space == AccessSpace::kGeneric && facts_.has_generic_local && !function_.is_entry) {
      return Reject(At(k).position, "generic address in function '" + function_.name +
                                        "', which may be one of its caller's local memory");
    }
    if (access.stride && HasWindows(access)) {
      return Reject(At(k).position, "strided access to a generic address");
    }
    const bool clamps = facts_.contains && facts_.has_generic_shared && HasWindows(access);
    if (clamps && access.bytes > kSharedReserveBytes) {
      return Reject(At(k).position, "'" + At(k).Spelling() + "' is not known");
    }
    const std::uint32_t r =
        flow_->flow.FindRegister(flow_->flow.instructions[k].operands[access.operand].text);
    if (const auto moved = facts_.moved.find(operand.text); moved != facts_.moved.end()) {
      operand = MovedAddress(k, access, moved->second, operand.offset);
    } else if (const auto constant = facts_.constants.find(operand.text);
               constant != facts_.constants.end()) {
      if (access.space != AccessSpace::kConstant || !IsAligned(operand.offset, access) ||
          !IsInside(operand.offset, access.bytes, constant->second)) {
        return Reject(At(k).position, "access outside of constant '" + operand.text + "'");
      }
    } else if (r != kNoRegister) {
      operand = RegisterAddress(k, access, operand, r);
    } else if (IsInteger(operand.text)) {
      const std::string address = code_.NewAddress();
      Before(k, "mov.u64", {Name(address), Integer(operand.integer + operand.offset)});
      operand = Address(Fence(k, access, address));
    } else {
      return Reject(At(k).position, "address of '" + operand.text + "', which is not known");
    }
    if (access.stride) BoundStride(k, access);
  }

  std::string Fence(std::uint32_t k, const MemoryAccess& access, const std::string& address) {
    const std::uint32_t alignment = GetAlignment(access);
    return HasWindows(access) ? code_.MaskOutsideWindows(statements_[k], address, access, alignment)
                              : code_.Mask(statements_[k], address, alignment);
  }

  Operand MovedAddress(std::uint32_t k, const MemoryAccess& access,
                       const VariablePlacement& variable, std::int64_t offset) {
    const std::int64_t immediate = static_cast<std::int64_t>(variable.offset) + offset;
    const bool stays = IsInside(offset, access.bytes, variable.bytes) && !access.stride &&
                       IsAligned(immediate, access) &&
                       GetAlignment(access) <= facts_.variables_alignment;
    const std::string& start = code_.Variables();
    if (stays && Fits(immediate)) return Address(start, immediate);
    const std::string address = code_.Sum(statements_[k], start, immediate);
    return Address(stays ? address : code_.Mask(statements_[k], address, GetAlignment(access)));
  }

  // Returns the fenced address for the key, which `make` creates once.
  template <typename MakeFenced>
  std::string Kept(std::uint32_t k, const Key& key, MakeFenced make) {
    if (const std::string* kept = FindKept(key)) return *kept;
    std::string fenced = make();
    Keep(k, key, fenced);
    return fenced;
  }

  // Returns the operand, or the same address relative to the register from which it was computed:
  // compilers add the immediates of neighbouring accesses to one register, so that one mask serves
  // all of them.
  Operand SeenFromOrigin(std::uint32_t k, const MemoryAccess& access, Operand operand,
                         std::uint32_t* r) const {
    for (int chain = 0; chain < kStepsBackMax && !has_scopes_; ++chain) {
      if (!flow_->IsStable(*r, k)) break;
      const std::uint32_t at = flow_->written_at[*r];
      const Instruction& from = flow_->flow.instructions[at];
      const bool adds =
          from.opcode == "add" && !from.guard && from.operands.size() == 3 &&
          (from.Has("s64") || from.Has("u64")) && from.operands[1].kind == Operand::Kind::kName &&
          from.operands[1].offset == 0 && from.operands[2].kind == Operand::Kind::kInteger;
      const std::uint32_t origin =
          adds ? flow_->flow.FindRegister(from.operands[1].text) : kNoRegister;
      if (origin == kNoRegister || origin == *r || !HoldsFrom(origin, at, k)) break;
      const Register& base = flow_->flow.registers[origin];
      const std::int64_t immediate = from.operands[2].integer;
      const bool fits = Fits(immediate) && Fits(operand.offset) &&
                        Fits(operand.offset + immediate) &&
                        IsAligned(operand.offset + immediate, access);
      if (TypeBytes(base.type) != 8 || !fits) break;
      operand.text = from.operands[1].text;
      operand.offset += immediate;
      *r = origin;
    }
    return operand;
  }

  // Whether register `r` has the same value at instruction `at` as at `k`, which `at` dominates.
  bool HoldsFrom(std::uint32_t r, std::uint32_t at, std::uint32_t k) const {
    if (flow_->IsStable(r, at)) return true;
    constexpr std::uint32_t kDistanceMax = 256;
    if (flow_->flow.block_of[at] != flow_->flow.block_of[k] || k - at > kDistanceMax) return false;
    for (std::uint32_t between = at; between < k; ++between) {
      if (std::ranges::binary_search(flow_->written[between], r)) return false;
    }
    return true;
  }

  Operand RegisterAddress(std::uint32_t k, const MemoryAccess& access, Operand operand,
                          std::uint32_t r) {
    const Register& base = flow_->flow.registers[r];
    if (TypeBytes(base.type) != 8) {
      Reject(At(k).position, "address in a register of type " + base.type);
      return operand;
    }
    const bool windows = HasWindows(access);
    if (!windows) operand = SeenFromOrigin(k, access, std::move(operand), &r);
    const bool folds = windows || !Fits(operand.offset) || !IsAligned(operand.offset, access);
    Key key{.base = r,
            .space = windows ? AccessSpace::kGeneric : AccessSpace::kGlobal,
            .immediate = folds ? operand.offset : 0,
            .bytes = 0,
            .alignment = GetAlignment(access),
            .local = windows && access.takes_local,
            .parameter = windows && has_generic_parameter_ && access.takes_parameter};
    const bool bounds = facts_.has_generic_local || has_generic_parameter_ || facts_.contains;
    if (windows && bounds) key.bytes = access.bytes;
    const std::string fenced = Kept(k, key, [&] {
      return Fence(k, access, code_.Sum(statements_[k], operand.text, key.immediate));
    });
    return Address(fenced, folds ? 0 : operand.offset);
  }

  // If the last row is outside of the client's range, sets the stride to 0, so that every row is
  // the first one.
  void BoundStride(std::uint32_t k, const MemoryAccess& access) {
    const std::string address = At(k).operands[access.operand].text;
    const std::string end = code_.NewAddress();
    const std::string given = Stride(k, access);
    if (given.empty()) return;
    Before(k, "add.s64", {Name(end), Name(GetLength(k, access, given)), Name(address)});
    const std::string inside = editor_.NewRegister("pred");
    Before(k, "setp.eq.s64", {Name(inside), Name(code_.Mask(statements_[k], end, 1)), Name(end)});
    if (facts_.contains && facts_.variables_escape) EndWhereItBegins(k, address, end, inside);
    SelectStride(k, access, given, inside);
  }

  // If contained: an access that begins in the client's memory and ends in the module's variables
  // is not inside, because memory between the two may be unmapped.
  void EndWhereItBegins(std::uint32_t k, const std::string& address, const std::string& end,
                        const std::string& inside) {
    const std::string below = editor_.NewRegister("pred"), above = editor_.NewRegister("pred");
    Before(k, "setp.le.u64", {Name(below), Name(end), Name(code_.Limit())});
    Before(k, "setp.gt.u64", {Name(above), Name(address), Name(code_.Limit())});
    Before(k, "or.pred", {Name(below), Name(below), Name(above)});
    Before(k, "and.pred", {Name(inside), Name(inside), Name(below)});
  }

  // Returns the stride as given or, if contained, rounded down so that all rows are aligned.
  // Returns "" after rejecting an instruction for which this is not possible.
  std::string Stride(std::uint32_t k, const MemoryAccess& access) {
    std::string given = code_.NewWord();
    Before(k, "mov.b32", {Name(given), At(k).operands[*access.stride]});
    if (!facts_.contains) return given;
    if (access.stride_bytes == 0 || access.stride_bytes > kStrideAlignment) {
      Reject(At(k).position, "'" + At(k).Spelling() + "' is not known");
      return {};
    }
    Before(
        k, "and.b32",
        {Name(given), Name(given), Integer(-std::int64_t{kStrideAlignment} / access.stride_bytes)});
    return given;
  }

  // Returns the distance from the first row to the last one.
  std::string GetLength(std::uint32_t k, const MemoryAccess& access, const std::string& stride) {
    std::string length = code_.NewAddress();
    const std::uint32_t bytes = std::max(access.stride_bytes, 1U);
    Before(k, "mul.wide.u32",
           {Name(length), Name(stride), Integer(std::int64_t{access.rows - 1} * bytes)});
    return length;
  }

  void SelectStride(std::uint32_t k, const MemoryAccess& access, const std::string& given,
                    const std::string& inside) {
    const std::string bounded = code_.NewWord();
    Before(k, "selp.b32", {Name(bounded), Name(given), Integer(0), Name(inside)});
    At(k).operands[*access.stride] = Name(bounded);
  }

  // --- Shared memory --------------------------------------------------------------------------

  // Contained code only: confines accesses to the block's shared memory.
  void FenceShared(std::uint32_t k, const MemoryAccess& access) {
    Operand& operand = At(k).operands[access.operand];
    const std::string& name = flow_->flow.instructions[k].operands[access.operand].text;
    const std::uint32_t r = flow_->flow.FindRegister(name);
    if (access.bytes > kSharedReserveBytes) {
      return Reject(At(k).position, "'" + At(k).Spelling() + "' is not known");
    }
    if (const auto found = FindShared(name);
        found && IsInside(operand.offset, access.bytes, found->bytes) && !access.stride &&
        IsAligned(operand.offset, access) && access.alignment <= found->alignment) {
      return;
    }
    const auto clamp = [&] {
      std::string word = code_.NewWord();
      if (r == kNoRegister) {
        Before(k, "mov.u32",
               {Name(word), IsInteger(name) ? Integer(operand.integer) : Name(operand.text)});
      } else {
        word = TypeBytes(flow_->flow.registers[r].type) == 8
                   ? code_.Narrow(statements_[k], operand.text)
                   : operand.text;
      }
      return code_.ClampShared(statements_[k], word, operand.offset, access.bytes,
                               access.alignment);
    };
    const Key key{.base = r,
                  .space = AccessSpace::kShared,
                  .immediate = operand.offset,
                  .bytes = access.bytes,
                  .alignment = access.alignment,
                  .local = false,
                  .parameter = false};
    operand = Address(r == kNoRegister ? clamp() : Kept(k, key, clamp));
    if (access.stride) BoundSharedStride(k, access);
  }

  std::optional<SharedVariable> FindShared(const std::string& name) const {
    if (const auto own = declared_.find(name); own != declared_.end()) {
      const Variable& variable = *own->second;
      if (variable.space != StateSpace::kShared || variable.IsElsewhere()) return {};
      return SharedVariable{.bytes = variable.Bytes(), .alignment = variable.NaturalAlignment()};
    }
    const auto found = facts_.shared.find(name);
    return found == facts_.shared.end() ? std::nullopt : std::optional(found->second);
  }

  void BoundSharedStride(std::uint32_t k, const MemoryAccess& access) {
    const std::string first = At(k).operands[access.operand].text;
    const std::string end = code_.NewAddress(), limit = code_.NewAddress();
    const std::string given = Stride(k, access);
    if (given.empty()) return;
    Before(k, "cvt.u64.u32", {Name(end), Name(first)});
    Before(k, "cvt.u64.u32", {Name(limit), Name(code_.SharedEnd())});
    Before(k, "add.s64", {Name(end), Name(end), Name(GetLength(k, access, given))});
    Before(k, "add.s64", {Name(end), Name(end), Integer(access.bytes)});
    const std::string inside = editor_.NewRegister("pred");
    Before(k, "setp.le.u64", {Name(inside), Name(end), Name(limit)});
    SelectStride(k, access, given, inside);
  }

  // --- Local memory -------------------------------------------------------------------------

  void FenceLocal(std::uint32_t k, const MemoryAccess& access) {
    Operand& operand = At(k).operands[access.operand];
    const Operand& named = flow_->flow.instructions[k].operands[access.operand];
    if (At(k).opcode != "st") reads_locals_ = true;
    const Variable* array = locals_->array();
    if (const FenceLocals::Place* own = locals_->Find(named.text); own != nullptr) {
      const std::int64_t place = own->offset + operand.offset;
      if (!IsInside(operand.offset, access.bytes, own->bytes) || !IsAligned(place, access)) {
        return Reject(At(k).position, "access outside of '" + operand.text + "'");
      }
      if (locals_->merges()) operand = Address(array->name, place);
      return;
    }
    const std::uint32_t r = flow_->flow.FindRegister(named.text);
    if (r == kNoRegister || array == nullptr || access.bytes > array->Bytes()) {
      return Reject(At(k).position, "local memory that the function does not declare");
    }
    const std::optional<std::int64_t> known = locals_->OffsetIn(r, k);
    const bool stays = known && IsInside(*known + operand.offset, access.bytes, array->Bytes()) &&
                       IsAligned(*known + operand.offset, access);
    if (stays) return;
    const bool is_wide = TypeBytes(flow_->flow.registers[r].type) == 8;
    const std::string word = is_wide ? code_.Narrow(statements_[k], operand.text) : operand.text;
    operand = Address(
        code_.ClampLocal(statements_[k], word, operand.offset, access.bytes, GetAlignment(access)));
  }

  // --- Names outside of addresses -------------------------------------------------------------

  void ReplaceNames(std::uint32_t k) {
    Instruction& instruction = At(k);
    const Instruction& named = flow_->flow.instructions[k];
    bool replaced = false;
    const bool calls = instruction.opcode == "call";
    for (std::size_t o = 0; o < instruction.operands.size(); ++o) {
      // Only the first operand is written. It must not be a moved name, because the write would go
      // to the register that replaces the name.
      const bool is_written = o == 0 && (!calls || named.operands[0].kind == Operand::Kind::kList);
      if (is_written && NamesMoved(instruction.operands[0])) {
        return Reject(instruction.position, "writes to the name of a variable");
      }
      replaced |= ReplaceName(k, instruction.operands[o], named.operands[o], true);
    }
    // The constant is now in global memory, where its address equals its generic address.
    const bool of_constant =
        facts_.constants_move && instruction.opcode == "cvta" && instruction.Has("const");
    if (of_constant) instruction.modifiers = {"u64"}, instruction.opcode = "mov";
    if (facts_.constants_move && !of_constant) {
      std::ranges::replace(instruction.modifiers, std::string("const"), std::string("global"));
    }
    const bool fits = instruction.modifiers.empty() ||
                      TypeBytes(instruction.modifiers.back()) == 8 || instruction.opcode == "call";
    if (replaced && !fits) {
      Reject(instruction.position, "address of a variable in less than 64 bits");
    }
  }

  bool NamesMoved(const Operand& operand) const {
    const bool moved = operand.kind == Operand::Kind::kName && facts_.moved.contains(operand.text);
    return moved || std::ranges::any_of(operand.elements,
                                        [this](const Operand& each) { return NamesMoved(each); });
  }

  bool ReplaceName(std::uint32_t k, Operand& operand, const Operand& named, bool is_whole) {
    bool replaced = false;
    for (std::size_t e = 0; e < operand.elements.size() && e < named.elements.size(); ++e) {
      replaced |= ReplaceName(k, operand.elements[e], named.elements[e], false);
    }
    if (operand.kind != Operand::Kind::kName) return replaced;
    if (const auto moved = facts_.moved.find(operand.text); moved != facts_.moved.end()) {
      operand = Name(code_.Sum(statements_[k], code_.Variables(),
                               static_cast<std::int64_t>(moved->second.offset) + operand.offset));
      return is_whole;
    }
    if (facts_.foreign.contains(operand.text)) {
      Reject(At(k).position, "variable '" + operand.text + "' of another module");
    }
    const FenceLocals::Place* local = locals_->Find(named.text);
    if (locals_->merges() && local != nullptr) {
      operand.text = locals_->array()->name;
      operand.offset += local->offset;
    }
    return replaced;
  }

  ModuleEditor& names_;
  FunctionEditor editor_;
  FenceCode code_;
  Function& function_;
  const FenceFacts& facts_;
  std::optional<ValueFlow> flow_;
  bool has_generic_parameter_ = false;
  // Whether a nested { } declares registers, so that a register's name may be ambiguous.
  bool has_scopes_ = false;
  std::string reason_;
  std::vector<std::size_t> statements_;  // Index of the statement of each flow instruction.

  // Variables in the body, by name.
  std::unordered_map<std::string_view, const Variable*> declared_;
  std::unordered_map<std::string_view, const Variable*> parameters_;  // Also those of calls.

  std::optional<FenceLocals> locals_;
  bool reads_locals_ = false;

  // Fenced addresses by key: those of the current block, and those that are valid in all blocks
  // dominated by the block that created them.
  std::map<Key, std::string> in_block_, in_dominated_;
  std::vector<std::vector<Key>> kept_;  // Keys of in_dominated_ for each block on the path.
};

}  // namespace

const Instruction* MakesGenericParameter(const Function& function) {
  for (const Statement& statement : *function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction != nullptr && IsGenericParameter(*instruction)) return instruction;
  }
  return nullptr;
}

std::string FenceFunction(ModuleEditor& names, Function& function, const FenceFacts& facts,
                          std::string& shared_begin) {
  return FunctionFence(names, function, facts).Run(shared_begin);
}

}  // namespace gpushared::ptx
