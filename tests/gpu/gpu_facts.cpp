// SPDX-License-Identifier: Apache-2.0
// The assumptions of the design about a GPU and its driver, asked of the driver itself:
//   * Can the GPU read sealed shared memory?
//   * How soon is the end of work seen?
//   * Where does a word that stops kernels belong?
//   * What do slow calls do to the launches of another thread?
//   * What does stream priority give beside a long low kernel?
//   * How many multiprocessors do green contexts hand out?
//   * What do calls cost, and mappings, graphs, faults?
//
// gpu_facts [--rows FILE] [--ms N] [--limit N]
//   --ms N      time per measurement (200).
//   --limit N   seconds that one question may take (10).
//
// Each question has a process and a context of its own. So one that hangs costs its limit, and one
// that ends its context leaves the others theirs.

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
#include <thread>
#include <vector>

#include "tests/gpu/facts.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;

// The questions that decide most come first.
std::vector<Question> AllQuestions() {
  std::vector<Question> all;
  for (const auto& list :
       {MemoryQuestions(), WorkQuestions(), NeighbourQuestions(), ContextQuestions()}) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

// Says why a question was not answered.
void NoteNoAnswer(const std::string& rows, const Question& question, const std::string& why) {
  std::fprintf(stderr, "gpu_facts: %s: %s\n", question.name, why.c_str());
  if (rows.empty()) return;
  std::ofstream(rows, std::ios::app)
      << "facts\t" << question.name << ": answered\t0\t-\trule\t== 1\t" << why << '\n';
}

enum class Answer : std::uint8_t { kYes, kNo, kNever };

Answer AskInChild(const Question& question, const std::string& rows, long ms,
                  std::chrono::seconds limit) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
  if (child == 0) {
    int status = 1;
    try {
      status = question.answer(question, rows, ms) ? 0 : 1;
    } catch (const std::exception& error) {
      NoteNoAnswer(rows, question, error.what());
    }
    std::exit(status);
  }
  const auto end = Clock::now() + limit;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      // One that hangs inside of the driver may outlive even this: it is not waited for.
      ::kill(child, SIGKILL);
      NoteNoAnswer(rows, question, "none after " + std::to_string(limit.count()) + " s");
      return Answer::kNever;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Answer::kYes;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return Answer::kNo;  // It has said why.
  NoteNoAnswer(rows, question,
               WIFEXITED(status) ? "exit status " + std::to_string(WEXITSTATUS(status))
                                 : "signal " + std::to_string(WTERMSIG(status)));
  return Answer::kNo;
}

bool AskAll(const std::string& rows, long ms, std::chrono::seconds limit) {
  // A GPU that does not answer twice in a row is taken to be gone.
  constexpr int kSilentMax = 2;
  bool all = true;
  int silent = 0;
  for (const Question& question : AllQuestions()) {
    if (silent == kSilentMax) {
      NoteNoAnswer(rows, question, "not asked: the GPU no longer answers");
      continue;
    }
    const Answer answer = AskInChild(question, rows, ms, limit);
    silent = answer == Answer::kNever ? silent + 1 : 0;
    all &= answer == Answer::kYes;
  }
  return all;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  std::string rows;
  long ms = 200;
  long limit = 10;
  if (argc == 2 && std::strcmp(argv[1], "--hold-context") == 0) {
    gpushared::testing::Facts({}, 1).HoldContext();
    return 0;
  }
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--rows") == 0) rows = argv[i + 1];
    if (std::strcmp(argv[i], "--ms") == 0) ms = std::strtol(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--limit") == 0) limit = std::strtol(argv[i + 1], nullptr, 10);
  }
  if (argc % 2 == 0 || ms < 1 || limit < 1) {
    std::fprintf(stderr, "usage: gpu_facts [--rows FILE] [--ms N] [--limit N], N at least 1\n");
    return 2;
  }
  try {
    return gpushared::testing::AskAll(rows, ms, std::chrono::seconds(limit)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_facts: %s\n", error.what());
    return 1;
  }
}
