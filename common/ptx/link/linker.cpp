// SPDX-License-Identifier: Apache-2.0
#include "common/ptx/link/linker.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "common/ptx/link/child_kernels.h"
#include "common/ptx/link/device_runtime.h"
#include "common/ptx/text/editor.h"
#include "common/ptx/text/module.h"
#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"

namespace gpushared::ptx {
namespace {

// Functions that every device defines.
constexpr std::array<std::string_view, 4> kOfTheDevice = {"vprintf", "malloc", "free",
                                                          "__assertfail"};

// Precedes the variables that represent kernels.
constexpr std::string_view kChildKernelHead = ".version 6.0\n.target sm_60\n.address_size 64\n";

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%';
}

// Returns `text` with every name in `names` replaced, except inside quotes.
std::string Renamed(std::string_view text,
                    const std::unordered_map<std::string, std::string>& names) {
  std::string result;
  bool is_quoted = false;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') is_quoted = !is_quoted;
    std::size_t end = at;
    while (end < text.size() && IsNameCharacter(text[end])) ++end;
    if (is_quoted || end == at) {
      result += text[at++];
      continue;
    }
    const auto found = names.find(std::string(text.substr(at, end - at)));
    result += found == names.end() ? text.substr(at, end - at) : std::string_view(found->second);
    at = end;
  }
  return result;
}

// Renames the local names of a module wherever they are used.
class Renaming {
 public:
  explicit Renaming(std::unordered_map<std::string, std::string> names)
      : names_(std::move(names)) {}

  void Apply(Module& module) const {
    for (Item& item : module.items) {
      if (auto* variable = std::get_if<Variable>(&item)) Change(variable->name, names_);
      if (auto* function = std::get_if<Function>(&item)) Change(function->name, names_);
    }
    ApplyToUses(module);
  }

  // Like Apply, but leaves the names of the definitions themselves unchanged.
  void ApplyToUses(Module& module) const {
    if (names_.empty()) return;
    for (Item& item : module.items) {
      if (auto* variable = std::get_if<Variable>(&item)) {
        if (variable->initializer) variable->initializer = Renamed(*variable->initializer, names_);
      } else if (auto* function = std::get_if<Function>(&item)) {
        if (function->body) Apply(*function);
      }
    }
  }

 private:
  using Names = std::unordered_map<std::string, std::string>;

  static void Change(std::string& name, const Names& names) {
    const auto found = names.find(name);
    if (found != names.end()) name = found->second;
  }

  // A declaration in a function is assumed to hide the module's name in the whole function. (PTX
  // allows a declaration that hides the name in an inner scope only, but no compiler writes this.)
  void Apply(Function& function) const {
    Names names = names_;
    for (const auto* list : {&function.returns, &function.parameters}) {
      for (const Variable& variable : *list) names.erase(variable.name);
    }
    for (const Statement& statement : *function.body) {
      if (const auto* variable = std::get_if<Variable>(&statement)) names.erase(variable->name);
      if (const auto* label = std::get_if<Label>(&statement)) names.erase(label->name);
    }
    if (names.empty()) return;
    for (Statement& statement : *function.body) {
      if (auto* instruction = std::get_if<Instruction>(&statement)) {
        ForEachOperand(*instruction, [&](Operand& operand) { Change(operand.text, names); });
      } else if (auto* directive = std::get_if<Directive>(&statement)) {
        directive->text = Renamed(directive->text, names);
      } else if (auto* variable = std::get_if<Variable>(&statement)) {
        if (variable->initializer) variable->initializer = Renamed(*variable->initializer, names);
      }
    }
  }

  const Names names_;
};

// Precedence of a definition over others of its name.
enum class Strength : std::uint8_t { kExtern, kCommon, kWeak, kStrong };

Strength GetStrength(const std::string& linkage, bool is_definition) {
  if (!is_definition || linkage == ".extern") return Strength::kExtern;
  if (linkage == ".common") return Strength::kCommon;
  return linkage == ".weak" ? Strength::kWeak : Strength::kStrong;
}

class Linker {
 public:
  Linker(std::span<const LinkInput> inputs, unsigned registers_most)
      : inputs_(inputs), registers_most_(registers_most) {}

  Result<std::string> Run() {
    if (Status parsed = ParseAll(); !parsed.ok()) return parsed;
    TakeVersions();
    RenameLocals();
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      if (Status taken = TakeSymbols(i); !taken.ok()) return taken;
    }
    if (Status defined = AddDeviceRuntime(); !defined.ok()) return defined;
    if (Status defined = AddChildKernels(); !defined.ok()) return defined;
    if (Status resolved = CheckResolved(); !resolved.ok()) return resolved;
    return Print(Merged());
  }

 private:
  struct Symbol {
    Strength strength = Strength::kExtern;
    std::size_t input = 0;
    bool is_function = false;
    bool is_dynamic_shared = false;
    std::size_t item = 0;  // Index in the module.
    std::uint64_t bytes = 0;
    std::uint32_t alignment = 0;  // Largest alignment of all definitions of this name.
  };

  static Status Reject(std::string_view input, const std::string& why) {
    return {StatusCode::kInvalidArgument, "link rejected: " + std::string(input) + ": " + why};
  }
  std::string_view GetName(std::size_t input) const {
    return input < inputs_.size() ? inputs_[input].name : "the device runtime";
  }

  Status ParseAll() {
    if (inputs_.empty() || inputs_.size() > kLinkInputsMax) {
      return {StatusCode::kLimitExceeded, "link rejected: " + std::to_string(inputs_.size()) +
                                              " inputs, allowed: 1 to " +
                                              std::to_string(kLinkInputsMax)};
    }
    std::size_t bytes = 0;
    for (const LinkInput& input : inputs_) {
      bytes += input.text.size();
      if (bytes > kTextBytesMax) {
        return {StatusCode::kLimitExceeded, "link rejected: the inputs have more than " +
                                                std::to_string(kTextBytesMax) + " bytes together"};
      }
      Result<Module> module = Parse(input.text);
      if (!module) {
        return {module.status().code(),
                "link rejected: " + std::string(input.name) + ": " + module.status().message()};
      }
      if (module->address_bits != 64) return Reject(input.name, "its addresses have 32 bits");
      modules_.push_back(*std::move(module));
    }
    return {};
  }

  static std::pair<int, int> GetVersion(const Module& module) {
    const std::size_t dot = module.version.find('.');
    const auto number = [](std::string_view text) {
      int value = 0;
      for (const char c : text) {
        if (c < '0' || c > '9' || value > 1000) break;
        value = value * 10 + (c - '0');
      }
      return value;
    };
    return {number(module.version), dot == std::string::npos
                                        ? 0
                                        : number(std::string_view(module.version).substr(dot + 1))};
  }

  void TakeVersions() {
    const auto newest = std::ranges::max_element(modules_, {}, GetVersion);
    const auto target = std::ranges::max_element(modules_, {}, TargetArchitecture);
    merged_.version = newest->version;
    merged_.target = target->target;
    merged_.address_bits = 64;
  }

  static const std::string* GetName(const Item& item, std::string* linkage) {
    if (const auto* function = std::get_if<Function>(&item)) {
      // Kernels are looked up by name, regardless of their linkage.
      *linkage = function->is_entry ? ".visible" : function->linkage;
      return &function->name;
    }
    if (const auto* variable = std::get_if<Variable>(&item)) {
      *linkage = variable->linkage;
      return &variable->name;
    }
    return nullptr;
  }

  // A name without linkage that other modules use as well becomes name$1, name$2, ...
  void RenameLocals() {
    std::unordered_map<std::string, std::size_t> users;  // Number of modules that use the name.
    for (const Module& module : modules_) {
      std::unordered_set<std::string> seen;
      std::string linkage;
      for (const Item& item : module.items) {
        const std::string* const name = GetName(item, &linkage);
        if (name != nullptr && seen.insert(*name).second) ++users[*name];
      }
    }
    std::uint64_t number = 0;
    for (Module& module : modules_) {
      std::unordered_map<std::string, std::string> names;
      std::string linkage;
      for (const Item& item : module.items) {
        const std::string* const name = GetName(item, &linkage);
        if (name == nullptr || !linkage.empty() || users[*name] < 2 || names.contains(*name)) {
          continue;
        }
        std::string fresh;
        do {
          fresh = *name + "$" + std::to_string(++number);
        } while (users.contains(fresh));
        names.emplace(*name, std::move(fresh));
      }
      Renaming(std::move(names)).Apply(module);
    }
  }

  Status TakeSymbols(std::size_t input) {
    const Module& module = modules_[input];
    for (std::size_t i = 0; i < module.items.size(); ++i) {
      Symbol symbol{.input = input, .item = i};
      const std::string* name = nullptr;
      if (const auto* function = std::get_if<Function>(&module.items[i])) {
        name = &function->name;
        symbol.is_function = true;
        symbol.strength = GetStrength(function->linkage, function->body.has_value());
      } else if (const auto* variable = std::get_if<Variable>(&module.items[i])) {
        name = &variable->name;
        symbol.is_dynamic_shared =
            variable->space == StateSpace::kShared && variable->linkage == ".extern";
        symbol.strength = GetStrength(variable->linkage, true);
        symbol.bytes = variable->Bytes();
        symbol.alignment = variable->NaturalAlignment();
      } else {
        continue;
      }
      if (Status taken = Take(*name, symbol); !taken.ok()) return taken;
    }
    return {};
  }

  Status Take(const std::string& name, const Symbol& symbol) {
    const auto [found, is_new] = symbols_.emplace(name, symbol);
    if (is_new) return {};
    Symbol& before = found->second;
    if (before.is_function != symbol.is_function) {
      return Reject(GetName(symbol.input), "'" + name + "' is a function there and a variable in " +
                                               std::string(GetName(before.input)) +
                                               ", or the other way round");
    }
    if (before.strength == Strength::kStrong && symbol.strength == Strength::kStrong) {
      return Reject(GetName(symbol.input),
                    "'" + name + "' is defined there and in " + std::string(GetName(before.input)));
    }
    const std::uint32_t alignment = std::max(before.alignment, symbol.alignment);
    const bool is_larger = symbol.strength == Strength::kCommon &&
                           before.strength == Strength::kCommon && symbol.bytes > before.bytes;
    if (symbol.strength > before.strength || is_larger) before = symbol;
    before.alignment = alignment;
    return {};
  }

  // Whether one of these names is used, but not defined.
  bool IsWanted(std::span<const std::string_view> names) const {
    return std::ranges::any_of(names, [&](std::string_view name) {
      const auto found = symbols_.find(std::string(name));
      return found != symbols_.end() && found->second.strength == Strength::kExtern;
    });
  }

  Status AddText(std::string_view text) {
    Result<Module> runtime = Parse(text);
    if (!runtime) return runtime.status();
    modules_.push_back(*std::move(runtime));
    return TakeSymbols(modules_.size() - 1);
  }

  Status AddDeviceRuntime() {
    return IsWanted(kDeviceRuntimeNames) ? AddText(kDeviceRuntime) : Status();
  }

  // Replaces a kernel's name used as a value by the variable that represents it.
  Status AddChildKernels() {
    if (!IsWanted(kChildKernelFunctions)) return {};
    std::unordered_map<std::string, std::string> names;
    std::string variables(kChildKernelHead);
    std::uint64_t parameter_bytes_max = 0;
    for (const Module& module : modules_) {
      for (const Item& item : module.items) {
        const auto* const kernel = std::get_if<Function>(&item);
        if (kernel == nullptr || !kernel->is_entry) continue;
        parameter_bytes_max =
            std::clamp(ParameterBytes(*kernel), parameter_bytes_max, kChildParameterBytesMax);
        const std::string name = std::string(kChildKernelPrefix) + kernel->name;
        if (!names.emplace(kernel->name, name).second) continue;
        variables += ".visible .global .align 8 .u64 " + name + ";\n";
      }
    }
    const Renaming renaming(std::move(names));
    for (Module& module : modules_) renaming.ApplyToUses(module);
    if (Status added = AddText(variables); !added.ok()) return added;
    return AddText(ChildKernelRuntime(parameter_bytes_max));
  }

  Status CheckResolved() const {
    // Names are checked in input order, so that the first undefined one is reported.
    std::string linkage;
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      for (const Item& item : modules_[i].items) {
        const std::string* const name = GetName(item, &linkage);
        if (name == nullptr) continue;
        const Symbol& symbol = symbols_.at(*name);
        const bool is_missing = symbol.strength == Strength::kExtern && !symbol.is_dynamic_shared &&
                                std::ranges::find(kOfTheDevice, *name) == kOfTheDevice.end();
        if (is_missing) return Reject(GetName(i), "undefined reference to '" + *name + "'");
      }
    }
    return {};
  }

  bool IsChosen(const std::string& name, std::size_t input, std::size_t item) const {
    const Symbol& symbol = symbols_.at(name);
    return symbol.input == input && symbol.item == item;
  }

  // Returns the linked module: directives, prototypes, variables and then function bodies, so that
  // each name is declared before it is used.
  Module Merged() {
    std::unordered_set<std::string> pragmas;
    for (Module& module : modules_) {
      for (Item& item : module.items) {
        auto* directive = std::get_if<Directive>(&item);
        if (directive == nullptr || !pragmas.insert(directive->text).second) continue;
        merged_.items.emplace_back(std::move(*directive));
      }
    }
    AddPrototypes();
    AddVariables();
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      for (std::size_t k = 0; k < modules_[i].items.size(); ++k) {
        auto* function = std::get_if<Function>(&modules_[i].items[k]);
        if (function == nullptr || !function->body || !IsChosen(function->name, i, k)) continue;
        if (function->is_entry && registers_most_ != 0) LimitRegisters(*function);
        merged_.items.emplace_back(std::move(*function));
      }
    }
    return std::move(merged_);
  }

  void LimitRegisters(Function& kernel) const {
    const bool has_limit = std::ranges::any_of(
        kernel.performance, [](const Directive& it) { return it.text.starts_with(".maxnreg"); });
    if (has_limit) return;
    kernel.performance.push_back(
        {.position = kernel.position, .text = ".maxnreg " + std::to_string(registers_most_)});
  }

  void AddPrototypes() {
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      for (std::size_t k = 0; k < modules_[i].items.size(); ++k) {
        const auto* function = std::get_if<Function>(&modules_[i].items[k]);
        if (function == nullptr || function->is_entry || !IsChosen(function->name, i, k)) continue;
        Function prototype = *function;
        prototype.body.reset();
        merged_.items.emplace_back(std::move(prototype));
      }
    }
  }

  // A variable is placed after those that its initializer names.
  void AddVariables() {
    std::vector<Variable*> chosen;
    std::unordered_map<std::string_view, std::size_t> number_of;
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      for (std::size_t k = 0; k < modules_[i].items.size(); ++k) {
        auto* variable = std::get_if<Variable>(&modules_[i].items[k]);
        if (variable == nullptr || !IsChosen(variable->name, i, k)) continue;
        variable->alignment = symbols_.at(variable->name).alignment;
        number_of.emplace(variable->name, chosen.size());
        chosen.push_back(variable);
      }
    }
    std::vector<bool> is_added(chosen.size(), false), is_open(chosen.size(), false);
    for (std::size_t first = 0; first < chosen.size(); ++first) {
      std::vector<std::size_t> path = {first};
      while (!path.empty()) {
        const std::size_t at = path.back();
        const std::size_t next = is_added[at] ? at : FirstMissing(*chosen[at], number_of, is_added);
        is_open[at] = true;
        // Cycles cannot be ordered; the parser of the text will report an error.
        if (next == kNone || next == at || is_open[next]) {
          if (!is_added[at]) merged_.items.emplace_back(*chosen[at]);
          is_added[at] = true;
          path.pop_back();
        } else {
          path.push_back(next);
        }
      }
    }
  }

  static constexpr std::size_t kNone = ~std::size_t{0};
  // Returns a variable that the initializer names and that has not been added yet.
  static std::size_t FirstMissing(
      const Variable& variable, const std::unordered_map<std::string_view, std::size_t>& number_of,
      const std::vector<bool>& is_added) {
    if (!variable.initializer) return kNone;
    const std::string_view text = *variable.initializer;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = at;
      while (end < text.size() && IsNameCharacter(text[end])) ++end;
      const auto found = number_of.find(text.substr(at, end - at));
      if (found != number_of.end() && !is_added[found->second]) return found->second;
      at = end + (end == at ? 1 : 0);
    }
    return kNone;
  }

  const std::span<const LinkInput> inputs_;
  const unsigned registers_most_;
  std::vector<Module> modules_;
  std::unordered_map<std::string, Symbol> symbols_;
  Module merged_;
};

}  // namespace

Result<std::string> Link(std::span<const LinkInput> inputs, unsigned registers_most) {
  return Linker(inputs, registers_most).Run();
}

}  // namespace gpushared::ptx
