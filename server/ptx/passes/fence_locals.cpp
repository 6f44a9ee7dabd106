// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/fence_locals.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gpushared::ptx {
namespace {

// Additions between the array's address and what is asked for.
constexpr int kChainMax = 8;

}  // namespace

void FenceLocals::Merge(ModuleEditor& names, FunctionEditor& editor, std::uint32_t alignment) {
  std::uint64_t bytes = 0;
  std::vector<const Variable*> locals;
  for (const Variable& variable : flow_.flow.variables) {
    if (variable.space != StateSpace::kLocal || variable.linkage == ".extern") continue;
    const std::uint32_t own = std::max<std::uint32_t>(variable.NaturalAlignment(), 1);
    bytes = (bytes + own - 1) / own * own;
    places_[variable.name] = {.offset = static_cast<std::int64_t>(bytes),
                              .bytes = variable.Bytes()};
    bytes += variable.Bytes();
    alignment = std::max(alignment, own);
    locals.push_back(&variable);
  }
  if (locals.empty() || bytes == 0) return;
  const bool serves = locals.size() == 1 && locals[0]->name.find('@') == std::string::npos &&
                      locals[0]->NaturalAlignment() >= alignment;
  if (serves) {
    array_ = *locals[0];
    return;
  }
  Variable merged;
  merged.space = StateSpace::kLocal;
  merged.alignment = alignment;
  merged.type = "b8";
  merged.name = names.UniqueName("local");
  merged.extents = {(bytes + alignment - 1) / alignment * alignment};
  array_ = merged;
  merges_ = true;
  editor.InsertAtEntry(std::move(merged));
}

const FenceLocals::Place* FenceLocals::Find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> FenceLocals::OffsetIn(std::uint32_t r, std::uint32_t k) const {
  return OffsetIn(r, k, kChainMax);
}

std::optional<std::int64_t> FenceLocals::OffsetIn(std::uint32_t r, std::uint32_t k,
                                                  int chain) const {
  if (chain == 0 || !flow_.IsStable(r, k)) return std::nullopt;
  const std::uint32_t at = flow_.written_at[r];
  const Instruction& from = flow_.flow.instructions[at];
  const bool moves = from.opcode == "mov" && from.operands.size() == 2;
  const bool adds = from.opcode == "add" && from.operands.size() == 3 &&
                    from.operands[2].kind == Operand::Kind::kInteger;
  const bool is_64 = !from.modifiers.empty() && TypeBytes(from.modifiers.back()) == 8;
  if ((!moves && !adds) || from.guard || !is_64 || from.operands[1].kind != Operand::Kind::kName) {
    return std::nullopt;
  }
  const Operand& source = from.operands[1];
  std::optional<std::int64_t> start;
  if (const Place* local = Find(source.text); local != nullptr) {
    start = local->offset + source.offset;
  } else if (const std::uint32_t other = flow_.flow.FindRegister(source.text);
             other != kNoRegister && source.offset == 0) {
    start = OffsetIn(other, at, chain - 1);
  }
  if (!start) return std::nullopt;
  const std::int64_t sum = *start + (adds ? from.operands[2].integer : 0);
  constexpr std::int64_t kFarthest = std::int64_t{1} << 31;
  return sum > -kFarthest && sum < kFarthest ? std::optional(sum) : std::nullopt;
}

}  // namespace gpushared::ptx
