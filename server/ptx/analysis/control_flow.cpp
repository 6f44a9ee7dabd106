// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/control_flow.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "server/ptx/analysis/dominators.h"
#include "server/ptx/analysis/live_ranges.h"

namespace gpushared::ptx {
namespace {

constexpr std::uint32_t kRootScope = 0;

Status Invalid(const SourcePosition& position, const std::string& what) {
  return {StatusCode::kInvalidArgument, "ptx: " + GetLine(position) + what};
}

bool IsLeave(const Instruction& instruction) {
  const std::string_view opcode = instruction.opcode;
  return opcode == "ret" || opcode == "exit";
}
bool IsIndexedBranch(const Instruction& instruction) {
  return std::string_view(instruction.opcode) == "brx";
}
bool EndsBlock(const Instruction& instruction) {
  return std::string_view(instruction.opcode) == "bra" || IsIndexedBranch(instruction) ||
         IsLeave(instruction);
}

// Declarations of one { } of the body, or of the body itself.
struct Scope {
  std::uint32_t parent = kRootScope;
  std::unordered_map<std::string, std::uint32_t> names;     // Index into ControlFlow::variables.
  std::unordered_map<std::string, std::uint32_t> families;  // Like `names`, by prefix of %r<N>.
  std::unordered_set<std::string> labels;
};

class Analysis {
 public:
  explicit Analysis(const Function& function) : function_(function) {}

  Result<ControlFlow> Run() {
    if (Status s = Flatten(); !s.ok()) return s;
    for (std::size_t i = 0; i < flow_.instructions.size(); ++i) ResolveNames(i);
    if (Status s = ResolveBranchLists(); !s.ok()) return s;
    if (Status s = FindBlocks(); !s.ok()) return s;
    if (!FindPostDominators(flow_.blocks)) {
      return Status(StatusCode::kLimitExceeded,
                    "ptx: " + GetLine(function_.position) + "the branches of '" + function_.name +
                        "' are too entangled: finding where threads meet again takes more than " +
                        std::to_string(kDominatorStepsMax) + " steps");
    }
    FindLiveRanges(flow_);
    return std::move(flow_);
  }

 private:
  // Splits the body into instructions and declarations, each with its scope.
  Status Flatten() {
    scopes_.emplace_back();
    std::vector<std::uint32_t> open = {kRootScope};
    const Label* label = nullptr;
    for (const Statement& statement : *function_.body) {
      const std::uint32_t scope = open.back();
      if (std::holds_alternative<ScopeBegin>(statement)) {
        open.push_back(static_cast<std::uint32_t>(scopes_.size()));
        scopes_.push_back({.parent = scope, .names = {}, .families = {}, .labels = {}});
      } else if (const auto* end = std::get_if<ScopeEnd>(&statement)) {
        if (open.size() == 1) return Invalid(end->position, "'}' without '{'");
        open.pop_back();
      } else if (const auto* instruction = std::get_if<Instruction>(&statement)) {
        if (flow_.instructions.size() == kFunctionInstructionsMax)
          return TooLarge(instruction->position);
        flow_.instructions.push_back(*instruction);
        scope_of_.push_back(scope);
      } else if (const auto* variable = std::get_if<Variable>(&statement)) {
        if (Status s = Declare(*variable, scope); !s.ok()) return s;
      } else if (const auto* found = std::get_if<Label>(&statement)) {
        if (!scopes_[scope].labels.insert(found->name).second) {
          return Invalid(found->position, "label '" + found->name + "' is defined twice");
        }
        labels_.emplace(found->name + Suffix(scope),
                        static_cast<std::uint32_t>(flow_.instructions.size()));
      } else if (const auto* directive = std::get_if<Directive>(&statement);
                 directive != nullptr && label != nullptr) {
        flow_.directives.push_back({label->name + Suffix(scope), *directive});
        scope_of_directive_.push_back(scope);
      }
      label = std::get_if<Label>(&statement);
    }
    if (open.size() != 1)
      return Invalid(function_.position, "'{' without '}' in '" + function_.name + "'");
    return {};
  }

  Status TooLarge(const SourcePosition& position) const {
    return {StatusCode::kLimitExceeded,
            "ptx: " + GetLine(position) + "'" + function_.name + "' has more than " +
                std::to_string(kFunctionInstructionsMax) + " instructions"};
  }

  Status Declare(const Variable& variable, std::uint32_t scope) {
    const auto index = static_cast<std::uint32_t>(flow_.variables.size());
    auto& table = variable.register_count > 0 ? scopes_[scope].families : scopes_[scope].names;
    if (!table.emplace(variable.name, index).second) {
      return Invalid(variable.position, "'" + variable.name + "' is declared twice");
    }
    flow_.variables.push_back(variable);
    flow_.variables.back().name += Suffix(scope);
    return {};
  }

  static std::string Suffix(std::uint32_t scope) {
    return scope == kRootScope ? "" : "@" + std::to_string(scope);
  }

  static constexpr std::uint32_t kLabel = kNoRegister;
  struct Found {
    std::uint32_t variable = 0;  // kLabel if the name is a label.
    std::uint32_t scope = 0;
  };
  // Finds the innermost declaration of `name` that is visible in `scope`.
  bool Find(const std::string& name, std::uint32_t scope, Found& found) const {
    std::string_view prefix;
    std::uint64_t number = 0;
    const bool numbered = SplitFamily(name, prefix, number);
    const std::string family_name(prefix);
    for (;; scope = scopes_[scope].parent) {
      const Scope& here = scopes_[scope];
      if (const auto exact = here.names.find(name); exact != here.names.end()) {
        found = {exact->second, scope};
        return true;
      }
      if (numbered) {
        const auto family = here.families.find(family_name);
        if (family != here.families.end() &&
            number < flow_.variables[family->second].register_count) {
          found = {family->second, scope};
          return true;
        }
      }
      if (here.labels.contains(name)) {
        found = {kLabel, scope};
        return true;
      }
      if (scope == kRootScope) return false;
    }
  }

  void ResolveNames(std::size_t i) {
    Instruction& instruction = flow_.instructions[i];
    if (instruction.guard) ResolveName(instruction.guard->predicate, scope_of_[i]);
    for (Operand& operand : instruction.operands) Resolve(operand, scope_of_[i]);
  }

  void Resolve(Operand& operand, std::uint32_t scope) {
    if (operand.kind == Operand::Kind::kName || operand.kind == Operand::Kind::kAddress) {
      const std::uint32_t found = ResolveName(operand.text, scope);
      operand.register_number = found == kNoRegister ? 0 : found + 1;
    }
    for (Operand& element : operand.elements) Resolve(element, scope);
  }

  // Makes the name unique and returns the register that it refers to, if any.
  std::uint32_t ResolveName(std::string& text, std::uint32_t scope) {
    const std::size_t sign = text.starts_with('-') ? 1 : 0;
    const std::size_t dot = std::min(text.rfind('.'), text.size());
    std::string name = text.substr(sign, dot - sign);
    Found found;
    if (!Find(name, scope, found)) return kNoRegister;
    if (found.scope != kRootScope) {
      name += Suffix(found.scope);
      text = text.substr(0, sign) + name + text.substr(dot);
    }
    if (found.variable == kLabel) return kNoRegister;
    const Variable& variable = flow_.variables[found.variable];
    if (variable.space != StateSpace::kRegister) return kNoRegister;
    const auto index = static_cast<std::uint32_t>(flow_.registers.size());
    const auto [entry, is_new] = flow_.register_index.emplace(name, index);
    if (is_new) {
      flow_.registers.push_back({.name = name,
                                 .type = variable.type,
                                 .live_begin = 1,
                                 .live_end = 0,
                                 .variable = found.variable,
                                 .is_read_unwritten = false});
    }
    return entry->second;
  }

  // Looks up the labels of each .branchtargets once, however many brx.idx use it.
  Status ResolveBranchLists() {
    std::size_t count = 0;
    for (std::size_t d = 0; d < flow_.directives.size(); ++d) {
      const Directive& directive = flow_.directives[d].directive;
      if (!directive.text.starts_with(".branchtargets")) continue;
      std::vector<std::uint32_t>& list = branch_lists_[flow_.directives[d].name];
      for (const std::string& name : DirectiveTargets(directive.text)) {
        if (++count > kBranchTargetsMax) return TooManyTargets(directive.position);
        Found found;
        if (!Find(name, scope_of_directive_[d], found) || found.variable != kLabel) {
          return Invalid(directive.position, "label '" + name + "' does not exist");
        }
        list.push_back(labels_.at(name + Suffix(found.scope)));
      }
    }
    return {};
  }

  Status TooManyTargets(const SourcePosition& position) const {
    return {StatusCode::kLimitExceeded, "ptx: " + GetLine(position) + "'" + function_.name +
                                            "' has more than " + std::to_string(kBranchTargetsMax) +
                                            " branch targets"};
  }

  // Returns the target instructions of instruction i, in table order for brx.idx.
  Status FindTargets(std::uint32_t i, std::vector<std::uint32_t>& targets) {
    const Instruction& instruction = flow_.instructions[i];
    const std::vector<Operand>& operands = instruction.operands;
    if (instruction.opcode == "bra") {
      if (operands.size() != 1) return Invalid(instruction.position, "bra needs one label");
      const auto label = labels_.find(operands[0].text);
      if (label == labels_.end()) {
        return Invalid(instruction.position,
                       "branch to label '" + operands[0].text + "', which does not exist");
      }
      targets = {label->second};
      return {};
    }
    if (operands.size() != 2) {
      return Invalid(instruction.position, "brx.idx needs an index and a list of targets");
    }
    const auto list = branch_lists_.find(operands[1].text);
    if (list == branch_lists_.end() || list->second.empty()) {
      return Invalid(instruction.position, "brx.idx uses list '" + operands[1].text +
                                               "', which does not exist or is empty");
    }
    used_targets_ += list->second.size();
    if (used_targets_ > kBranchTargetsMax) return TooManyTargets(instruction.position);
    targets = list->second;
    return {};
  }

  Status FindBlocks() {
    const auto count = static_cast<std::uint32_t>(flow_.instructions.size());
    if (count == 0) return {};
    std::vector<std::vector<std::uint32_t>> targets(count);
    std::vector<bool> leads(count + 1);
    leads[0] = true;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Instruction& instruction = flow_.instructions[i];
      if (!EndsBlock(instruction)) continue;
      leads[i + 1] = true;
      if (IsLeave(instruction)) continue;
      if (Status s = FindTargets(i, targets[i]); !s.ok()) return s;
      for (const std::uint32_t target : targets[i]) leads[target] = true;
    }
    flow_.block_of.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      if (leads[i]) {
        flow_.blocks.emplace_back();
        flow_.blocks.back().first = i;
      }
      ++flow_.blocks.back().count;
      flow_.block_of[i] = static_cast<std::uint32_t>(flow_.blocks.size() - 1);
    }
    for (std::uint32_t b = 0; b < flow_.blocks.size(); ++b) Connect(b, targets);
    return {};
  }

  // A branch to a label at the end of the function leaves the function.
  std::uint32_t BlockAt(std::uint32_t instruction) const {
    return instruction < flow_.block_of.size() ? flow_.block_of[instruction] : kNoBlock;
  }

  void Connect(std::uint32_t b, const std::vector<std::vector<std::uint32_t>>& targets) {
    using End = BasicBlock::End;
    BasicBlock& block = flow_.blocks[b];
    const std::uint32_t last = block.first + block.count - 1;
    const Instruction& instruction = flow_.instructions[last];
    const std::uint32_t next = BlockAt(last + 1);
    if (IsLeave(instruction)) {
      block.end = instruction.guard ? End::kConditionalLeave : End::kLeave;
      if (instruction.guard) block.successors = {next};
    } else if (instruction.opcode == "bra") {
      block.end = instruction.guard ? End::kConditionalBranch : End::kBranch;
      block.successors = {BlockAt(targets[last][0])};
      if (instruction.guard) block.successors.push_back(next);
    } else if (IsIndexedBranch(instruction)) {
      block.end = End::kIndexedBranch;
      for (const std::uint32_t target : targets[last])
        block.branch_table.push_back(BlockAt(target));
      block.successors = block.branch_table;
      if (instruction.guard) block.successors.push_back(next);
      std::sort(block.successors.begin(), block.successors.end());
      block.successors.erase(std::unique(block.successors.begin(), block.successors.end()),
                             block.successors.end());
    } else {
      block.end = End::kFallThrough;
      block.successors = {next};
    }
  }

  const Function& function_;
  ControlFlow flow_;
  std::vector<Scope> scopes_;
  std::vector<std::uint32_t> scope_of_;
  std::vector<std::uint32_t> scope_of_directive_;
  // By unique name: the instruction after each label, and the target instructions of each
  // .branchtargets list.
  std::unordered_map<std::string, std::uint32_t> labels_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> branch_lists_;
  std::size_t used_targets_ = 0;
};

}  // namespace

Result<ControlFlow> AnalyseControlFlow(const Function& function) {
  return Analysis(function).Run();
}

}  // namespace gpushared::ptx
