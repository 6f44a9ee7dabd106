// SPDX-License-Identifier: Apache-2.0
// What passes add to kernels: pass_costs ARCHITECTURE FILE.ptx ... prints a table in Markdown, with
// --each one line per kernel.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/ptx/claim.h"
#include "server/ptx/parser.h"
#include "server/ptx/printer.h"
#include "tests/passes/ptxas.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

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

bool Measure(const std::string& file, const std::string& architecture, std::vector<Added>* added) {
  const Result<ptx::Module> module = ptx::Parse(ReadFile(file));
  if (!module) {
    std::fprintf(stderr, "%s: %s\n", file.c_str(), module.status().ToString().c_str());
    return false;
  }
  const ptx::Claims claims = ptx::Claim(*module);
  const auto code = Assemble(ptx::Print(claims.module), architecture);
  if (!code) {
    std::fprintf(stderr, "%s: %s\n", file.c_str(), code.status().ToString().c_str());
    return false;
  }
  for (const ptx::ClaimedKernel& kernel : claims.kernels) {
    if (kernel.claimed.empty()) continue;
    const MachineCode before = code->at(kernel.kernel), after = code->at(kernel.claimed);
    added->push_back({.kernel = kernel.kernel,
                      .registers = Difference(after.registers, before.registers),
                      .instructions = Difference(after.instructions, before.instructions),
                      .instructions_before = static_cast<int>(before.instructions),
                      .spilled_bytes = Difference(after.spilled_bytes, before.spilled_bytes)});
  }
  return true;
}

// The element below which `part` of all lie.
int Quantile(std::vector<int> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

void PrintTable(const std::string& architecture, const std::vector<Added>& added) {
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
  std::printf("| claim | %s | %zu | %+.2f / %+d / %+d | %+d / %+d | %+.1f %% | %d |\n",
              architecture.c_str(), added.size(), register_sum / count, Quantile(registers, 0.9),
              Quantile(registers, 1.0), Quantile(instructions, 0.5), Quantile(instructions, 0.9),
              100 * instruction_sum / before_sum, spilled);
}

}  // namespace
}  // namespace gpushared::testing

int main(int count, char** arguments) {
  using namespace gpushared::testing;
  const bool each = count > 1 && std::string_view(arguments[1]) == "--each";
  const int first = each ? 2 : 1;
  if (count < first + 2) {
    std::fprintf(stderr, "usage: pass_costs [--each] ARCHITECTURE FILE.ptx ...\n");
    return 2;
  }
  std::vector<Added> added;
  bool all = true;
  for (int i = first + 1; i < count; ++i) all &= Measure(arguments[i], arguments[first], &added);
  if (added.empty()) return 1;
  for (const Added& one : added) {
    if (!each) break;
    std::printf("%+4d registers, %+4d of %5d instructions: %s\n", one.registers, one.instructions,
                one.instructions_before, one.kernel.c_str());
  }
  PrintTable(arguments[first], added);
  return all ? 0 : 1;
}
