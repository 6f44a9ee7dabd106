// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/plain_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <variant>

#include "common/ptx/text/editor.h"
#include "server/ptx/analysis/control_flow.h"

namespace gpushared::ptx {
namespace {

// Special names of PTX ISA 9.0, chapter 10, without components such as ".x". Sorted.
constexpr auto kSpecialNames = std::to_array<std::string_view>({
    "%aggr_smem_size",
    "%clock",
    "%clock64",
    "%clock_hi",
    "%cluster_ctaid",
    "%cluster_ctarank",
    "%cluster_nctaid",
    "%cluster_nctarank",
    "%clusterid",
    "%ctaid",
    "%current_graph_exec",
    "%dynamic_smem_size",
    "%globaltimer",
    "%globaltimer_hi",
    "%globaltimer_lo",
    "%gridid",
    "%is_explicit_cluster",
    "%laneid",
    "%lanemask_eq",
    "%lanemask_ge",
    "%lanemask_gt",
    "%lanemask_le",
    "%lanemask_lt",
    "%nclusterid",
    "%nctaid",
    "%nsmid",
    "%ntid",
    "%nwarpid",
    "%reserved_smem_offset_begin",
    "%reserved_smem_offset_cap",
    "%reserved_smem_offset_end",
    "%smid",
    "%tid",
    "%total_smem_size",
    "%warpid",
    "WARP_SZ",
    "_",  // Ignored result.
});
static_assert(std::ranges::is_sorted(kSpecialNames));

struct SpecialFamily {
  std::string_view stem;
  std::uint32_t count;
};
constexpr std::array<SpecialFamily, 3> kSpecialFamilies = {
    {{"%envreg", 32}, {"%pm", 8}, {"%reserved_smem_offset_", 2}}};

constexpr auto kComponents = std::to_array<std::string_view>({"w", "x", "y", "z"});

// Selector of a video instruction: "h1", "b7654".
bool IsSelector(std::string_view text) {
  constexpr std::size_t kElementsMax = 4;
  return text.size() >= 2 && text.size() <= 1 + kElementsMax &&
         (text[0] == 'b' || text[0] == 'h') &&
         text.find_first_not_of("01234567", 1) == std::string_view::npos;
}

struct Numbered {
  std::string stem;
  std::uint32_t number = 0;
};
std::optional<Numbered> SplitNumber(std::string_view name) {
  std::string_view stem;
  std::uint64_t number = 0;
  if (!SplitFamily(name, stem, number)) return std::nullopt;
  return Numbered{std::string(stem), static_cast<std::uint32_t>(number)};
}

bool IsSpecial(std::string_view name) {
  if (std::ranges::binary_search(kSpecialNames, name)) return true;
  if (name.starts_with("%pm") && name.ends_with("_64")) name.remove_suffix(3);
  const std::optional<Numbered> numbered = SplitNumber(name);
  return numbered && std::ranges::any_of(kSpecialFamilies, [&](const SpecialFamily& family) {
           return family.stem == numbered->stem && numbered->number < family.count;
         });
}

bool HasSpecial(const std::string& stem) {
  return std::ranges::any_of(kSpecialFamilies,
                             [&](const SpecialFamily& family) { return family.stem == stem; }) ||
         stem == "%clock" || stem == "%pm";
}

// Returns the name before ".x", or `name` itself.
std::string_view WithoutComponent(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return name;
  const std::string_view component = name.substr(dot + 1);
  const bool known = std::ranges::binary_search(kComponents, component) || IsSelector(component);
  return known ? name.substr(0, dot) : name;
}

std::string At(const SourcePosition& position, std::string_view name, const std::string& what) {
  return "line " + std::to_string(position.line) + ": '" + std::string(name) + "' " + what;
}

// Reads a function in the order of its text.
class NameReader {
 public:
  NameReader(const DeclaredNames& module, const Function& function)
      : module_(module), function_(function) {}

  std::string Run() {
    FindLabels();
    for (const Variable& result : function_.returns) Declare(result);
    for (const Variable& parameter : function_.parameters) Declare(parameter);
    Enter();
    for (const Statement& statement : *function_.body) {
      if (!reason_.empty()) break;
      if (const auto* variable = std::get_if<Variable>(&statement)) {
        Declare(*variable);
      } else if (const auto* instruction = std::get_if<Instruction>(&statement)) {
        Check(*instruction);
      } else if (std::holds_alternative<ScopeBegin>(statement)) {
        Enter();
      } else if (std::holds_alternative<ScopeEnd>(statement)) {
        Leave();
      }
    }
    return std::move(reason_);
  }

 private:
  void Reject(const SourcePosition& position, std::string_view name, const std::string& what) {
    if (reason_.empty()) reason_ = At(position, name, what);
  }

  // Branches may go forward, so labels are visible from the start of their { }.
  void FindLabels() {
    labels_of_.emplace_back();
    std::vector<std::size_t> open = {0};
    for (const Statement& statement : *function_.body) {
      if (std::holds_alternative<ScopeBegin>(statement)) {
        open.push_back(labels_of_.size());
        labels_of_.emplace_back();
      } else if (std::holds_alternative<ScopeEnd>(statement)) {
        if (open.size() > 1) open.pop_back();
      } else if (const auto* label = std::get_if<Label>(&statement)) {
        labels_of_[open.back()].push_back(label);
        (void)labels_.Declare(label->name, DeclaredNames::Kind::kOther, 0);
      }
    }
  }

  void Enter() {
    for (const Label* label : labels_of_[next_scope_]) {
      const bool hides = module_.Has(label->name) || IsSpecial(label->name);
      if (hides || !open_labels_.insert(label->name).second) {
        Reject(label->position, label->name, "is a label and something else");
      }
    }
    scopes_.push_back({.labels = next_scope_, .mark = open_.Mark(), .instructions = instructions_});
    ++next_scope_;
  }

  void Leave() {
    if (scopes_.empty()) return;  // AnalyseControlFlow reports unbalanced braces.
    for (const Label* label : labels_of_[scopes_.back().labels]) open_labels_.erase(label->name);
    open_.ReturnTo(scopes_.back().mark);
    scopes_.pop_back();
  }

  void Declare(const Variable& variable) {
    const std::string& name = variable.name;
    bool hides = false;
    if (variable.register_count > 0) {
      // The names of %r1<5> are a subset of those of %r<20>.
      if (!name.empty() && name.back() >= '0' && name.back() <= '9') {
        Reject(variable.position, name,
               "is a register family whose name ends in a digit, so its registers are ambiguous");
      }
      hides = module_.HasAnyOf(name, variable.register_count) || HasSpecial(name) ||
              labels_.HasAnyOf(name, variable.register_count) ||
              !open_.DeclareFamily(name, variable.register_count, Depth());
    } else {
      const auto kind = variable.space == StateSpace::kRegister ? DeclaredNames::Kind::kRegister
                                                                : DeclaredNames::Kind::kOther;
      hides = module_.Has(name) || IsSpecial(name) || labels_.Has(name) ||
              (!open_.Declare(name, kind, Depth()) && !MayHide(name, kind));
    }
    if (hides) Reject(variable.position, name, "hides something of that name");
  }

  std::uint32_t Depth() const { return static_cast<std::uint32_t>(scopes_.size()); }

  // A register may hide a register of an outer scope if no instruction precedes it in its own
  // scope, because none can then have meant the outer register.
  bool MayHide(const std::string& name, DeclaredNames::Kind kind) const {
    const std::optional<DeclaredNames::Declaration> hidden = open_.Find(name);
    constexpr auto kRegister = DeclaredNames::Kind::kRegister;
    return kind == kRegister && hidden && hidden->kind == kRegister && hidden->depth > 0 &&
           hidden->depth < Depth() && scopes_.back().instructions == instructions_;
  }

  void Check(const Instruction& instruction) {
    ++instructions_;
    if (instruction.guard && !open_.HasRegister(instruction.guard->predicate)) {
      Reject(instruction.position, instruction.guard->predicate, "is no register");
    }
    ForEachOperand(instruction, [&](const Operand& operand) {
      const bool names =
          operand.kind == Operand::Kind::kName || operand.kind == Operand::Kind::kAddress;
      if (names && !Means(operand.text)) {
        Reject(instruction.position, operand.text, "is not declared here");
      }
    });
    const bool calls = instruction.opcode == "call";
    if (WritesFirstOperand(instruction)) CheckWritten(instruction, instruction.operands[0], calls);
    if (calls) CheckCall(instruction);
  }

  bool Means(std::string_view name) const {
    if (name.starts_with('-')) name.remove_prefix(1);
    const bool is_number = !name.empty() && name.front() >= '0' && name.front() <= '9';
    if (is_number || open_.Has(name) || module_.Has(name) || labels_.Has(name) || IsSpecial(name)) {
      return true;
    }
    const std::string_view whole = WithoutComponent(name);
    return open_.HasRegister(whole) || (whole.starts_with('%') && IsSpecial(whole));
  }

  void CheckWritten(const Instruction& instruction, const Operand& operand, bool of_call) {
    using OperandKind = Operand::Kind;
    const bool holds_more = operand.kind == OperandKind::kVector ||
                            operand.kind == OperandKind::kPair ||
                            operand.kind == OperandKind::kList;
    for (const Operand& element : operand.elements) CheckWritten(instruction, element, of_call);
    if (holds_more) return;
    const bool is_register = operand.kind == OperandKind::kName && operand.offset == 0 &&
                             (operand.text == "_" || open_.HasRegister(operand.text) ||
                              open_.HasRegister(WithoutComponent(operand.text)));
    // Results of calls are written to parameters declared in the body.
    const bool is_parameter =
        of_call && operand.kind == OperandKind::kName && open_.Has(operand.text);
    if (!is_register && !is_parameter) {
      Reject(instruction.position, operand.text, "is written and is no register");
    }
  }

  // call (results), name, (arguments): further operands would make it an indirect call.
  void CheckCall(const Instruction& call) {
    using OperandKind = Operand::Kind;
    const std::vector<Operand>& operands = call.operands;
    std::size_t at = !operands.empty() && operands[0].kind == OperandKind::kList ? 1 : 0;
    const bool named = at < operands.size() && operands[at].kind == OperandKind::kName &&
                       operands[at].offset == 0 && module_.Has(operands[at].text);
    at += 1;
    if (at < operands.size() && operands[at].kind == OperandKind::kList) at += 1;
    if (!named || at != operands.size()) {
      Reject(call.position, call.Spelling(),
             "does not consist of a function's name and its arguments");
    }
  }

  const DeclaredNames& module_;
  const Function& function_;
  DeclaredNames open_;    // Names of the function so far, without labels.
  DeclaredNames labels_;  // Labels of the whole function.
  std::vector<std::vector<const Label*>> labels_of_;  // By { }, in order of their beginning.
  std::unordered_set<std::string> open_labels_;
  struct Scope {
    std::size_t labels = 0;        // Index in labels_of_.
    std::size_t mark = 0;          // Mark of open_ at the scope's beginning.
    std::size_t instructions = 0;  // Number of instructions before the scope.
  };
  std::vector<Scope> scopes_;
  std::size_t next_scope_ = 0;
  std::size_t instructions_ = 0;  // Number of instructions so far.
  std::string reason_;
};

}  // namespace

bool DeclaredNames::Declare(const std::string& name, Kind kind, std::uint32_t depth) {
  if (Has(name)) return false;
  names_.emplace(name, Declaration{.kind = kind, .depth = depth});
  Change change{.name = name};
  if (const std::optional<Numbered> numbered = SplitNumber(name)) {
    std::uint32_t& lowest = lowest_[numbered->stem];
    change.lowest_before = lowest;
    lowest = lowest == 0 ? numbered->number + 1 : std::min(lowest, numbered->number + 1);
  }
  changes_.push_back(std::move(change));
  return true;
}

bool DeclaredNames::DeclareFamily(const std::string& stem, std::uint32_t count,
                                  std::uint32_t depth) {
  if (HasAnyOf(stem, count)) return false;
  families_.emplace(stem, Family{.count = count, .depth = depth});
  changes_.push_back({.name = stem, .is_family = true});
  return true;
}

std::optional<DeclaredNames::Declaration> DeclaredNames::Find(std::string_view name) const {
  if (const auto exact = names_.find(std::string(name)); exact != names_.end()) {
    return exact->second;
  }
  const std::optional<Numbered> numbered = SplitNumber(name);
  if (!numbered) return std::nullopt;
  const auto family = families_.find(numbered->stem);
  if (family == families_.end() || numbered->number >= family->second.count) return std::nullopt;
  return Declaration{.kind = Kind::kRegister, .depth = family->second.depth};
}

bool DeclaredNames::HasRegister(std::string_view name) const {
  const std::optional<Declaration> found = Find(name);
  return found && found->kind == Kind::kRegister;
}

bool DeclaredNames::HasAnyOf(const std::string& stem, std::uint32_t count) const {
  const auto lowest = lowest_.find(stem);
  return families_.contains(stem) ||
         (lowest != lowest_.end() && lowest->second != 0 && lowest->second <= count);
}

void DeclaredNames::ReturnTo(std::size_t mark) {
  for (; changes_.size() > mark; changes_.pop_back()) {
    const Change& change = changes_.back();
    if (change.is_family) {
      families_.erase(change.name);
      continue;
    }
    names_.erase(change.name);
    const std::optional<Numbered> numbered = SplitNumber(change.name);
    if (numbered) lowest_[numbered->stem] = change.lowest_before;
  }
}

PlainNames::PlainNames(const Module& module) {
  std::unordered_set<std::string_view> functions, bodies;
  const auto take = [&](const SourcePosition& position, const std::string& name, bool is_free) {
    const bool plain =
        is_free && !IsSpecial(name) &&
        (functions.contains(name) || module_.Declare(name, DeclaredNames::Kind::kOther, 0));
    if (!plain && reason_.empty()) reason_ = At(position, name, "is declared twice");
  };
  for (const Item& item : module.items) {
    if (const auto* function = std::get_if<Function>(&item)) {
      take(function->position, function->name,
           !function->body || bodies.insert(function->name).second);
      functions.insert(function->name);
    } else if (const auto* variable = std::get_if<Variable>(&item)) {
      take(variable->position, variable->name, !functions.contains(variable->name));
    }
  }
}

std::string PlainNames::WhyNot(const Function& function) const {
  return NameReader(module_, function).Run();
}

}  // namespace gpushared::ptx
