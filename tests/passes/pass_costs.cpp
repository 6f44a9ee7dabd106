// SPDX-License-Identifier: Apache-2.0
// The costs that passes add to kernels. pass_costs ARCHITECTURE FILE ... prints a table in
// Markdown, with --each one line per kernel. Files are PTX, fatbins, or objects made by nvcc. With
// --bounds it also fails if all kernels together exceed the documented bounds. The compiler's
// counts are deterministic. Modules of newer architectures are skipped.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/ptx/text/editor.h"
#include "common/ptx/text/parser.h"
#include "common/ptx/text/printer.h"
#include "server/ptx/passes/claim.h"
#include "server/ptx/passes/fence.h"
#include "server/tools/ctl/module_file.h"
#include "tests/passes/ptxas.h"

namespace gpushared::testing {
namespace {

constexpr std::string_view kPrefix = "sm_";  // Prefix of an architecture's name.
constexpr std::uint64_t kSmallRange = ptx::kFenceRangeBytesMin;
constexpr std::uint64_t kLargeRange = std::uint64_t{128} << 30;

struct Added {
  std::string kernel;
  int registers = 0;
  int instructions = 0;
  int instructions_before = 0;
  int spilled_bytes = 0;
};

int Difference(std::uint32_t after, std::uint32_t before) {
  return static_cast<int>(after) - static_cast<int>(before);
}

Added Compare(const std::string& kernel, const MachineCode& before, const MachineCode& after) {
  return {.kernel = kernel,
          .registers = Difference(after.registers, before.registers),
          .instructions = Difference(after.instructions, before.instructions),
          .instructions_before = static_cast<int>(before.instructions),
          .spilled_bytes = Difference(after.spilled_bytes, before.spilled_bytes)};
}

// Documented bounds for all kernels together, in a range of 4 GiB.
constexpr double kFenceInstructionsMax = 0.08;
constexpr double kClaimRegistersMax = 1.0;

struct Measured {
  std::vector<Added> claim, fence, fence_large, contain;
};

using Before = std::map<std::string, MachineCode>;

bool IsSame(const Before& one, const Before& other) {
  return std::ranges::equal(one, other, [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.registers == b.second.registers &&
           a.second.instructions == b.second.instructions;
  });
}

// Returns the result of ptxas for the printed module, which must equal that for the original text.
Result<Before> AssemblePrinted(const std::string& text, const ptx::Module& module,
                               const std::string& architecture) {
  const std::string printed = ptx::Print(module);
  const Result<ptx::Module> again = ptx::Parse(printed);
  if (!again || ptx::Print(*again) != printed) {
    return Status(StatusCode::kInternal, "the printed text parses to another module");
  }
  // Fatbins pad text with zeros.
  const auto source = Assemble(text.substr(0, text.find('\0')), architecture);
  if (!source) return source.status();
  auto before = Assemble(printed, architecture);
  if (before && !IsSame(*before, *source)) {
    return Status(StatusCode::kInternal, "ptxas generates other code for the printed text");
  }
  return before;
}

Status MeasureClaim(const ptx::Module& module, const Before& before,
                    const std::string& architecture, Measured* added) {
  const ptx::Claims claims = ptx::Claim(module);
  const auto code = Assemble(ptx::Print(claims.module), architecture);
  if (!code) return code.status();
  for (const auto& [kernel, own] : before) {
    const MachineCode& beside = code->at(kernel);
    if (beside.registers != own.registers || beside.instructions != own.instructions) {
      return {StatusCode::kInternal,
              "kernel '" + kernel + "' changes if preemptible forms are added to its module"};
    }
  }
  for (const ptx::PreemptibleKernel& kernel : claims.kernels) {
    if (kernel.claimed.empty()) continue;
    added->claim.push_back(
        Compare(kernel.kernel, code->at(kernel.kernel), code->at(kernel.claimed)));
  }
  return {};
}

Status MeasureFence(const Result<ptx::Fenced>& fenced, const Before& before,
                    const std::string& architecture, std::vector<Added>* added) {
  if (!fenced) return fenced.status();
  const auto after = Assemble(ptx::Print(fenced->module), architecture);
  if (!after) return after.status();
  for (const ptx::FencedKernel& kernel : fenced->kernels) {
    if (!kernel.reason.empty()) {
      std::fprintf(stderr, "%s is left out: %s\n", kernel.kernel.c_str(), kernel.reason.c_str());
      continue;
    }
    added->push_back(Compare(kernel.kernel, before.at(kernel.kernel), after->at(kernel.kernel)));
  }
  return {};
}

Status MeasureModule(const std::string& text, const std::string& architecture, Measured* added) {
  const Result<ptx::Module> module = ptx::Parse(text);
  if (!module) return module.status();
  const std::uint32_t wanted = ptx::TargetArchitecture(*module);
  if (wanted > static_cast<std::uint32_t>(std::atoi(architecture.c_str() + kPrefix.size()))) {
    std::fprintf(stderr, "a module for sm_%u is left out\n", wanted);
    return {};
  }
  const auto before = AssemblePrinted(text, *module, architecture);
  if (!before) return before.status();
  if (Status status = MeasureClaim(*module, *before, architecture, added); !status.ok()) {
    return status;
  }
  const auto measure = [&](const Result<ptx::Fenced>& fenced, std::vector<Added>* column) {
    return MeasureFence(fenced, *before, architecture, column);
  };
  Status status = measure(ptx::Fence(*module, kSmallRange), &added->fence);
  if (status.ok()) status = measure(ptx::Fence(*module, kLargeRange), &added->fence_large);
  if (status.ok()) status = measure(ptx::Contain(*module, kSmallRange), &added->contain);
  return status;
}

bool Measure(const std::string& file, const std::string& architecture, Measured* added) {
  const Result<std::vector<std::byte>> bytes = server::ReadWholeFile(file);
  const auto modules = bytes ? server::FindModules(*bytes)
                             : Result<std::vector<server::FoundModule>>(bytes.status());
  Status status = modules.status();
  for (std::size_t i = 0; status.ok() && i < modules->size(); ++i) {
    const Result<std::string>& text = (*modules)[i].ptx;
    status = text ? MeasureModule(*text, architecture, added) : text.status();
  }
  if (!status.ok()) std::fprintf(stderr, "%s: %s\n", file.c_str(), status.ToString().c_str());
  return status.ok();
}

bool HoldsBounds(const Measured& added) {
  double registers = 0, instructions = 0, before = 0;
  for (const Added& one : added.claim) registers += one.registers;
  for (const Added& one : added.fence) {
    instructions += one.instructions;
    before += one.instructions_before;
  }
  const bool claims = registers <= kClaimRegistersMax * static_cast<double>(added.claim.size());
  const bool fences = instructions <= kFenceInstructionsMax * before;
  if (!claims) std::fprintf(stderr, "claimed kernels exceed the bound on registers\n");
  if (!fences) std::fprintf(stderr, "fenced kernels exceed the bound on instructions\n");
  return claims && fences && !added.claim.empty() && !added.fence.empty();
}

// Returns the element below which `part` of all elements are.
int Quantile(std::vector<int> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

void Print(const char* pass, const std::string& architecture, const std::vector<Added>& added,
           bool each) {
  if (added.empty()) return;
  for (const Added& one : added) {
    if (!each) break;
    std::printf("%s %+4d registers, %+4d of %5d instructions: %s\n", pass, one.registers,
                one.instructions, one.instructions_before, one.kernel.c_str());
  }
  std::vector<int> registers, instructions;
  double register_sum = 0, instruction_sum = 0, before_sum = 0;
  int spilled = 0;
  for (const Added& one : added) {
    registers.push_back(one.registers);
    instructions.push_back(one.instructions);
    register_sum += one.registers;
    instruction_sum += one.instructions;
    before_sum += one.instructions_before;
    spilled += one.spilled_bytes > 0 ? 1 : 0;
  }
  const auto count = static_cast<double>(added.size());
  std::printf("| %s | %s | %zu | %+.2f / %+d / %+d | %+d / %+d | %+.1f %% | %d |\n", pass,
              architecture.c_str(), added.size(), register_sum / count, Quantile(registers, 0.9),
              Quantile(registers, 1.0), Quantile(instructions, 0.5), Quantile(instructions, 0.9),
              100 * instruction_sum / before_sum, spilled);
}

}  // namespace
}  // namespace gpushared::testing

int main(int count, char** arguments) {
  using namespace gpushared::testing;
  const std::string_view option = count > 1 ? arguments[1] : "";
  const bool each = option == "--each", bounds = option == "--bounds";
  const int first = each || bounds ? 2 : 1;
  if (count < first + 2 || !std::string_view(arguments[first]).starts_with(kPrefix)) {
    std::fprintf(stderr, "usage: pass_costs [--each | --bounds] ARCHITECTURE FILE ...\n");
    return 2;
  }
  constexpr int kSkipped = 77;
  if (bounds && !HasPtxas()) return kSkipped;
  Measured added;
  bool all = true;
  for (int i = first + 1; i < count; ++i) all &= Measure(arguments[i], arguments[first], &added);
  Print("claim", arguments[first], added.claim, each);
  Print("fence", arguments[first], added.fence, each);
  Print("fence, range of 128 GiB", arguments[first], added.fence_large, each);
  Print("contain", arguments[first], added.contain, each);
  if (bounds) all &= HoldsBounds(added);
  return all ? 0 : 1;
}
