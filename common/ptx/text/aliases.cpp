// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/aliases.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "common/ptx/text/limits.h"

namespace gpushared::ptx {
namespace {

using Names = std::unordered_map<std::string_view, std::string_view>;  // Functions by alias.

bool IsBefore(const SourcePosition& a, const SourcePosition& b) {
  return a.line != b.line ? a.line < b.line : a.column < b.column;
}

bool IsAlike(const std::vector<Variable>& a, const std::vector<Variable>& b) {
  return std::ranges::equal(a, b, [](const Variable& x, const Variable& y) {
    return x.space == y.space && x.type == y.type && x.Bytes() == y.Bytes();
  });
}

bool IsPartOfName(char c) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return is_letter || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

// Replaces names in text that is stored verbatim.
void Rename(std::string& text, const Names& names) {
  std::string renamed;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && IsPartOfName(text[end])) ++end;
    const std::string_view word = std::string_view(text).substr(at, end - at);
    const auto found = names.find(word);
    renamed += found == names.end() ? word : found->second;
    if (end < text.size()) renamed += text[end++];
    at = end;
  }
  text = std::move(renamed);
}

void Rename(Operand& operand, const Names& names) {
  for (Operand& element : operand.elements) Rename(element, names);
  if (operand.kind != Operand::Kind::kName) return;
  if (const auto found = names.find(operand.text); found != names.end()) {
    operand.text = found->second;
  }
}

// Excludes names that the function declares.
Names WithoutOwn(const Function& function, Names names) {
  for (const auto* list : {&function.returns, &function.parameters}) {
    for (const Variable& variable : *list) names.erase(variable.name);
  }
  for (const Statement& statement : *function.body) {
    if (const auto* variable = std::get_if<Variable>(&statement)) names.erase(variable->name);
    if (const auto* label = std::get_if<Label>(&statement)) names.erase(label->name);
  }
  return names;
}

class Resolver {
 public:
  Resolver(Module& module, const std::vector<Alias>& aliases)
      : module_(module), aliases_(aliases) {}

  Status Run() {
    FindFunctions();
    for (const Alias& alias : aliases_) {
      if (std::string why = Add(alias); !why.empty()) {
        return {StatusCode::kInvalidArgument, "ptx: " + GetLine(alias.position) + why};
      }
    }
    for (Item& item : module_.items) {
      if (auto* function = std::get_if<Function>(&item)) RenameIn(*function);
      if (auto* variable = std::get_if<Variable>(&item); variable && variable->initializer) {
        Rename(*variable->initializer, names_);
      }
    }
    return GiveBodies();
  }

 private:
  struct Known {
    const Function* first = nullptr;  // First declaration in the text.
    const Function* defined = nullptr;
  };
  void FindFunctions() {
    for (const Item& item : module_.items) {
      const auto* function = std::get_if<Function>(&item);
      if (function == nullptr) continue;
      Known& known = functions_[function->name];
      if (known.first == nullptr) known.first = function;
      if (known.defined == nullptr && function->body) known.defined = function;
    }
  }

  // Returns the declarations of a function, if the first one precedes the alias in the module.
  Known Find(const std::string& name, const Alias& alias) const {
    const auto found = functions_.find(name);
    const bool is_before =
        found != functions_.end() && IsBefore(found->second.first->position, alias.position);
    return is_before ? found->second : Known();
  }

  // Records a valid alias and returns an empty string. Returns an error message for an invalid one.
  std::string Add(const Alias& alias) {
    const Known second = Find(alias.name, alias), of = Find(alias.function, alias);
    if (second.defined != nullptr) return "'" + alias.name + "' is a function, and no alias";
    if (second.first == nullptr || second.first->is_entry) {
      return "alias '" + alias.name + "' is not declared as a function before it";
    }
    if (of.defined == nullptr || of.defined->is_entry) {
      return "'" + alias.function + "' is no function that an alias can name";
    }
    if (!IsAlike(second.first->parameters, of.defined->parameters) ||
        !IsAlike(second.first->returns, of.defined->returns)) {
      return "alias '" + alias.name + "' has other parameters or results than '" + alias.function +
             "'";
    }
    if (!names_.emplace(alias.name, alias.function).second) {
      return "'" + alias.name + "' is declared as an alias twice";
    }
    return {};
  }

  void RenameIn(Function& function) const {
    if (!function.body) return;
    const Names names = WithoutOwn(function, names_);
    if (names.empty()) return;
    for (Statement& statement : *function.body) {
      if (auto* instruction = std::get_if<Instruction>(&statement)) {
        for (Operand& operand : instruction->operands) Rename(operand, names);
      } else if (auto* directive = std::get_if<Directive>(&statement)) {
        Rename(directive->text, names);
      } else if (auto* variable = std::get_if<Variable>(&statement);
                 variable && variable->initializer) {
        Rename(*variable->initializer, names);
      }
    }
  }

  Status GiveBodies() {
    std::size_t added = 0;
    for (Item& item : module_.items) {
      auto* function = std::get_if<Function>(&item);
      if (function == nullptr || function->body) continue;
      const auto name = names_.find(function->name);
      const bool is_seen = function->linkage == ".visible" || function->linkage == ".weak";
      if (name == names_.end() || !is_seen) continue;
      const Function& of = *functions_.at(name->second).defined;
      added += of.body->size();
      if (added > kStatementsMax) {
        return {StatusCode::kLimitExceeded, "ptx: functions with aliases have more than " +
                                                std::to_string(kStatementsMax) + " statements"};
      }
      function->returns = of.returns;
      function->parameters = of.parameters;
      function->body = of.body;
      names_.erase(name);  // A second declaration remains a declaration.
    }
    return {};
  }

  Module& module_;
  const std::vector<Alias>& aliases_;
  std::unordered_map<std::string_view, Known> functions_;
  Names names_;
};

}  // namespace

Status ResolveAliases(Module& module, const std::vector<Alias>& aliases) {
  return aliases.empty() ? Status() : Resolver(module, aliases).Run();
}

}  // namespace gpushared::ptx
