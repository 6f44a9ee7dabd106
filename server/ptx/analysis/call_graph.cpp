// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/call_graph.h"

#include <algorithm>
#include <cctype>
#include <unordered_set>
#include <utility>

namespace gpushared::ptx {

std::string_view CalleeName(const Instruction& call) {
  // call (results), callee, (arguments): the callee is the first name outside of lists.
  const auto callee = std::ranges::find(call.operands, Operand::Kind::kName, &Operand::kind);
  return callee == call.operands.end() ? std::string_view() : std::string_view(callee->text);
}

namespace {

// Collects the functions that the module names without calling them.
class AddressScan {
 public:
  explicit AddressScan(const Module& module) {
    for (const Item& item : module.items) {
      const auto* function = std::get_if<Function>(&item);
      if (function == nullptr || !function->body || function->is_entry) continue;
      if (names_.emplace(function->name, functions_.size()).second) functions_.push_back(function);
    }
    is_taken_.resize(functions_.size());
  }

  void Scan(const Instruction& instruction) {
    bool callee = instruction.opcode == "call";
    for (const Operand& operand : instruction.operands) {
      // The first name outside of lists is the callee.
      if (callee && operand.kind == Operand::Kind::kName) {
        callee = false;
      } else {
        Scan(operand);
      }
    }
  }

  void Scan(std::string_view initializer) {
    const auto in_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%';
    };
    for (std::size_t at = 0; at < initializer.size();) {
      std::size_t end = at;
      while (end < initializer.size() && in_name(initializer[end])) ++end;
      Note(initializer.substr(at, end - at));
      at = end + 1;
    }
  }

  std::vector<const Function*> Taken() const {
    std::vector<const Function*> taken;
    for (std::size_t i = 0; i < functions_.size(); ++i) {
      if (is_taken_[i]) taken.push_back(functions_[i]);
    }
    return taken;
  }

 private:
  void Scan(const Operand& operand) {
    for (const Operand& element : operand.elements) Scan(element);
    Note(operand.text);
  }
  void Note(std::string_view name) {
    const auto found = names_.find(name);
    if (found != names_.end()) is_taken_[found->second] = true;
  }

  std::unordered_map<std::string_view, std::size_t> names_;
  std::vector<const Function*> functions_;
  std::vector<bool> is_taken_;
};

}  // namespace

std::vector<const Function*> FunctionsWithAddressTaken(const Module& module) {
  AddressScan scan(module);
  for (const Item& item : module.items) {
    if (const auto* variable = std::get_if<Variable>(&item)) {
      if (variable->initializer) scan.Scan(*variable->initializer);
    } else if (const auto* function = std::get_if<Function>(&item); function && function->body) {
      for (const Statement& statement : *function->body) {
        const auto* instruction = std::get_if<Instruction>(&statement);
        if (instruction != nullptr) scan.Scan(*instruction);
      }
    }
  }
  return scan.Taken();
}

CallGraph::CallGraph(const Module& module) {
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr) continue;
    const auto [known, is_new] = declared_.emplace(function->name, function);
    if (!is_new && !known->second->body) known->second = function;
  }
  bool calls_any = false;
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
      calls_any |= call.kind == Call::Kind::kIndirect;
      calls.push_back(std::move(call));
    }
  }
  if (calls_any) address_taken_ = FunctionsWithAddressTaken(module);
}

const std::vector<Call>& CallGraph::GetCalls(const Function& function) const {
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
    for (const Call& call : GetCalls(*reached[i])) {
      if (call.kind == Call::Kind::kBody) reach(declared_.at(call.name));
      if (call.kind != Call::Kind::kIndirect || reaches_all) continue;
      for (const Function* any : address_taken_) reach(any);
      reaches_all = true;
    }
  }
  return reached;
}

}  // namespace gpushared::ptx
