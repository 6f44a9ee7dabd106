// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/text/register_parameters.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/limits.h"
#include "common/ptx/text/written_module.h"

namespace gpushared::ptx {
namespace {

constexpr std::string_view kParameterName = "%gpushared_parameter";
constexpr std::string_view kResultName = "%gpushared_result";
constexpr std::string_view kArgumentName = "%gpushared_argument";
constexpr std::string_view kReturnedName = "%gpushared_returned";
constexpr std::string_view kPrototype = ".callprototype";
constexpr std::string_view kCallTargets = ".calltargets";

bool IsScalar(const Variable& variable) {
  const std::uint32_t bytes = TypeBytes(variable.type);
  return variable.vector_size == 1 && variable.extents.empty() &&
         (bytes == 4 || bytes == 8 || bytes == 16);
}

bool HasRegisters(const Function& function) {
  const auto in_register = [](const Variable& each) { return each.space == StateSpace::kRegister; };
  return std::ranges::any_of(function.parameters, in_register) ||
         std::ranges::any_of(function.returns, in_register);
}

std::string Numbered(std::string_view stem, std::size_t number) {
  return std::string(stem) + std::to_string(number);
}

// Names that refer to .param variables at the current statement of a function's body.
class ParameterNames {
 public:
  explicit ParameterNames(const Function& function) {
    scopes_.emplace_back();
    for (const auto* list : {&function.returns, &function.parameters}) {
      for (const Variable& variable : *list) Declare(variable);
    }
  }

  void Follow(const Statement& statement) {
    if (std::holds_alternative<ScopeBegin>(statement)) scopes_.emplace_back();
    if (std::holds_alternative<ScopeEnd>(statement) && scopes_.size() > 1) scopes_.pop_back();
    if (const auto* variable = std::get_if<Variable>(&statement)) Declare(*variable);
  }

  bool Has(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return found->second;
    }
    return false;
  }

 private:
  void Declare(const Variable& variable) {
    scopes_.back()[variable.name] = variable.space == StateSpace::kParameter;
  }

  std::vector<std::unordered_map<std::string, bool>> scopes_;
};

// Pointers to the lists of a call.
struct CallParts {
  Operand* results = nullptr;
  Operand* arguments = nullptr;
  const Operand* callee = nullptr;
  const Operand* prototype = nullptr;
};

CallParts GetParts(Instruction& call) {
  CallParts parts;
  for (Operand& operand : call.operands) {
    const bool is_list = operand.kind == Operand::Kind::kList;
    if (is_list && parts.callee == nullptr) {
      parts.results = &operand;
    } else if (is_list) {
      parts.arguments = &operand;
    } else if (parts.callee == nullptr) {
      parts.callee = &operand;
    } else {
      parts.prototype = &operand;
    }
  }
  return parts;
}

class Lowering {
 public:
  explicit Lowering(Module& module) : module_(module) {}

  Status Run() {
    FindFunctions();
    for (Item& item : module_.items) {
      auto* function = std::get_if<Function>(&item);
      if (function == nullptr) continue;
      const bool lowers = HasRegisters(*function) && known_.contains(function->name);
      if (function->body && (lowers || PassesRegisters(*function))) LowerBody(*function, lowers);
      if (added_ > kStatementsMax) {
        return {StatusCode::kLimitExceeded,
                "ptx: line " + std::to_string(function->position.line) + ": calls with more than " +
                    std::to_string(kStatementsMax) + " parameters in registers"};
      }
    }
    // The function heads are changed last, because bodies are lowered using the original types.
    for (Item& item : module_.items) {
      auto* function = std::get_if<Function>(&item);
      if (function != nullptr && known_.contains(function->name)) LowerHead(*function);
    }
    return {};
  }

 private:
  // Finds functions for which all registers can be lowered, in all of their declarations.
  void FindFunctions() {
    std::unordered_set<std::string_view> others;
    for (const Item& item : module_.items) {
      const auto* function = std::get_if<Function>(&item);
      if (function == nullptr || function->is_entry) continue;
      if (!CanLower(*function)) others.insert(function->name);
      Function& head = known_[function->name];
      head.returns = function->returns;
      head.parameters = function->parameters;
    }
    for (const std::string_view name : others) known_.erase(std::string(name));
  }

  static bool CanLower(const Function& function) {
    const auto can = [](const Variable& each) {
      return each.space != StateSpace::kRegister || IsScalar(each);
    };
    if (!std::ranges::all_of(function.parameters, can) ||
        !std::ranges::all_of(function.returns, can)) {
      return false;
    }
    if (!function.body || !HasRegisters(function)) return true;
    return std::ranges::none_of(*function.body, [&](const Statement& statement) {
      const auto* variable = std::get_if<Variable>(&statement);
      return variable != nullptr && std::ranges::find(function.returns, variable->name,
                                                      &Variable::name) != function.returns.end();
    });
  }

  // Whether a call in the body has anything but .param variables in its lists, or uses a prototype
  // with registers. May return true without need if names are declared twice.
  static bool PassesRegisters(Function& function) {
    const auto is_call = [](const Statement& statement) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      return instruction != nullptr && instruction->opcode == "call";
    };
    if (std::ranges::none_of(*function.body, is_call)) return false;
    std::unordered_set<std::string_view> parameters, others;
    bool has_prototype = false;
    for (const auto* list : {&function.returns, &function.parameters}) {
      for (const Variable& each : *list) Note(each, parameters, others);
    }
    for (const Statement& statement : *function.body) {
      if (const auto* variable = std::get_if<Variable>(&statement)) {
        Note(*variable, parameters, others);
      } else if (const auto* directive = std::get_if<Directive>(&statement)) {
        has_prototype |= IsPrototypeWithRegisters(*directive);
      }
    }
    if (has_prototype) return true;
    const auto is_register = [&](const Operand& each) {
      return each.kind != Operand::Kind::kName || !parameters.contains(each.text) ||
             others.contains(each.text);
    };
    return std::ranges::any_of(*function.body, [&](Statement& statement) {
      if (!is_call(statement)) return false;
      const CallParts parts = GetParts(std::get<Instruction>(statement));
      return (parts.results && std::ranges::any_of(parts.results->elements, is_register)) ||
             (parts.arguments && std::ranges::any_of(parts.arguments->elements, is_register));
    });
  }

  static void Note(const Variable& variable, std::unordered_set<std::string_view>& parameters,
                   std::unordered_set<std::string_view>& others) {
    (variable.space == StateSpace::kParameter ? parameters : others).insert(variable.name);
  }

  static bool IsPrototypeWithRegisters(const Directive& directive) {
    return directive.text.starts_with(kPrototype) &&
           directive.text.find(".reg") != std::string::npos;
  }

  static void LowerHead(Function& function) {
    const auto lower = [](std::vector<Variable>& variables, std::string_view stem) {
      for (std::size_t i = 0; i < variables.size(); ++i) {
        if (variables[i].space != StateSpace::kRegister) continue;
        variables[i].space = StateSpace::kParameter;
        variables[i].name = Numbered(stem, i);
      }
    };
    lower(function.parameters, kParameterName);
    lower(function.returns, kResultName);
  }

  void LowerBody(Function& function, bool lowers) {
    std::vector<Statement> body = std::move(*function.body);
    function.body.emplace();
    out_ = &*function.body;
    prototypes_.clear();
    position_ = function.position;
    if (lowers) LoadParameters(function);
    ParameterNames names(function);
    std::string label;
    bool has_returned = false;
    for (Statement& statement : body) {
      names.Follow(statement);
      has_returned = false;
      if (const auto* named = std::get_if<Label>(&statement)) label = named->name;
      if (auto* directive = std::get_if<Directive>(&statement)) RecordTargets(*directive, label);
      if (auto* instruction = std::get_if<Instruction>(&statement)) {
        position_ = instruction->position;
        if (instruction->opcode == "call") {
          LowerCall(*instruction, names);
          continue;
        }
        const bool returns = instruction->opcode == "ret";
        if (returns && lowers) StoreResults(function, instruction->guard);
        has_returned = returns && !instruction->guard;
      }
      out_->push_back(std::move(statement));
    }
    if (lowers && !has_returned) StoreResults(function, {});
  }

  void Add(std::string_view spelling, std::vector<Operand> operands,
           const std::optional<Guard>& guard) {
    Instruction made = Make(spelling, std::move(operands));
    made.position = position_;
    made.guard = guard;
    out_->emplace_back(std::move(made));
    ++added_;
  }

  void Declare(StateSpace space, const std::string& type, std::string name) {
    out_->emplace_back(
        Variable{.position = position_, .space = space, .type = type, .name = std::move(name)});
    ++added_;
  }

  void LoadParameters(const Function& function) {
    for (const Variable& result : function.returns) {
      if (result.space != StateSpace::kRegister) continue;
      Declare(StateSpace::kRegister, result.type, result.name);
    }
    for (std::size_t i = 0; i < function.parameters.size(); ++i) {
      const Variable& parameter = function.parameters[i];
      if (parameter.space != StateSpace::kRegister) continue;
      Declare(StateSpace::kRegister, parameter.type, parameter.name);
      Add("ld.param." + parameter.type,
          {Name(parameter.name), Address(Numbered(kParameterName, i))}, {});
    }
  }

  void StoreResults(const Function& function, const std::optional<Guard>& guard) {
    for (std::size_t i = 0; i < function.returns.size(); ++i) {
      const Variable& result = function.returns[i];
      if (result.space != StateSpace::kRegister) continue;
      Add("st.param." + result.type, {Address(Numbered(kResultName, i)), Name(result.name)}, guard);
    }
  }

  // Records which prototype or function the label names in indirect calls. Replaces .reg by .param
  // in the text of a prototype.
  void RecordTargets(Directive& directive, const std::string& label) {
    if (directive.text.starts_with(kPrototype)) {
      Result<Function> prototype = ParsePrototype(directive.text);
      if (!prototype || !CanLower(*prototype)) return;
      owned_.push_back(std::make_unique<Function>(*std::move(prototype)));
      prototypes_[label] = owned_.back().get();
      for (std::size_t at = directive.text.find(".reg"); at != std::string::npos;
           at = directive.text.find(".reg", at)) {
        directive.text.replace(at, 4, ".param");
      }
    } else if (directive.text.starts_with(kCallTargets)) {
      const std::size_t begin = directive.text.find_first_not_of(" \t\r\n", kCallTargets.size());
      if (begin == std::string::npos) return;
      const std::size_t end = directive.text.find_first_of(" ,;\t\r\n", begin);
      const auto found = known_.find(directive.text.substr(begin, end - begin));
      if (found != known_.end()) prototypes_[label] = &found->second;
    }
  }

  const Function* CalledBy(const CallParts& parts) const {
    if (parts.callee == nullptr) return nullptr;
    const auto function = known_.find(parts.callee->text);
    if (function != known_.end()) return &function->second;
    if (parts.prototype == nullptr) return nullptr;
    const auto prototype = prototypes_.find(parts.prototype->text);
    return prototype == prototypes_.end() ? nullptr : prototype->second;
  }

  void LowerCall(Instruction& call, const ParameterNames& names) {
    const CallParts parts = GetParts(call);
    const Function* const called = CalledBy(parts);
    const auto passes_any = [&](const Operand* list, const std::vector<Variable>& formal) {
      for (std::size_t i = 0; list != nullptr && i < formal.size(); ++i) {
        if (Passes(list->elements[i], formal[i], names)) return true;
      }
      return false;
    };
    const bool lowers = called != nullptr && Fits(parts.results, called->returns) &&
                        Fits(parts.arguments, called->parameters) &&
                        (passes_any(parts.results, called->returns) ||
                         passes_any(parts.arguments, called->parameters));
    if (!lowers) {
      out_->emplace_back(std::move(call));
      return;
    }
    const std::optional<Guard> guard = call.guard;
    std::vector<std::pair<std::size_t, Operand>> returned;  // Number and register.
    out_->emplace_back(ScopeBegin{position_});
    for (std::size_t i = 0; i < called->parameters.size(); ++i) {
      Operand& actual = parts.arguments->elements[i];
      const Variable& formal = called->parameters[i];
      if (!Passes(actual, formal, names)) continue;
      std::string name = Numbered(kArgumentName, i);
      Declare(StateSpace::kParameter, formal.type, name);
      Add("st.param." + formal.type, {Address(name), std::move(actual)}, guard);
      actual = Name(std::move(name));
    }
    for (std::size_t i = 0; i < called->returns.size(); ++i) {
      Operand& actual = parts.results->elements[i];
      const Variable& formal = called->returns[i];
      if (!Passes(actual, formal, names)) continue;
      std::string name = Numbered(kReturnedName, i);
      Declare(StateSpace::kParameter, formal.type, name);
      if (actual.text != "_") returned.emplace_back(i, std::move(actual));
      actual = Name(std::move(name));
    }
    out_->emplace_back(std::move(call));
    for (auto& [i, result] : returned) {
      Add("ld.param." + called->returns[i].type,
          {std::move(result), Address(Numbered(kReturnedName, i))}, guard);
    }
    out_->emplace_back(ScopeEnd{position_});
    added_ += 2;
  }

  static bool Fits(const Operand* list, const std::vector<Variable>& formal) {
    return (list == nullptr ? 0 : list->elements.size()) == formal.size();
  }

  // Whether the call passes a register or a number where the rest of this library requires .param.
  static bool Passes(const Operand& actual, const Variable& formal, const ParameterNames& names) {
    const bool is_name = actual.kind == Operand::Kind::kName;
    return IsScalar(formal) && !(is_name && names.Has(actual.text));
  }

  Module& module_;
  std::unordered_map<std::string, Function> known_;  // Original heads, by name.
  // Output for the current body.
  std::vector<Statement>* out_ = nullptr;
  SourcePosition position_;
  std::unordered_map<std::string, const Function*> prototypes_;  // By label.
  std::vector<std::unique_ptr<Function>> owned_;
  std::size_t added_ = 0;
};

}  // namespace

Status LowerRegisterParameters(Module& module) { return Lowering(module).Run(); }

}  // namespace gpushared::ptx
