// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/vector_registers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "common/ptx/text/limits.h"

namespace gpushared::ptx {
namespace {

constexpr std::string_view kComponents = "xyzw";
constexpr std::string_view kColours = "rgba";

bool IsVector(const Variable& variable) {
  return variable.space == StateSpace::kRegister && variable.vector_size > 1 &&
         variable.vector_size <= kComponents.size();
}

bool HasVector(const std::vector<Variable>& variables) {
  return std::ranges::any_of(variables, IsVector);
}
bool HasVector(const Function& function) {
  if (HasVector(function.parameters) || HasVector(function.returns)) return true;
  return function.body && std::ranges::any_of(*function.body, [](const Statement& statement) {
           const auto* variable = std::get_if<Variable>(&statement);
           return variable != nullptr && IsVector(*variable);
         });
}

// For "%v12" of the family "%v", the family's name comes first, because the number must be last.
std::string ComponentName(std::string_view name, std::string_view number, std::size_t component) {
  std::string made = std::string(name) + "$gpushared_" + kComponents[component];
  if (!number.empty()) made += "_" + std::string(number);
  return made;
}

class Splitter {
 public:
  explicit Splitter(std::size_t& added) : added_(added) {}

  void Split(Function& function) {
    scopes_.emplace_back();
    SplitHead(function.returns);
    SplitHead(function.parameters);
    if (!function.body) return;
    std::vector<Statement> body = std::move(*function.body);
    function.body.emplace();
    for (Statement& statement : body) {
      if (std::holds_alternative<ScopeBegin>(statement)) scopes_.emplace_back();
      if (std::holds_alternative<ScopeEnd>(statement) && scopes_.size() > 1) scopes_.pop_back();
      if (auto* instruction = std::get_if<Instruction>(&statement)) {
        // In video instructions (v...) the suffix of a name selects a part of a single register.
        const std::string& opcode = instruction->opcode;
        const bool is_video = opcode.starts_with('v') && opcode != "vote";
        for (Operand& operand : instruction->operands) {
          if (!is_video) Replace(operand);
        }
      }
      if (const auto* variable = std::get_if<Variable>(&statement)) {
        Declare(*variable);
        if (IsVector(*variable)) {
          for (Variable& each : Components(*variable)) function.body->emplace_back(std::move(each));
          continue;
        }
      }
      function.body->push_back(std::move(statement));
    }
  }

 private:
  struct Declared {
    std::size_t size = 1;  // 1 for a name that is not a vector.
    std::uint32_t count = 0;
  };
  struct Found {
    std::size_t size = 1;
    std::string_view name, number;  // Number of a family member.
  };

  void Declare(const Variable& variable) {
    const std::size_t size = IsVector(variable) ? variable.vector_size : 1;
    scopes_.back()[variable.name] = {size, variable.register_count};
  }

  std::vector<Variable> Components(const Variable& vector) {
    std::vector<Variable> components;
    for (std::size_t i = 0; i < vector.vector_size; ++i) {
      Variable component = vector;
      component.vector_size = 1;
      component.name = ComponentName(vector.name, "", i);
      if (vector.register_count != 0) component.name += '_';
      components.push_back(std::move(component));
    }
    added_ += vector.vector_size;
    return components;
  }

  void SplitHead(std::vector<Variable>& variables) {
    std::vector<Variable> split;
    for (Variable& variable : variables) {
      Declare(variable);
      if (IsVector(variable)) {
        for (Variable& each : Components(variable)) split.push_back(std::move(each));
      } else {
        split.push_back(std::move(variable));
      }
    }
    variables = std::move(split);
  }

  // Returns the declaration of a name in the innermost scope.
  Found Find(std::string_view name) const {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    const std::string whole(name), stem(name.substr(0, digits));
    const std::string_view number = name.substr(digits);
    const bool is_member =
        !number.empty() && number.size() < 10 && (number.size() == 1 || number.front() != '0');
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto exact = scope->find(whole);
      if (exact != scope->end() && exact->second.count == 0) {
        return {.size = exact->second.size, .name = name, .number = {}};
      }
      if (!is_member) continue;
      const auto family = scope->find(stem);
      if (family != scope->end() && std::stoul(std::string(number)) < family->second.count) {
        return {.size = family->second.size, .name = name.substr(0, digits), .number = number};
      }
    }
    return {};
  }

  void Replace(Operand& operand) {
    for (Operand& element : operand.elements) Replace(element);
    if (operand.kind == Operand::Kind::kList) Flatten(operand);
    const bool is_address = operand.kind == Operand::Kind::kAddress;
    if (!is_address && operand.kind != Operand::Kind::kName) return;
    const std::size_t dot = std::min(operand.text.find('.'), operand.text.size());
    const std::string text = operand.text;
    const Found found = Find(std::string_view(text).substr(0, dot));
    if (found.size == 1) return;
    if (dot != text.size()) {
      const auto component = GetComponent(std::string_view(text).substr(dot + 1), found.size);
      if (component) operand.text = ComponentName(found.name, found.number, *component);
    } else if (!is_address) {
      Operand vector{.kind = Operand::Kind::kVector};
      for (std::size_t i = 0; i < found.size; ++i) {
        vector.elements.push_back(
            {.kind = Operand::Kind::kName, .text = ComponentName(found.name, found.number, i)});
      }
      added_ += found.size;
      operand = std::move(vector);
    }
  }

  static std::optional<std::size_t> GetComponent(std::string_view text, std::size_t size) {
    if (text.size() != 1) return std::nullopt;
    const std::size_t component = std::min(kComponents.find(text), kColours.find(text));
    return component < size ? std::optional(component) : std::nullopt;
  }

  // Expands the arguments of a call to match the parameters of its function.
  static void Flatten(Operand& list) {
    std::vector<Operand> flat;
    for (Operand& element : list.elements) {
      if (element.kind == Operand::Kind::kVector) {
        std::ranges::move(element.elements, std::back_inserter(flat));
      } else {
        flat.push_back(std::move(element));
      }
    }
    list.elements = std::move(flat);
  }

  std::vector<std::unordered_map<std::string, Declared>> scopes_;
  std::size_t& added_;
};

}  // namespace

Status SplitVectorRegisters(Module& module) {
  std::size_t added = 0;
  for (Item& item : module.items) {
    auto* function = std::get_if<Function>(&item);
    if (function == nullptr || !HasVector(*function)) continue;
    Splitter(added).Split(*function);
    // One operand may have become up to four components.
    if (added > kStatementsMax) {
      return {StatusCode::kLimitExceeded, "ptx: more than " + std::to_string(kStatementsMax) +
                                              " components of vectors of registers are named"};
    }
  }
  return {};
}

}  // namespace gpushared::ptx
