// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/call_graph.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace gpushared::ptx {

std::string_view CalleeName(const Instruction& call) {
  // call (results), callee, (arguments): the only name outside of lists that comes first.
  const auto callee = std::ranges::find(call.operands, Operand::Kind::kName, &Operand::kind);
  return callee == call.operands.end() ? std::string_view() : std::string_view(callee->text);
}

CallGraph::CallGraph(const Module& module) {
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr) continue;
    const auto [known, is_new] = declared_.emplace(function->name, function);
    if (!is_new && !known->second->body) known->second = function;
    if (function->body && !function->is_entry) functions_.push_back(function);
  }
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || !function->body) continue;
    std::vector<Call>& calls = calls_[function];
    std::unordered_set<std::string_view> seen;
    for (const Statement& statement : *function->body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr || instruction->opcode != "call") continue;
      const std::string_view name = CalleeName(*instruction);
      if (!seen.insert(name).second) continue;
      Call call{.kind = Call::Kind::kIndirect,
                .name = std::string(name),
                .line = instruction->position.line};
      if (const auto found = declared_.find(name); found != declared_.end()) {
        call.kind = found->second->body ? Call::Kind::kBody : Call::Kind::kMissing;
      }
      calls.push_back(std::move(call));
    }
  }
}

const std::vector<Call>& CallGraph::CallsOf(const Function& function) const {
  static const std::vector<Call> kNone;
  const auto found = calls_.find(&function);
  return found == calls_.end() ? kNone : found->second;
}

const Function* CallGraph::FindBody(std::string_view name) const {
  const auto found = declared_.find(name);
  return found != declared_.end() && found->second->body ? found->second : nullptr;
}

std::vector<const Function*> CallGraph::Reachable(const Function& function) const {
  std::vector<const Function*> reached = {&function};
  std::unordered_set<const Function*> known = {&function};
  const auto reach = [&](const Function* next) {
    if (known.insert(next).second) reached.push_back(next);
  };
  bool reaches_all = false;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const Call& call : CallsOf(*reached[i])) {
      if (call.kind == Call::Kind::kBody) reach(declared_.at(call.name));
      if (call.kind != Call::Kind::kIndirect || reaches_all) continue;
      for (const Function* any : functions_) reach(any);
      reaches_all = true;
    }
  }
  return reached;
}

}  // namespace gpushared::ptx
