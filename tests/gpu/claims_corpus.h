// SPDX-License-Identifier: Apache-2.0
// Checks on this GPU whether the programs of the corpus compute the same results when their kernels
// are stopped at random.

#ifndef GPUSHARED_TESTS_GPU_CLAIMS_CORPUS_H_
#define GPUSHARED_TESTS_GPU_CLAIMS_CORPUS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpushared::testing {

// Results of the first programs of the corpus. Texts name the program, and the kernel if a kernel
// failed.
struct CorpusOutcome {
  std::size_t begun = 0;
  std::size_t right = 0;  // Correct without stops.
  // Wrong without stops. Programs with module variables cannot be right.
  std::vector<std::string> wrong;
  std::vector<std::string> different;  // Right without stops, and wrong when stopped at random.
  std::vector<std::string> lost;       // Programs that ended their process: dead context or hang.
  std::uint64_t stopped_half_way = 0;  // Launches that were stopped before their end.
};

std::size_t CorpusSize();

// Runs the first `count` programs, until `end`, each without stops and stopped at random. They run
// in a separate process. If a program ends that process, the following programs run in another one.
CorpusOutcome RunCorpus(std::size_t count, std::chrono::steady_clock::time_point end);

// The separate process of RunCorpus: runs the programs from `first` up to `count`, and prints the
// result of each to stdout. Throws std::runtime_error, naming the kernel, if the context is lost.
void RunCorpusHere(std::size_t first, std::size_t count, std::chrono::seconds limit);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_CLAIMS_CORPUS_H_
