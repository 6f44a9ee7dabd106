// SPDX-License-Identifier: Apache-2.0
#include "server/ptx/analysis/features.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/ptx/text/editor.h"

namespace gpushared::ptx {
namespace {

constexpr std::array<std::string_view, 7> kTextureInstructions = {"tex",  "tld4",  "txq", "suld",
                                                                  "sust", "sured", "suq"};
constexpr std::array<std::string_view, 3> kClusterDirectives = {
    ".reqnctapercluster", ".explicitcluster", ".blocksareclusters"};

class FeatureScan {
 public:
  std::vector<FeatureUse> Run(const Function& function) {
    for (const Directive& directive : function.performance) {
      for (const std::string_view name : kClusterDirectives) {
        if (directive.text.starts_with(name)) Note(Feature::kClusters, directive.position);
      }
    }
    if (function.body) {
      for (const Statement& statement : *function.body) {
        if (const auto* instruction = std::get_if<Instruction>(&statement)) Scan(*instruction);
      }
    }
    return std::move(found_);
  }

 private:
  void Note(Feature feature, const SourcePosition& position) {
    const bool known = std::any_of(found_.begin(), found_.end(),
                                   [&](const FeatureUse& use) { return use.feature == feature; });
    if (!known) found_.push_back({feature, position.line});
  }

  void Scan(const Instruction& instruction) {
    const std::string_view opcode = instruction.opcode;
    if (std::find(kTextureInstructions.begin(), kTextureInstructions.end(), opcode) !=
        kTextureInstructions.end()) {
      Note(Feature::kTextures, instruction.position);
    }
    const bool names_cluster = instruction.Has("cluster") || instruction.Has("shared::cluster") ||
                               opcode == "mapa" || opcode == "getctarank";
    if (names_cluster) Note(Feature::kClusters, instruction.position);
    if (opcode == "trap" || opcode == "brkpt") Note(Feature::kTrap, instruction.position);
    if (opcode == "call") ScanCall(instruction);
    ForEachOperand(instruction, [&](const Operand& operand) {
      if (operand.text == "%envreg1" || operand.text == "%envreg2") {
        Note(Feature::kGridSynchronisation, instruction.position);
      }
    });
  }

  void ScanCall(const Instruction& call) {
    const auto callee =
        std::find_if(call.operands.begin(), call.operands.end(),
                     [](const Operand& o) { return o.kind == Operand::Kind::kName; });
    if (callee == call.operands.end()) return;
    const std::string& name = callee->text;
    if (name == "vprintf") Note(Feature::kPrint, call.position);
    if (name == "__assertfail") Note(Feature::kAssertion, call.position);
    if (name == "malloc" || name == "free") Note(Feature::kDeviceHeap, call.position);
    if (name.starts_with("__cudaCDP2") || name.starts_with("cudaLaunchDevice") ||
        name.starts_with("cudaGetParameterBuffer")) {
      Note(Feature::kDynamicParallelism, call.position);
    }
    if (name.starts_with('%')) Note(Feature::kIndirectCall, call.position);
  }

  std::vector<FeatureUse> found_;
};

}  // namespace

std::string_view FeatureName(Feature feature) {
  switch (feature) {
    case Feature::kGridSynchronisation:
      return "grid-wide synchronisation";
    case Feature::kTextures:
      return "textures or surfaces";
    case Feature::kClusters:
      return "clusters of blocks";
    case Feature::kDynamicParallelism:
      return "dynamic parallelism";
    case Feature::kDeviceHeap:
      return "memory allocation in the kernel";
    case Feature::kPrint:
      return "printing";
    case Feature::kAssertion:
      return "assertions";
    case Feature::kIndirectCall:
      return "indirect calls";
    case Feature::kTrap:
      return "traps";
    case Feature::kModuleVariables:
      return "module variables";
    case Feature::kMissingFunction:
      return "functions of other modules";
    case Feature::kFunctionAddress:
      return "addresses of functions";
    case Feature::kBlockIndexInFunction:
      return "block index read in a function";
    case Feature::kWaitsForBlocks:
      return "waiting for other blocks";
    case Feature::kWaitsForEarlierBlocks:
      return "waiting for earlier blocks";
  }
  return "unknown feature";
}

std::vector<FeatureUse> FindFeatures(const Function& function) {
  return FeatureScan().Run(function);
}

}  // namespace gpushared::ptx
