// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/passes/fence.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "common/ptx/text/editor.h"
#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/analysis/features.h"
#include "server/ptx/analysis/kernel_scan.h"
#include "server/ptx/analysis/memory_access.h"
#include "server/ptx/analysis/plain_names.h"
#include "server/ptx/passes/contain_function.h"
#include "server/ptx/passes/contain_work.h"
#include "server/ptx/passes/fence_function.h"
#include "server/ptx/passes/fence_residue.h"

namespace gpushared::ptx {
namespace {

// ---- text that passes do not parse

constexpr auto kOfFunctions = std::to_array<std::string_view>(
    {".blocksareclusters", ".explicitcluster", ".maxclusterrank", ".maxnctapersm", ".maxnreg",
     ".maxntid", ".minnctapersm", ".reqnctapercluster", ".reqntid"});
constexpr auto kOfBodies =
    std::to_array<std::string_view>({".branchtargets", ".callprototype", ".calltargets"});
constexpr auto kDispensable = std::to_array<std::string_view>(
    {".abi_preserve", ".abi_preserve_control", ".noreturn", ".pragma"});

// Returns ".maxntid" for ".maxntid 256, 1, 1".
std::string_view GetName(std::string_view directive) {
  return directive.substr(0, directive.find_first_of(" \t\r\n;\"("));
}

template <typename List>
bool IsIn(const List& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

bool HasString(std::string_view text) { return text.find_first_of("\"\\") != text.npos; }

std::string Rejection(const SourcePosition& position, std::string_view what) {
  return "line " + std::to_string(position.line) + ": " + std::string(what);
}

bool HasString(const Variable& variable) {
  return HasString(variable.attributes) ||
         (variable.initializer && HasString(*variable.initializer));
}

// Returns a variable whose text contains a string, or null.
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

// Whether the directive is a .pragma that is kept.
bool IsKnownPragma(std::string_view directive) {
  constexpr std::string_view kNoUnroll = "\"nounroll\"", kUsedBytes = "\"used_bytes_mask ";
  if (GetName(directive) != ".pragma") return false;
  const std::size_t begin = directive.find('"'), end = directive.rfind('"');
  if (begin == std::string_view::npos || end == begin) return false;
  const std::string_view text = directive.substr(begin, end + 1 - begin);
  if (text == kNoUnroll) return true;
  return text.starts_with(kUsedBytes) &&
         text.find_first_not_of("0123456789abcdefABCDEFx", kUsedBytes.size()) == text.size() - 1;
}

// Returns the reason why a module's text outside of functions cannot be fenced ("line 12: ..."), or
// "". Strings are accepted in .pragma only, because two parsers might disagree about their end.
std::string WhyTextIsNotKnown(const Module& module) {
  if (HasString(module.version) || HasString(module.target)) return "line 1: string in .target";
  for (const Item& item : module.items) {
    if (const auto* directive = std::get_if<Directive>(&item)) {
      const std::string_view name = GetName(directive->text);
      if (name != ".pragma") {
        return Rejection(directive->position, "'" + std::string(name) + "' cannot be fenced");
      }
    } else if (const auto* function = std::get_if<Function>(&item)) {
      const Variable* variable = WithString(*function);
      const bool quoted = HasString(function->attributes) || variable != nullptr;
      if (quoted) return Rejection(function->position, "string in '" + function->name + "'");
    } else if (const auto* variable = std::get_if<Variable>(&item)) {
      if (HasString(*variable)) {
        return Rejection(variable->position, "string in '" + variable->name + "'");
      }
    }
  }
  return {};
}

// Removes directives that the compiler does not need: .pragma except "nounroll" and
// "used_bytes_mask" (others move registers to shared memory), .abi_preserve, and .noreturn of
// functions with a body, which might return. Returns the reason why another directive cannot be
// fenced, or "".
std::string KeepKnownDirectives(Function& function) {
  const auto reject = [](const Directive& directive) {
    return Rejection(directive.position,
                     "'" + std::string(GetName(directive.text)) + "' is not known");
  };
  const auto stays = [](const Directive& directive) {
    return !IsIn(kDispensable, GetName(directive.text)) || IsKnownPragma(directive.text);
  };
  std::erase_if(function.performance, [&](const Directive& each) { return !stays(each); });
  for (const Directive& directive : function.performance) {
    const bool known = IsKnownPragma(directive.text) ||
                       (IsIn(kOfFunctions, GetName(directive.text)) && !HasString(directive.text));
    if (!known) return reject(directive);
  }
  std::erase_if(*function.body, [&](const Statement& statement) {
    const auto* directive = std::get_if<Directive>(&statement);
    return directive != nullptr && !stays(*directive);
  });
  for (const Statement& statement : *function.body) {
    const auto* directive = std::get_if<Directive>(&statement);
    if (directive == nullptr) continue;
    const bool known = IsKnownPragma(directive->text) ||
                       (IsIn(kOfBodies, GetName(directive->text)) && !HasString(directive->text));
    if (!known) return reject(*directive);
  }
  return {};
}

// ---- the module

// Prefix of names that are reserved for the server.
constexpr std::string_view kOwnPrefix = "__gs0_";
constexpr std::uint64_t kWordBytes = std::uint64_t{1} << 32;

constexpr std::array<Feature, 9> kNotFenced = {
    Feature::kGridSynchronisation, Feature::kTextures,        Feature::kClusters,
    Feature::kDynamicParallelism,  Feature::kDeviceHeap,      Feature::kPrint,
    Feature::kIndirectCall,        Feature::kMissingFunction, Feature::kFunctionAddress};

bool IsMemory(const Variable& variable) {
  return variable.space == StateSpace::kGlobal || variable.space == StateSpace::kConstant;
}

// Whether the initializer contains a name, which represents an address.
bool NamesSomething(const std::string& initializer) {
  char before = ' ';
  for (const char c : initializer) {
    const bool begins_word = std::string_view(" \t\r\n,({").find(before) != std::string_view::npos;
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
    if (begins_word && letter) return true;
    before = c;
  }
  return false;
}

Variable GetConstant(std::string name) {
  Variable variable;
  variable.linkage = ".visible";
  variable.space = StateSpace::kConstant;
  variable.alignment = alignof(FenceConstant);
  variable.type = "b8";
  variable.name = std::move(name);
  variable.extents = {sizeof(FenceConstant)};
  return variable;
}

// Adds facts about a body. `constants` are the module's .const variables; `memory` are its .const
// and .global variables.
void RecordAddresses(const Function& function, const std::unordered_set<std::string>& constants,
                     const std::unordered_set<std::string>& memory, FenceFacts& facts) {
  for (const Statement& statement : *function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    for (const MemoryAccess& access : FindMemoryAccesses(*instruction).list) {
      // Constant memory has a small address window, which a masked address would miss. If a
      // constant is accessed other than by its name, constants therefore move to global memory.
      const std::string& base = instruction->operands[access.operand].text;
      facts.constants_move |= access.space == AccessSpace::kConstant && !constants.contains(base);
      facts.variables_escape |= access.stride && memory.contains(base);
    }
    ForEachOperand(*instruction, [&](const Operand& operand) {
      facts.variables_escape |=
          operand.kind == Operand::Kind::kName && memory.contains(operand.text);
    });
    if (instruction->opcode != "cvta" || instruction->Has("to")) continue;
    facts.has_generic_shared |= instruction->Has("shared") || instruction->Has("shared::cta");
    facts.has_generic_local |= instruction->Has("local");
    facts.constants_move |= instruction->Has("const");
  }
}

// Returns the maximum number of bytes of shared memory that an instruction of the body accesses, at
// least 1 if any may access it; otherwise 0.
std::uint32_t WidestShared(const Function& function, const FenceFacts& facts) {
  std::uint32_t widest = 0;
  for (const Statement& statement : *function.body) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) continue;
    for (const MemoryAccess& access : FindMemoryAccesses(*instruction).list) {
      const bool generic =
          access.space == AccessSpace::kGeneric && facts.has_generic_shared && access.takes_shared;
      const bool reaches = generic || access.space == AccessSpace::kShared;
      if (reaches) widest = std::max({widest, access.bytes, 1U});
    }
  }
  return widest;
}

// Whether the function may read through a generic address that its caller passes.
bool LoadsGenerically(const Function& function) {
  return std::ranges::any_of(*function.body, [](const Statement& statement) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    if (instruction == nullptr) return false;
    return std::ranges::any_of(
        FindMemoryAccesses(*instruction).list, [](const MemoryAccess& access) {
          return access.space == AccessSpace::kGeneric && access.takes_parameter;
        });
  });
}

class ModuleFence {
 public:
  ModuleFence(const Module& module, std::uint64_t range_bytes, bool contains)
      : source_(module),
        range_bytes_(range_bytes),
        result_{.module = module, .kernels = {}, .constant = {}, .variables = {}, .places = {}},
        names_(result_.module),
        calls_(module),
        plain_names_(module) {
    facts_.contains = contains;
    facts_.mask_high = static_cast<std::uint32_t>((range_bytes - 1) / kWordBytes);
    facts_.constant = names_.HiddenName("fence");
    facts_.dynamic_shared = names_.HiddenName("dynamic");
  }

  Result<Fenced> Run() {
    if (Status checked = Check(); !checked.ok()) return checked;
    if (Status moved = MoveVariables(); !moved.ok()) return moved;
    std::size_t reason_bytes_left = kReasonBytesMax;
    for (const Item& item : source_.items) {
      const auto* kernel = std::get_if<Function>(&item);
      if (kernel == nullptr || !kernel->is_entry || !kernel->body) continue;
      result_.kernels.push_back(
          {.kernel = kernel->name, .reason = KeptReason(FenceKernel(*kernel), reason_bytes_left)});
    }
    Assemble();
    return std::move(result_);
  }

 private:
  static Status Reject(const std::string& why) {
    return {StatusCode::kInvalidArgument, "ptx: " + why};
  }

  Status Check() const {
    if (range_bytes_ < kFenceRangeBytesMin || !std::has_single_bit(range_bytes_)) {
      return Reject("invalid range size of " + std::to_string(range_bytes_) + " bytes");
    }
    if (source_.address_bits != 64) return Reject("the module has addresses of 32 bits");
    if (names_.HiddenName("") != kOwnPrefix) {
      return Reject("the module has names with prefix '" + std::string(kOwnPrefix) +
                    "', which is reserved for the server");
    }
    for (const std::string& why : {plain_names_.reason(), WhyTextIsNotKnown(source_)}) {
      if (!why.empty()) return Reject(why);
    }
    return {};
  }

  // Moves .global variables, and if necessary .const ones, to the client's range, because masked
  // addresses are always in it.
  Status MoveVariables() {
    std::unordered_set<std::string> constants, memory;
    for (const Item& item : source_.items) {
      const auto* variable = std::get_if<Variable>(&item);
      if (variable == nullptr) continue;
      if (IsMemory(*variable)) memory.insert(variable->name);
      if (variable->space == StateSpace::kConstant) constants.insert(variable->name);
      if (variable->space == StateSpace::kShared) shared_[variable->name] = variable;
      if (variable->space == StateSpace::kShared && !variable->IsElsewhere()) {
        facts_.shared[variable->name] = {.bytes = variable->Bytes(),
                                         .alignment = variable->NaturalAlignment()};
      }
    }
    for (const Item& item : source_.items) {
      if (const auto* function = std::get_if<Function>(&item)) {
        if (function->body) RecordAddresses(*function, constants, memory, facts_);
      } else if (const auto* variable = std::get_if<Variable>(&item)) {
        const bool holds_address = variable->initializer && NamesSomething(*variable->initializer);
        // A constant that contains an address also makes constants move, because only the server
        // has the address of a moved variable and can write it into the constant.
        facts_.constants_move |= variable->space == StateSpace::kConstant && holds_address;
        facts_.variables_escape |= holds_address;
      }
    }
    Module moved = source_;
    std::erase_if(moved.items, [this](const Item& item) {
      const auto* variable = std::get_if<Variable>(&item);
      return variable != nullptr && !Moves(*variable);
    });
    Result<ModuleLayout> layout = LayOutModule(moved);
    if (!layout) return layout.status();
    result_.variables = *std::move(layout);
    facts_.variables_alignment = result_.variables.alignment;
    facts_.variables_bytes = result_.variables.bytes;
    for (const VariablePlacement& variable : result_.variables.variables) {
      facts_.moved.emplace(variable.name, variable);
    }
    for (const Item& item : source_.items) {
      const auto* variable = std::get_if<Variable>(&item);
      if (variable == nullptr || !IsMemory(*variable) || Moves(*variable)) continue;
      if (variable->linkage == ".extern") {
        facts_.foreign.insert(variable->name);
      } else {
        facts_.constants.emplace(variable->name, variable->Bytes());
      }
    }
    return {};
  }

  bool Moves(const Variable& variable) const {
    if (!IsMemory(variable) || variable.linkage == ".extern") return false;
    return variable.space == StateSpace::kGlobal || facts_.constants_move;
  }

  // Returns the reason why the kernel cannot be fenced, or "".
  std::string FenceKernel(const Function& kernel) {
    const Result<std::vector<Finding>> findings = scanner_.Scan(kernel);
    if (!findings) return std::string(findings.status().message());
    for (const Finding& finding : *findings) {
      if (std::ranges::find(kNotFenced, finding.feature) != kNotFenced.end()) {
        return Describe(finding);
      }
    }
    const std::vector<const Function*> reachable = calls_.Reachable(kernel);
    if (facts_.contains) {
      std::string reason = WhyNotContained(calls_, reachable);
      if (!reason.empty()) return reason;
    }
    const Instruction* const generic_parameter = MakesGenericParameter(kernel);
    for (const Function* function : reachable) {
      if (function == &kernel) continue;
      if (generic_parameter != nullptr && LoadsGenerically(*function)) {
        return GetLine(generic_parameter->position) +
               "generic address of a parameter, and function '" + function->name +
               "' may read through it";
      }
      const std::string& reason = Form(*function).reason;
      if (!reason.empty()) return reason + " (in function '" + function->name + "')";
    }
    Made& form = Form(kernel);
    if (form.reason.empty()) GetZeroShared(form, reachable);
    if (form.reason.empty()) {
      for (const Function* function : reachable) kept_.insert(function);
    }
    return form.reason;
  }

  struct Made {
    Function function;
    std::string reason;
    std::string shared_begin;  // See FenceFunction.
  };

  // Returns the fenced form of a function, which is created once.
  Made& Form(const Function& function) {
    const auto [found, is_new] = forms_.try_emplace(&function);
    if (is_new) {
      Made& made = found->second;
      made.function = function;
      made.reason = plain_names_.WhyNot(function);
      if (made.reason.empty()) made.reason = KeepKnownDirectives(made.function);
      if (made.reason.empty())
        made.reason = FenceFunction(names_, made.function, facts_, made.shared_begin);
      if (facts_.contains && made.reason.empty()) {
        made.reason = ContainFunction(names_, made.function, facts_.constant, result_.places, work_,
                                      work_.HasLoops(function));
      }
    }
    return found->second;
  }

  void GetZeroShared(Made& form, const std::vector<const Function*>& reachable) {
    std::uint32_t widest = 0;
    for (const Function* function : reachable) {
      widest = std::max(widest, WidestShared(*function, facts_));
    }
    if (widest == 0) return;
    std::unordered_set<std::string_view> named;
    for (const Function* function : reachable) {
      for (const Statement& statement : *function->body) {
        const auto* instruction = std::get_if<Instruction>(&statement);
        if (instruction == nullptr) continue;
        ForEachOperand(*instruction, [&](const Operand& operand) { named.insert(operand.text); });
      }
    }
    std::vector<std::string> shared;
    std::uint64_t bytes = 0;
    bool names_dynamic = false;
    const auto add = [&](const Variable& variable) {
      const bool zeroed = variable.space == StateSpace::kShared && variable.Bytes() > 0;
      if (zeroed) shared.push_back(variable.name);
      if (zeroed) bytes += variable.Bytes();
    };
    std::vector<const Variable*> of_module;
    for (const std::string_view name : named) {
      const auto found = shared_.find(name);
      if (found != shared_.end()) of_module.push_back(found->second);
    }
    std::ranges::sort(of_module);  // Restores source order.
    for (const Variable* variable : of_module) {
      add(*variable);
      names_dynamic |= variable->IsElsewhere();
    }
    for (const Statement& statement : *form.function.body) {
      if (const auto* variable = std::get_if<Variable>(&statement)) add(*variable);
    }
    if (facts_.contains && bytes < widest) {
      shared.push_back(SharedReserve().name);
      needs_reserve_ = true;
    }
    FunctionEditor editor(names_, form.function);
    ZeroShared(editor, shared, facts_.dynamic_shared, names_dynamic, form.shared_begin);
    editor.Apply();
    needs_dynamic_ = true;
  }

  // Variables of dynamic shared memory all start at the same address, which has the largest of
  // their alignments.
  Variable DynamicShared() const {
    Variable variable;
    variable.linkage = ".extern";
    variable.space = StateSpace::kShared;
    variable.alignment = kZeroedBytes;
    variable.type = "b8";
    variable.name = facts_.dynamic_shared;
    variable.extents = {0};
    return variable;
  }

  // Memory to which accesses are clamped in kernels with too little shared memory.
  Variable SharedReserve() const {
    Variable variable;
    variable.space = StateSpace::kShared;
    variable.alignment = kSharedReserveBytes;
    variable.type = "b8";
    variable.name = names_.HiddenName("room");
    variable.extents = {kSharedReserveBytes};
    return variable;
  }

  void Assemble() {
    std::vector<Item> items;
    std::unordered_set<std::string_view> kept_names;
    for (const Function* function : kept_) kept_names.insert(function->name);
    for (const Item& item : source_.items) {
      const auto* function = std::get_if<Function>(&item);
      const auto* variable = std::get_if<Variable>(&item);
      if (function != nullptr) {
        if (function->body && kept_.contains(function)) {
          items.emplace_back(std::move(forms_.at(function).function));
        } else if (!function->body && kept_names.contains(function->name)) {
          items.push_back(item);
        }
      } else if (variable == nullptr ? IsKnownPragma(std::get<Directive>(item).text)
                                     : variable->space == StateSpace::kShared ||
                                           facts_.constants.contains(variable->name)) {
        items.push_back(item);
        // Drops .extern, because the fence zeroes the variable as static shared memory, but the
        // compiler might treat it as dynamic.
        if (variable != nullptr && variable->linkage == ".extern" && !variable->IsElsewhere()) {
          std::get<Variable>(items.back()).linkage.clear();
        }
      }
    }
    result_.module.items = std::move(items);
    result_.constant = facts_.constant;
    if (needs_dynamic_) names_.AddVariable(DynamicShared());
    if (needs_reserve_) names_.AddVariable(SharedReserve());
    names_.AddVariable(GetConstant(facts_.constant));
  }

  const Module& source_;
  const std::uint64_t range_bytes_;
  Fenced result_;
  ModuleEditor names_;
  const CallGraph calls_;
  const PlainNames plain_names_;
  KernelScanner scanner_{source_, calls_};
  FunctionWork work_{calls_};
  FenceFacts facts_;
  std::unordered_map<const Function*, Made> forms_;
  std::unordered_set<const Function*> kept_;
  // Shared-memory variables of the module, by name.
  std::unordered_map<std::string_view, const Variable*> shared_;
  bool needs_dynamic_ = false;
  bool needs_reserve_ = false;
};

}  // namespace

FenceConstant MakeFenceConstant(std::uint64_t range_base, std::uint64_t variables) {
  return {.base_high = static_cast<std::uint32_t>(range_base / kWordBytes),
          .variables = variables,
          .control = 0,
          .host_words = 0};
}

Result<Fenced> Fence(const Module& module, std::uint64_t range_bytes) {
  return ModuleFence(module, range_bytes, false).Run();
}
Result<Fenced> Contain(const Module& module, std::uint64_t range_bytes) {
  return ModuleFence(module, range_bytes, true).Run();
}

}  // namespace gpushared::ptx
