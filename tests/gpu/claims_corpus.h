// SPDX-License-Identifier: Apache-2.0
// The programs of the corpus on this GPU: do they compute the same when their kernels are stopped
// at random?

#ifndef GPUSHARED_TESTS_GPU_CLAIMS_CORPUS_H_
#define GPUSHARED_TESTS_GPU_CLAIMS_CORPUS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpushared::testing {

// What became of the first programs of the corpus. Texts name the program, and the kernel where one
// is to blame.
struct CorpusOutcome {
  std::size_t begun = 0;
  std::size_t right = 0;               // As they are.
  std::vector<std::string> wrong;      // As they are. Those with variables cannot be right.
  std::vector<std::string> different;  // Right as they are, and not when stopped at random.
  std::vector<std::string> lost;       // They ended their process: a dead context, a hang.
  std::uint64_t stopped_half_way = 0;  // Launches.
};

// How many there are.
std::size_t CorpusSize();

// Runs the first `count` programs, until `end`, each as it is and stopped at random. They run in a
// process of their own, and those behind a program that ended it in another one.
CorpusOutcome RunCorpus(std::size_t count, std::chrono::steady_clock::time_point end);

// That process: runs the programs from `first` up to `count`, and writes what becomes of each to
// its stdout. Throws std::runtime_error, naming the kernel, where the context is lost.
void RunCorpusHere(std::size_t first, std::size_t count, std::chrono::seconds limit);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_CLAIMS_CORPUS_H_
