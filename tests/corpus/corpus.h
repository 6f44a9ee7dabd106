// SPDX-License-Identifier: Apache-2.0
// The corpus: programs in CUDA C++ (kernels, the host code that launches them, and a
// host reference), built with nvcc and run without a GPU. Tests of the executor run them
// as they are; tests of passes give Runtime a backend that runs transformed kernels.

#ifndef GPUSHARED_TESTS_CORPUS_CORPUS_H_
#define GPUSHARED_TESTS_CORPUS_CORPUS_H_

#include <ostream>
#include <span>
#include <string>

namespace gpushared::corpus {

struct Program {
  const char* name;
  // Launches kernels on new inputs, always the same, and compares: what is wrong, or "".
  std::string (*run)();

  // A failing test prints its name instead of addresses.
  friend void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }
};

// One entry per program: small kernels of our own (kernels/), and programs over the
// headers of the CUDA toolkit (programs/). Names are unique.
std::span<const Program> OwnPrograms();
std::span<const Program> ToolkitPrograms();
// Those over CUB and Thrust. nvcc takes a minute for them, so the library gpushared_corpus_cub has
// them, which only the stage `long` builds.
std::span<const Program> CubPrograms();

// Runs a program on Runtime::Instance(), which it resets before: what went wrong, or "".
std::string RunProgram(const Program& program);

}  // namespace gpushared::corpus

#endif  // GPUSHARED_TESTS_CORPUS_CORPUS_H_
