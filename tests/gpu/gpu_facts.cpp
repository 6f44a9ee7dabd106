// SPDX-License-Identifier: Apache-2.0
// The design's assumptions about a GPU and its driver, verified on the driver itself:
//   * Which calls wait for a running kernel, and block other threads in the meantime?
//   * Where does a block's shared memory begin and end?
//   * Does a word arrive while all other streams are busy?
//   * Can the GPU read sealed shared memory?
//   * How soon is the end of work detected?
//   * In which memory should a word be that stops kernels?
//   * How do slow calls affect the launches of another thread?
//   * What does stream priority achieve next to a long low kernel?
//   * Into which groups of multiprocessors can green contexts divide a GPU?
//   * What do calls, mappings, graphs and faults cost?
//
// gpu_facts [--rows FILE] [--costs FILE] [--ms N] [--limit N] [--only TEXT]
//   --rows FILE   appends the answers; run.sh describes rows.
//   --costs FILE  appends the measured costs of tests/support/fake_cuda/costs.h, for
//                 `gpu_modelled --costs`: lines "name ns  # what".
//   --ms N        time per measurement (200).
//   --limit N     seconds that one question may take (10).
//   --only TEXT   asks only the questions whose names contain TEXT.
//
// Each question has its own process and context, so that a question that hangs is ended at its
// limit, and a question that ends its context does not affect the others.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/gpu/facts.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Returns all questions, the most important ones first.
std::vector<Question> AllQuestions() {
  std::vector<Question> all = SharedQuestions();
  // Separates the two questions that might hang, because two unanswered questions in a row end the
  // program.
  const std::vector<Question> calls = CallQuestions();
  all.insert(all.begin() + 1, calls[1]);
  all.insert(all.begin(), calls[0]);
  for (const auto& list :
       {NeighbourQuestions(), WorkQuestions(), MemoryQuestions(), ContextQuestions()}) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

// Writes why a question was not answered.
void RecordNoAnswer(const std::string& rows, const Question& question, const std::string& why) {
  std::fprintf(stderr, "gpu_facts: %s: %s\n", question.name, why.c_str());
  if (rows.empty()) return;
  std::ofstream(rows, std::ios::app)
      << "facts\t" << question.name << ": answered\t0\t-\trule\t== 1\t" << why << '\n';
}

enum class Answer : std::uint8_t { kYes, kNo, kNever };

Answer AskInChild(const Question& question, const FactsOptions& options,
                  std::chrono::seconds limit) {
  const std::string& rows = options.rows;
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
  if (child == 0) {
    int status = 1;
    try {
      status = question.answer(question, options) ? 0 : 1;
    } catch (const std::exception& error) {
      RecordNoAnswer(rows, question, error.what());
    }
    std::exit(status);
  }
  const auto end = Clock::now() + limit;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      // Does not wait, because a process that hangs inside the driver may survive even SIGKILL.
      ::kill(child, SIGKILL);
      RecordNoAnswer(rows, question, "none after " + std::to_string(limit.count()) + " s");
      return Answer::kNever;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Answer::kYes;
  // The child has reported the reason.
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return Answer::kNo;
  RecordNoAnswer(rows, question,
                 WIFEXITED(status) ? "exit status " + std::to_string(WEXITSTATUS(status))
                                   : "signal " + std::to_string(WTERMSIG(status)));
  return Answer::kNo;
}

// Asks the questions whose names contain `only`.
bool AskAll(const FactsOptions& options, std::chrono::seconds limit, const std::string& only) {
  // A GPU that does not answer twice in a row is assumed to be lost.
  constexpr int kSilentMax = 2;
  bool all = true;
  int silent = 0;
  for (const Question& question : AllQuestions()) {
    if (std::string_view(question.name).find(only) == std::string_view::npos) continue;
    if (silent == kSilentMax) {
      RecordNoAnswer(options.rows, question, "not asked: the GPU no longer answers");
      continue;
    }
    const Answer answer = AskInChild(question, options, limit);
    silent = answer == Answer::kNever ? silent + 1 : 0;
    all &= answer == Answer::kYes;
  }
  return all;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using gpushared::testing::Facts;
  gpushared::testing::FactsOptions options;
  std::string only;
  long limit = 10;
  // A worker sets the same variables before it loads the driver (PrepareEnvironment).
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 0);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (argc == 2 && std::strcmp(argv[1], "--hold-context") == 0) {
    Facts({.ms = 1}).HoldContext();
    return 0;
  }
  bool is_known = argc % 2 == 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i];
    const char* const value = argv[i + 1];
    if (option == "--rows") {
      options.rows = value;
    } else if (option == "--costs") {
      options.costs = value;
    } else if (option == "--only") {
      only = value;
    } else if (option == "--ms") {
      options.ms = std::strtol(value, nullptr, 10);
    } else if (option == "--limit") {
      limit = std::strtol(value, nullptr, 10);
    } else {
      is_known = false;
    }
  }
  if (!is_known || options.ms < 1 || limit < 1) {
    std::fprintf(stderr,
                 "usage: gpu_facts [--rows FILE] [--costs FILE] [--ms N] [--limit N] "
                 "[--only TEXT], N at least 1\n");
    return 2;
  }
  try {
    return gpushared::testing::AskAll(options, std::chrono::seconds(limit), only) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_facts: %s\n", error.what());
    return 1;
  }
}
