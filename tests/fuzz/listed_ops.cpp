// SPDX-License-Identifier: Apache-2.0
// Replaces the executor's operations in programs that decode and verify code but never run it,
// because the operations are gcc's C++ (_Float16) and a fuzzer needs clang. Every requested
// operation exists; those of kManyForms (tests/executor/brief_run.h) also have their rules.
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "server/device/cpu/executor/op_table.h"

namespace gpushared::device::executor {
namespace {

struct Listed {
  std::map<std::string, std::uint32_t, std::less<>> numbers;
  std::deque<OpEntry> entries;
};

Listed& List() {
  static Listed list;
  return list;
}

using Rules = std::map<std::string, OpRule, std::less<>>;
const Rules& UnusualRules() {
  static const Rules rules = {
      {"atom.global.a64.cas.b128", kFifthRow},
      {"bfi.b32", kFifthRow},
      {"bra", OpRule(OpRule::kBranch)},
      {"bra.if", OpRule(OpRule::kSplit)},
      {"brx.idx", OpRule(OpRule::kIndexed)},
      {"call", OpRule(OpRule::kCall)},
      {"cp.async.a32", OpRule(OpRule::kAsyncCopy).Free(OpRule::kRow0)},
      {"end", OpRule(OpRule::kEnd)},
      {"ld.area", OpRule(OpRule::kArea)},
      {"ld.param.u32", OpRule(OpRule::kParameter, 4)},
      {"ld.param.u64", OpRule(OpRule::kParameter, 8)},
      {"ldmatrix.shared.a32", OpRule(OpRule::kMatrixMove).Free(OpRule::kC)},
      {"look", OpRule(OpRule::kCheckKill)},
      {"mma.f32.f16.f16", OpRule(OpRule::kMma)},
      {"return", OpRule(OpRule::kReturn)},
      {"selp.b32", kRows.Predicates(OpRule::kC)},
      {"setp.lt.u32", kSetsPredicates},
      {"st.area", OpRule(OpRule::kArea)},
      {"suld.2d", OpRule(OpRule::kSurface)},
      {"tex.3d.s32", kFifthRow},
      {"vote.ballot", OpRule(OpRule::kGroup, kReadsPredicate).Predicates(OpRule::kA)},
  };
  return rules;
}

// Names an operation and is never called.
Handler GetName(std::uint32_t number) {
  return reinterpret_cast<Handler>(std::uintptr_t{16} * (number + 1));
}

}  // namespace

Handler FindHandler(Flavour /*flavour*/, std::string_view key) {
  Listed& list = List();
  const auto number = static_cast<std::uint32_t>(list.entries.size());
  const auto [found, is_new] = list.numbers.try_emplace(std::string(key), number);
  const auto rule = UnusualRules().find(key);
  if (is_new) {
    list.entries.push_back(
        {found->first, GetName(number), rule == UnusualRules().end() ? kRows : rule->second});
  }
  return GetName(found->second);
}

const OpEntry* OpOfNumber(Flavour /*flavour*/, std::uint64_t number) {
  return number < List().entries.size() ? &List().entries[number] : nullptr;
}

std::uint32_t GetNumber(Flavour /*flavour*/, Handler handler) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(handler) / 16 - 1);
}

}  // namespace gpushared::device::executor
