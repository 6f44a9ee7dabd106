// SPDX-License-Identifier: Apache-2.0
// Module images are hostile until parsed. Any bytes must give a module or an error, and a parsed
// module must print to a text that parses to the same module. Every pass that a server runs on a
// client's module, and the executor's decoder, must return a result or a reason. The result of a
// pass must again be a valid module.

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "gpushared/check.h"
#include "gpushared/result.h"

#include "common/ptx/text/fatbin.h"
#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/device/cpu/executor/program.h"
#include "server/ptx/analysis/call_graph.h"
#include "server/ptx/analysis/control_flow.h"
#include "server/ptx/analysis/kernel_scan.h"
#include "server/ptx/analysis/variable_layout.h"
#include "server/ptx/passes/claim.h"
#include "server/ptx/passes/fence.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kVariableBytesMax = 16u << 20;

void CheckReason(const Status& status) {
  Check(!status.message().empty(), "what is rejected has a reason");
}

void CheckModule(const ptx::Module& made) {
  const std::string printed = ptx::Print(made);
  const Result<ptx::Module> again = ptx::Parse(printed);
  Check(again.ok() && ptx::Print(*again) == printed, "a printed module parses to the same");
}

void FuzzAnalyses(const ptx::Module& module) {
  const ptx::CallGraph calls(module);
  for (const auto& item : module.items) {
    const auto* function = std::get_if<ptx::Function>(&item);
    if (function == nullptr || !function->body) continue;
    if (const auto flow = ptx::AnalyseControlFlow(*function); !flow) CheckReason(flow.status());
    if (const auto found = ptx::KernelScanner(module, calls).Scan(*function); !found)
      CheckReason(found.status());
  }
}

void FuzzPasses(const ptx::Module& module) {
  const ptx::Claims claims = ptx::Claim(module);
  CheckModule(claims.module);
  for (const ptx::PreemptibleKernel& kernel : claims.kernels) {
    Check(kernel.claimed.empty() != kernel.reason.empty(), "a kernel is claimed, or has a reason");
  }
  for (const auto& pass : {ptx::Fence, ptx::Contain}) {
    for (const std::uint64_t range : {ptx::kFenceRangeBytesMin, 4 * ptx::kFenceRangeBytesMin}) {
      const Result<ptx::Fenced> fenced = pass(module, range);
      if (fenced)
        CheckModule(fenced->module);
      else
        CheckReason(fenced.status());
    }
  }
}

void FuzzDecoder(const ptx::Module& module) {
  const Result<ptx::ModuleLayout> layout = ptx::LayOutModule(module);
  if (!layout) return CheckReason(layout.status());
  using device::executor::DecodeModule;
  using device::executor::Flavour;
  const auto image = DecodeModule(module, *layout, 0, Flavour::kBaseline);
  if (!image) CheckReason(image.status());
}

// Limits the variables, because a client may have 4 GiB of them, and their layout takes as much
// memory.
bool HasSmallVariables(const ptx::Module& module) {
  std::uint64_t left = kVariableBytesMax;
  for (const auto& item : module.items) {
    const auto* variable = std::get_if<ptx::Variable>(&item);
    if (variable == nullptr) continue;
    if (variable->Bytes() > left) return false;
    left -= variable->Bytes();
  }
  return true;
}

}  // namespace
}  // namespace gpushared::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpushared;
  const auto text = ptx::ExtractPtx({reinterpret_cast<const std::byte*>(data), size});
  if (!text) return 0;
  const auto module = ptx::Parse(*text);
  if (!module) return 0;
  testing::CheckModule(*module);
  testing::FuzzAnalyses(*module);
  if (!testing::HasSmallVariables(*module)) return 0;
  testing::FuzzPasses(*module);
  testing::FuzzDecoder(*module);
  return 0;
}
