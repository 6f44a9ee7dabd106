// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/contain_work.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "server/ptx/analysis/memory_access.h"
#include "server/ptx/passes/kernel_words.h"

namespace gpushared::ptx {
namespace {

// Worst case: the 32 lanes of a warp access different places.
constexpr std::uint32_t kMemoryWork = 32;
// Worst case: all lanes update the same word.
constexpr std::uint32_t kAtomicWork = 64;
constexpr std::uint32_t kFenceWork = 128;
constexpr std::uint32_t kSleepWork = 512;
// A division compiles to a routine of many instructions.
constexpr std::uint32_t kDivisionWork = 64;
// A GPU has few units for 64-bit floating point.
constexpr std::uint32_t kDoubleWork = 8;
constexpr std::uint32_t kCallWork = 32;
// Size of the stores with which the fence zeroes local memory.
constexpr std::uint64_t kLocalStoreBytes = 4;

constexpr std::array<std::string_view, 5> kDivisions = {"div", "rem", "sqrt", "rcp", "rsqrt"};

std::uint32_t VectorSize(const Instruction& instruction) {
  for (const std::uint32_t size : {2U, 4U, 8U}) {
    if (instruction.Has("v" + std::to_string(size))) return size;
  }
  return 1;
}

// Detects branches to earlier labels. Compares names regardless of scopes, so at worst it also
// reports forward branches.
class BackBranches {
 public:
  bool Add(const Statement& statement) {
    if (const auto* label = std::get_if<Label>(&statement)) labels_.insert(label->name);
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) return false;
    if (instruction->opcode == "brx") return true;
    if (instruction->opcode != "bra" || instruction->operands.empty()) return false;
    return labels_.contains(instruction->operands[0].text);
  }

 private:
  std::unordered_set<std::string_view> labels_;
};

}  // namespace

std::uint32_t GetWork(const Instruction& instruction) {
  const std::string_view opcode = instruction.opcode;
  if (opcode == "nanosleep") return kSleepWork;
  if (opcode == "membar" || opcode == "fence") return kFenceWork;
  if (opcode == "call") return kCallWork;
  if (opcode == "atom" || opcode == "red") return kAtomicWork * VectorSize(instruction);
  if (std::ranges::find(kDivisions, opcode) != kDivisions.end()) return kDivisionWork;
  if (opcode == "cp" || !FindMemoryAccesses(instruction).list.empty()) return kMemoryWork;
  return instruction.Has("f64") ? kDoubleWork : 1;
}

std::uint32_t FunctionWork::Of(const Instruction& instruction) {
  const std::uint32_t own = GetWork(instruction);
  const Function* callee =
      instruction.opcode == "call" ? calls_.FindBody(CalleeName(instruction)) : nullptr;
  return callee == nullptr ? own : own + Find(*callee).work;
}

// Processes callees first, using an explicit stack, because call chains may be long.
const FunctionWork::Known& FunctionWork::Find(const Function& function) {
  struct Step {
    const Function* function;
    std::size_t next = 0;
  };
  std::vector<Step> stack;
  if (known_.try_emplace(&function).second) stack.push_back({&function});
  while (!stack.empty()) {
    Step& step = stack.back();
    const std::vector<Call>& calls = calls_.GetCalls(*step.function);
    if (step.next == calls.size()) {
      known_[step.function] = Measure(*step.function);
      stack.pop_back();
      continue;
    }
    const Function* callee = calls_.FindBody(calls[step.next++].name);
    if (callee != nullptr && known_.try_emplace(callee).second) stack.push_back({callee});
  }
  return known_.at(&function);
}

FunctionWork::Known FunctionWork::Measure(const Function& function) const {
  BackBranches back;
  std::uint64_t work = 0;
  bool has_loops = false;
  for (const Statement& statement : *function.body) {
    has_loops |= back.Add(statement);
    if (const auto* variable = std::get_if<Variable>(&statement)) {
      if (variable->space == StateSpace::kLocal) {
        work += variable->Bytes() / kLocalStoreBytes * kMemoryWork;
      }
    }
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    work += GetWork(*instruction);
    if (instruction->opcode != "call") continue;
    const Function* callee = calls_.FindBody(CalleeName(*instruction));
    if (callee != nullptr) work += known_.at(callee).work;
  }
  // A function with more work checks for a stop within its body, at every multiple of kContainWork,
  // so its caller never counts more.
  work = std::min<std::uint64_t>(work, kContainWork) + (has_loops ? kReturnWork : 0);
  return {.has_loops = has_loops, .work = static_cast<std::uint32_t>(work)};
}

}  // namespace gpushared::ptx
