// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/kernel_scan.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "server/ptx/block_waits.h"
#include "server/ptx/control_flow.h"
#include "server/ptx/editor.h"

namespace gpushared::ptx {
namespace {

// Declared in modules and provided by every device.
constexpr std::array<std::string_view, 4> kBuiltIns = {"vprintf", "__assertfail", "malloc", "free"};

class KernelScan {
 public:
  // `reachable`: from the kernel, itself first.
  KernelScan(const CallGraph& calls, const std::unordered_set<std::string_view>& variables,
             const std::vector<const Function*>& reachable, WaitSteps& wait_steps)
      : calls_(calls),
        variables_(variables),
        kernel_(*reachable[0]),
        reachable_(reachable),
        wait_steps_(wait_steps) {
    for (const Function* function : reachable_) {
      if (Polls(*function)) polling_.insert(function->name);
      for (const Call& call : calls_.CallsOf(*function)) {
        if (call.kind == Call::Kind::kIndirect) indirect_.insert(call.name);
      }
    }
    SpreadToCallers();
  }

  Result<std::vector<Finding>> Run() {
    for (const Function* function : reachable_) {
      for (const FeatureUse& use : FindFeatures(*function)) {
        Note(*function, use.feature, use.line, "");
      }
      NoteCalls(*function);
      NoteNames(*function);
      if (Status status = NoteWaits(*function); !status.ok()) return status;
    }
    return std::move(found_);
  }

 private:
  void Note(const Function& function, Feature feature, std::uint32_t line, std::string detail) {
    const bool known = std::ranges::any_of(
        found_, [&](const Finding& finding) { return finding.feature == feature; });
    if (known) return;
    if (&function != &kernel_) {
      detail += (detail.empty() ? "in function '" : " in function '") + function.name + "'";
    }
    found_.push_back({.feature = feature, .line = line, .detail = std::move(detail)});
  }

  void NoteCalls(const Function& function) {
    for (const Call& call : calls_.CallsOf(function)) {
      const bool built_in = std::ranges::find(kBuiltIns, call.name) != kBuiltIns.end();
      if (call.kind == Call::Kind::kIndirect) {
        Note(function, Feature::kIndirectCall, call.line, "");
      } else if (call.kind == Call::Kind::kMissing && !built_in) {
        Note(function, Feature::kMissingFunction, call.line, "'" + call.name + "'");
      }
    }
  }

  void NoteNames(const Function& function) {
    for (const Statement& statement : *function.body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr) continue;
      ForEachOperand(*instruction, [&](const Operand& operand) {
        if (variables_.contains(operand.text)) {
          Note(function, Feature::kModuleVariables, instruction->position.line,
               "'" + operand.text + "'");
        }
        const bool index = operand.text.find("ctaid") != std::string::npos;
        if (index && !function.is_entry && operand.text.find('%') != std::string::npos) {
          Note(function, Feature::kBlockIndexInFunction, instruction->position.line, operand.text);
        }
      });
    }
  }

  Status NoteWaits(const Function& function) {
    const Result<ControlFlow> flow = AnalyseControlFlow(function);
    if (!flow) return flow.status();
    const auto polls = [&](const Instruction& call) {
      return polling_.contains(std::string(CalleeName(call))) || IsIndirectPoll(call);
    };
    for (const BlockWait& wait : FindBlockWaits(*flow, polls, wait_steps_)) {
      const bool earlier = wait.is_for_earlier_blocks && function.is_entry;
      Note(function, earlier ? Feature::kWaitsForEarlierBlocks : Feature::kWaitsForBlocks,
           wait.line, "");
    }
    return {};
  }

  static bool Polls(const Function& function) {
    return std::ranges::any_of(*function.body, [](const Statement& statement) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      return instruction != nullptr && MayPoll(*instruction);
    });
  }

  bool IsIndirectPoll(const Instruction& call) const {
    return !polling_.empty() && indirect_.contains(CalleeName(call));
  }

  // Who calls what polls may return what it read.
  void SpreadToCallers() {
    std::unordered_map<std::string_view, std::vector<const Function*>> callers;
    std::vector<const Function*> open;
    for (const Function* function : reachable_) {
      bool polls = polling_.contains(function->name);
      for (const Call& call : calls_.CallsOf(*function)) {
        callers[call.name].push_back(function);
        polls |= call.kind == Call::Kind::kIndirect && !polling_.empty();
      }
      if (polls) open.push_back(function);
    }
    while (!open.empty()) {
      const Function* function = open.back();
      open.pop_back();
      polling_.insert(function->name);
      for (const Function* caller : callers[function->name]) {
        if (!polling_.contains(caller->name)) open.push_back(caller);
      }
    }
  }

  const CallGraph& calls_;
  const std::unordered_set<std::string_view>& variables_;
  const Function& kernel_;
  const std::vector<const Function*>& reachable_;
  WaitSteps& wait_steps_;
  std::unordered_set<std::string_view> indirect_;  // What indirect calls name.
  std::unordered_set<std::string> polling_;        // Functions that see what other blocks write.
  std::vector<Finding> found_;
};

}  // namespace

std::string Describe(const Finding& finding) {
  std::string text = "line " + std::to_string(finding.line) + ": ";
  text += FeatureName(finding.feature);
  if (!finding.detail.empty()) text += " (" + finding.detail + ")";
  return text;
}

KernelScanner::KernelScanner(const Module& module, const CallGraph& calls) : calls_(calls) {
  for (const Item& item : module.items) {
    const auto* variable = std::get_if<Variable>(&item);
    if (variable == nullptr) continue;
    const bool in_memory =
        variable->space == StateSpace::kGlobal || variable->space == StateSpace::kConstant;
    if (in_memory) variables_.insert(variable->name);
  }
}

Result<std::vector<Finding>> KernelScanner::Scan(const Function& kernel) {
  std::vector<const Function*> reachable;
  if (statements_ <= kScannedStatementsMax) reachable = calls_.Reachable(kernel);
  for (const Function* function : reachable) statements_ += 1 + function->body->size();
  if (statements_ > kScannedStatementsMax) {
    return Status(StatusCode::kLimitExceeded,
                  "ptx: line " + std::to_string(kernel.position.line) +
                      ": the module's kernels have more than " +
                      std::to_string(kScannedStatementsMax) +
                      " statements up to this one, those of functions counted for each");
  }
  return KernelScan(calls_, variables_, reachable, wait_steps_).Run();
}

Result<std::vector<Finding>> ScanKernel(const Module& module, const CallGraph& calls,
                                        const Function& kernel) {
  return KernelScanner(module, calls).Scan(kernel);
}

}  // namespace gpushared::ptx
