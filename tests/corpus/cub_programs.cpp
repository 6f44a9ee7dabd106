// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "tests/corpus/corpus.h"
#include "tests/corpus/corpus_list.h"

namespace gpushared::corpus {
namespace {

#define GPUSHARED_PROGRAM_ENTRY(name) Program{#name, &name},
constexpr auto kCub = std::to_array<Program>({GPUSHARED_CUB_PROGRAMS(GPUSHARED_PROGRAM_ENTRY)});
#undef GPUSHARED_PROGRAM_ENTRY

}  // namespace

std::span<const Program> CubPrograms() { return kCub; }

}  // namespace gpushared::corpus
