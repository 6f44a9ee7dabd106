// SPDX-License-Identifier: Apache-2.0
#include "tests/corpus/corpus.h"

#include <array>

#include <cuda_runtime_api.h>

#include "tests/corpus/corpus_list.h"
#include "tests/corpus/runtime.h"

namespace gpushared::corpus {
namespace {

#define GPUSHARED_PROGRAM_ENTRY(name) Program{#name, &name},
constexpr auto kOwn = std::to_array<Program>({GPUSHARED_OWN_PROGRAMS(GPUSHARED_PROGRAM_ENTRY)});
constexpr auto kToolkit =
    std::to_array<Program>({GPUSHARED_TOOLKIT_PROGRAMS(GPUSHARED_PROGRAM_ENTRY)});
#undef GPUSHARED_PROGRAM_ENTRY

}  // namespace

std::span<const Program> OwnPrograms() { return kOwn; }
std::span<const Program> ToolkitPrograms() { return kToolkit; }

std::string RunProgram(const Program& program) {
  Runtime& runtime = Runtime::Instance();
  runtime.Reset();
  // Clears the error of an earlier program, which would otherwise fail this program's first call.
  (void)cudaGetLastError();
  const std::string wrong = program.run();
  return runtime.error().empty() ? wrong : runtime.error() + "; " + wrong;
}

}  // namespace gpushared::corpus
