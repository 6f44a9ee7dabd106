// SPDX-License-Identifier: Apache-2.0
// The corpus: programs in CUDA C++ (kernels, the host code that launches them, and a host
// reference), built with nvcc and run without a GPU. Tests of the executor run them unmodified;
// tests of passes give Runtime a backend that runs transformed kernels.

#ifndef GPUSHARED_TESTS_CORPUS_CORPUS_H_
#define GPUSHARED_TESTS_CORPUS_CORPUS_H_

#include <ostream>
#include <span>
#include <string>

namespace gpushared::corpus {

struct Program {
  const char* name;
  // Launches kernels on new but deterministic inputs and compares the results: returns the error,
  // or "".
  std::string (*run)();

  // Makes a failing test print its name instead of addresses.
  friend void PrintTo(const Program& program, std::ostream* out) { *out << program.name; }
};

// One entry per program: small kernels of our own (kernels/), and programs that use the headers of
// the CUDA toolkit (programs/). Names are unique.
std::span<const Program> OwnPrograms();
std::span<const Program> ToolkitPrograms();
// Programs that use CUB and Thrust. They are in the separate library gpushared_corpus_cub, which
// only the stage `long` builds, because nvcc takes a minute for them.
std::span<const Program> CubPrograms();

// Resets Runtime::Instance() and runs a program on it; returns the error, or "".
std::string RunProgram(const Program& program);

}  // namespace gpushared::corpus

#endif  // GPUSHARED_TESTS_CORPUS_CORPUS_H_
