// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/kernel_scan.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "common/ptx/text/editor.h"
#include "server/ptx/analysis/block_waits.h"
#include "server/ptx/analysis/control_flow.h"
#include "server/ptx/analysis/wait_description.h"

namespace gpushared::ptx {
namespace {

// Functions that modules declare and every device provides.
constexpr std::array<std::string_view, 4> kBuiltIns = {"vprintf", "__assertfail", "malloc", "free"};

bool Polls(const Function& function) {
  return std::ranges::any_of(*function.body, [](const Statement& statement) {
    const auto* instruction = std::get_if<Instruction>(&statement);
    return instruction != nullptr && MayPoll(*instruction);
  });
}

// Scans a single function. The findings do not name the function.
class FunctionScan {
 public:
  FunctionScan(const Function& function, const std::vector<Call>& calls, const ModuleNames& names,
               const Polling& polling)
      : function_(function), calls_(calls), names_(names), polling_(polling) {}

  Result<std::vector<Finding>> Run(WaitSteps& steps) {
    for (const FeatureUse& use : FindFeatures(function_)) Note(use.feature, use.line, "");
    RecordCalls();
    RecordNames();
    if (Status status = RecordWaits(steps); !status.ok()) return status;
    return std::move(found_);
  }

 private:
  bool IsNoted(Feature feature) const {
    return std::ranges::find(found_, feature, &Finding::feature) != found_.end();
  }

  void Note(Feature feature, std::uint32_t line, std::string detail) {
    if (IsNoted(feature)) return;
    found_.push_back({.feature = feature, .line = line, .detail = std::move(detail)});
  }

  void RecordCalls() {
    for (const Call& call : calls_) {
      const bool built_in = std::ranges::find(kBuiltIns, call.name) != kBuiltIns.end();
      if (call.kind == Call::Kind::kIndirect) {
        Note(Feature::kIndirectCall, call.line, "");
      } else if (call.kind == Call::Kind::kMissing && !built_in) {
        Note(Feature::kMissingFunction, call.line, "'" + call.name + "'");
      }
    }
  }

  void RecordNames() {
    for (const Statement& statement : *function_.body) {
      const auto* instruction = std::get_if<Instruction>(&statement);
      if (instruction == nullptr) continue;
      ForEachOperand(*instruction, [&](const Operand& operand) {
        if (names_.variables.contains(operand.text)) {
          Note(Feature::kModuleVariables, instruction->position.line, "'" + operand.text + "'");
        }
        if (instruction->opcode != "call" && names_.functions.contains(operand.text)) {
          Note(Feature::kFunctionAddress, instruction->position.line, "'" + operand.text + "'");
        }
        const bool index = operand.text.find("ctaid") != std::string::npos;
        if (index && !function_.is_entry && operand.text.find('%') != std::string::npos) {
          Note(Feature::kBlockIndexInFunction, instruction->position.line, operand.text);
        }
      });
    }
  }

  Status RecordWaits(WaitSteps& steps) {
    const Result<ControlFlow> flow = AnalyseControlFlow(function_);
    if (!flow) return flow.status();
    std::unordered_set<std::string_view> indirect;
    for (const Call& call : calls_) {
      if (call.kind == Call::Kind::kIndirect) indirect.insert(call.name);
    }
    const auto polls = [&](const Instruction& call) {
      const std::string_view callee = CalleeName(call);
      return polling_.functions.contains(callee) || (polling_.is_any && indirect.contains(callee));
    };
    for (const BlockWait& wait : FindBlockWaits(*flow, polls, steps)) {
      const bool earlier = wait.is_for_earlier_blocks && function_.is_entry;
      const Feature feature = earlier ? Feature::kWaitsForEarlierBlocks : Feature::kWaitsForBlocks;
      if (!IsNoted(feature)) Note(feature, wait.line, DescribeWait(*flow, wait.instruction));
    }
    return {};
  }

  const Function& function_;
  const std::vector<Call>& calls_;
  const ModuleNames& names_;
  const Polling& polling_;
  std::vector<Finding> found_;
};

// Callers of polling functions are included, because they may return the value read.
Polling FindPolling(const Module& module, const CallGraph& calls) {
  Polling polling;
  std::vector<const Function*> functions;
  std::unordered_map<std::string_view, std::vector<const Function*>> callers;
  for (const Item& item : module.items) {
    const auto* function = std::get_if<Function>(&item);
    if (function == nullptr || !function->body) continue;
    functions.push_back(function);
    for (const Call& call : calls.GetCalls(*function)) callers[call.name].push_back(function);
  }
  std::vector<const Function*> open;
  const auto add = [&](const Function* function) {
    if (polling.functions.insert(function->name).second) open.push_back(function);
  };
  for (const Function* function : functions) {
    if (!Polls(*function)) continue;
    add(function);
    polling.is_any |= !function->is_entry;
  }
  for (const Function* function : functions) {
    const bool calls_any = std::ranges::any_of(calls.GetCalls(*function), [](const Call& call) {
      return call.kind == Call::Kind::kIndirect;
    });
    if (calls_any && polling.is_any) add(function);
  }
  while (!open.empty()) {
    const Function* function = open.back();
    open.pop_back();
    for (const Function* caller : callers[function->name]) add(caller);
  }
  return polling;
}

}  // namespace

std::string Describe(const Finding& finding) {
  std::string text = "line " + std::to_string(finding.line) + ": ";
  text += FeatureName(finding.feature);
  if (!finding.detail.empty()) text += " (" + finding.detail + ")";
  return text;
}

KernelScanner::KernelScanner(const Module& module, const CallGraph& calls)
    : calls_(calls), polling_(FindPolling(module, calls)) {
  for (const Item& item : module.items) {
    const auto* variable = std::get_if<Variable>(&item);
    if (variable == nullptr) continue;
    const bool in_memory =
        variable->space == StateSpace::kGlobal || variable->space == StateSpace::kConstant;
    if (in_memory) names_.variables.insert(variable->name);
  }
  for (const Function* function : FunctionsWithAddressTaken(module)) {
    names_.functions.insert(function->name);
  }
}

Result<std::vector<Finding>> KernelScanner::Scan(const Function& kernel) {
  std::vector<const Function*> reachable;
  if (statements_ <= kScannedStatementsMax) reachable = calls_.Reachable(kernel);
  for (const Function* function : reachable) statements_ += 1 + function->body->size();
  if (statements_ > kScannedStatementsMax) {
    return Status(StatusCode::kLimitExceeded,
                  "ptx: line " + std::to_string(kernel.position.line) +
                      ": up to this kernel, the module's kernels have more than " +
                      std::to_string(kScannedStatementsMax) +
                      " statements, counting functions once for each kernel that calls them");
  }
  std::vector<Finding> found;
  for (const Function* function : reachable) {
    const Result<std::vector<Finding>>& own = ScanFunction(*function);
    if (!own) return own.status();
    for (const Finding& finding : *own) {
      const bool known = std::ranges::any_of(
          found, [&](const Finding& other) { return other.feature == finding.feature; });
      if (known) continue;
      std::string& detail = found.emplace_back(finding).detail;
      if (function == &kernel) continue;
      detail += (detail.empty() ? "in function '" : " in function '") + function->name + "'";
    }
  }
  return found;
}

const Result<std::vector<Finding>>& KernelScanner::ScanFunction(const Function& function) {
  const auto known = functions_.find(&function);
  if (known != functions_.end()) return known->second;
  FunctionScan scan(function, calls_.GetCalls(function), names_, polling_);
  return functions_.emplace(&function, scan.Run(wait_steps_)).first->second;
}

}  // namespace gpushared::ptx
