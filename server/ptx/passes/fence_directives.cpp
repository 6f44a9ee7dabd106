// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/fence_directives.h"

#include <algorithm>
#include <array>
#include <variant>
#include <vector>

namespace gpushared::ptx {
namespace {

constexpr auto kOfFunctions = std::to_array<std::string_view>(
    {".blocksareclusters", ".explicitcluster", ".maxclusterrank", ".maxnctapersm", ".maxnreg",
     ".maxntid", ".minnctapersm", ".reqnctapercluster", ".reqntid"});
constexpr auto kOfBodies =
    std::to_array<std::string_view>({".branchtargets", ".callprototype", ".calltargets"});
constexpr auto kDispensable = std::to_array<std::string_view>(
    {".abi_preserve", ".abi_preserve_control", ".noreturn", ".pragma"});

// ".maxntid" of ".maxntid 256, 1, 1".
std::string_view NameOf(std::string_view directive) {
  return directive.substr(0, directive.find_first_of(" \t\r\n;\"("));
}

template <typename List>
bool IsIn(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

bool HasString(std::string_view text) { return text.find_first_of("\"\\") != text.npos; }

std::string Refusal(const SourcePosition& position, std::string_view what) {
  return "line " + std::to_string(position.line) + ": " + std::string(what);
}

bool HasString(const Variable& variable) {
  return HasString(variable.attributes) ||
         (variable.initializer && HasString(*variable.initializer));
}

// A variable whose text holds one; null when there is none.
const Variable* WithString(const Function& function) {
  for (const auto* list : {&function.returns, &function.parameters}) {
    const auto found = std::ranges::find_if(*list, [](const Variable& v) { return HasString(v); });
    if (found != list->end()) return &*found;
  }
  if (!function.body) return nullptr;
  for (const Statement& statement : *function.body) {
    const auto* variable = std::get_if<Variable>(&statement);
    if (variable != nullptr && HasString(*variable)) return variable;
  }
  return nullptr;
}

}  // namespace

bool IsKnownPragma(std::string_view directive) {
  constexpr std::string_view kNoUnroll = "\"nounroll\"", kUsedBytes = "\"used_bytes_mask ";
  if (NameOf(directive) != ".pragma") return false;
  const std::size_t begin = directive.find('"'), end = directive.rfind('"');
  if (begin == std::string_view::npos || end == begin) return false;
  const std::string_view text = directive.substr(begin, end + 1 - begin);
  if (text == kNoUnroll) return true;
  return text.starts_with(kUsedBytes) &&
         text.find_first_not_of("0123456789abcdefABCDEFx", kUsedBytes.size()) == text.size() - 1;
}

std::string WhyTextIsNotKnown(const Module& module) {
  if (HasString(module.version) || HasString(module.target)) return "line 1: string in .target";
  for (const Item& item : module.items) {
    if (const auto* directive = std::get_if<Directive>(&item)) {
      const std::string_view name = NameOf(directive->text);
      if (name != ".pragma") {
        return Refusal(directive->position, "'" + std::string(name) + "' cannot be fenced");
      }
    } else if (const auto* function = std::get_if<Function>(&item)) {
      const Variable* variable = WithString(*function);
      const bool quoted = HasString(function->attributes) || variable != nullptr;
      if (quoted) return Refusal(function->position, "string in '" + function->name + "'");
    } else if (const auto* variable = std::get_if<Variable>(&item)) {
      if (HasString(*variable)) {
        return Refusal(variable->position, "string in '" + variable->name + "'");
      }
    }
  }
  return {};
}

std::string KeepKnownDirectives(Function& function) {
  const auto refuse = [](const Directive& directive) {
    return Refusal(directive.position,
                   "'" + std::string(NameOf(directive.text)) + "' is not known");
  };
  const auto stays = [](const Directive& directive) {
    return !IsIn(kDispensable, NameOf(directive.text)) || IsKnownPragma(directive.text);
  };
  std::erase_if(function.performance, [&](const Directive& each) { return !stays(each); });
  for (const Directive& directive : function.performance) {
    const bool known = IsKnownPragma(directive.text) ||
                       (IsIn(kOfFunctions, NameOf(directive.text)) && !HasString(directive.text));
    if (!known) return refuse(directive);
  }
  std::erase_if(*function.body, [&](const Statement& statement) {
    const auto* directive = std::get_if<Directive>(&statement);
    return directive != nullptr && !stays(*directive);
  });
  for (const Statement& statement : *function.body) {
    const auto* directive = std::get_if<Directive>(&statement);
    if (directive == nullptr) continue;
    const bool known = IsKnownPragma(directive->text) ||
                       (IsIn(kOfBodies, NameOf(directive->text)) && !HasString(directive->text));
    if (!known) return refuse(*directive);
  }
  return {};
}

}  // namespace gpushared::ptx
