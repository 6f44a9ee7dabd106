// SPDX-License-Identifier: Apache-2.0
// Two native programs in one process: both on the primary context, each on its own thread, with
// streams of the lowest priority for the first and of the highest for the second. This arrangement
// represents what an engineer without a server would try first.
//
//   both_native LOW_PROGRAM [options] -- HIGH_PROGRAM [options]
//
// PROGRAM is train, serve or gpu_hog, with the options of its native twin. Exit status 0: both
// succeeded.

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <thread>

#include "tests/gpu/native_priority.h"

// The programs' own main functions, which are compiled under these names.
int RunTrain(int argc, char** argv);
int RunServe(int argc, char** argv);
int RunHog(int argc, char** argv);

namespace gpushared::testing {
namespace {

using MainFunction = int (*)(int, char**);

// The lowest priority in CUDA's numbering, clamped to the context's range.
constexpr int kLeast = std::numeric_limits<int>::max();
constexpr int kGreatest = std::numeric_limits<int>::min();

MainFunction Find(std::span<char*> words) {
  static const std::map<std::string, MainFunction> programs = {
      {"train", &RunTrain}, {"serve", &RunServe}, {"gpu_hog", &RunHog}};
  const auto found = words.empty() ? programs.end() : programs.find(words.front());
  return found == programs.end() ? nullptr : found->second;
}

int Main(std::span<char*> words) {
  const auto mark = std::find(words.begin(), words.end(), std::string("--"));
  const auto low_words = words.first(static_cast<std::size_t>(mark - words.begin()));
  const auto high_words =
      mark == words.end() ? std::span<char*>() : words.subspan(low_words.size() + 1);
  const MainFunction low = Find(low_words), high = Find(high_words);
  if (low == nullptr || high == nullptr) {
    std::fprintf(stderr,
                 "usage: both_native LOW_PROGRAM [options] -- HIGH_PROGRAM [options]; programs are "
                 "train, serve and gpu_hog\n");
    return 2;
  }
  int low_status = 1, high_status = 1;
  const auto run = [](MainFunction program, std::span<char*> arguments, int priority, int* status) {
    SetNativePriority(priority);
    *status = program(static_cast<int>(arguments.size()), arguments.data());
  };
  std::thread low_thread(run, low, low_words, kLeast, &low_status);
  std::thread high_thread(run, high, high_words, kGreatest, &high_status);
  low_thread.join();
  high_thread.join();
  return low_status != 0 ? low_status : high_status;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  return gpushared::testing::Main({argv + 1, static_cast<std::size_t>(argc - 1)});
}
