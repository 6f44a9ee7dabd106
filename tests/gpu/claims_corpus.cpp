// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/claims_corpus.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <stdexcept>
#include <string_view>

#include "tests/corpus/corpus.h"
#include "tests/corpus/runtime.h"
#include "tests/gpu/claims_gpu.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::uint64_t kGroupBlocks = 256;
// After this many lost contexts the run ends, because the GPU rather than the programs must be at
// fault.
constexpr std::size_t kLostMax = 8;

// The process that runs programs prints lines that consist of one of these words, a blank and
// details.
constexpr std::string_view kBegun = "begun", kRight = "right", kWrong = "wrong",
                           kDifferent = "different", kStopped = "stopped";

std::vector<corpus::Program> Programs(std::size_t count) {
  std::vector<corpus::Program> all;
  for (const auto& list :
       {corpus::OwnPrograms(), corpus::ToolkitPrograms(), corpus::CubPrograms()}) {
    all.insert(all.end(), list.begin(), list.end());
  }
  if (all.size() > count) all.resize(count);
  return all;
}

// Runs the corpus's launches on the GPU. They use the corpus's memory in this process, which is
// registered with the GPU.
class GpuBackend : public corpus::Backend {
 public:
  explicit GpuBackend(Gpu& gpu) : gpu_(gpu) {}
  Status Run(const corpus::KernelLaunch& launch) override {
    const device::Module*& module = modules_[launch.module];
    if (module == nullptr) module = &gpu_.Load(launch.module->text);
    device::LaunchWork work = gpu_.Work(*module, launch.program->info().name, launch.grid,
                                        launch.block, launch.parameters);
    work.dynamic_shared_bytes = launch.dynamic_shared_bytes;
    work.is_cooperative = launch.is_cooperative;
    work.may_be_stopped = stops_;
    const std::string kernel = "kernel '" + launch.program->info().name + "', " +
                               (stops_ ? "stopped at random" : "as it is");
    // Doubles the time before the next stop, so that the launch ends eventually.
    for (auto wait = microseconds(5);; wait *= 2) {
      gpu_.Submit(work);
      if (stops_) {
        const auto until = Clock::now() + random_() % 100 * wait / 100;
        while (Clock::now() < until) {
        }
        gpu_.device().RequestStop(work.id);
      }
      const device::Completion completion = gpu_.AwaitAny(kernel);
      const Status& status = completion.status;
      if (status.code() == StatusCode::kDeviceLost) {
        throw std::runtime_error(kernel + ": " + status.message());
      }
      if (!status.ok()) return {status.code(), kernel + ": " + status.message()};
      if (!completion.stopped) return {};
      stopped_ += completion.units_done > work.first_unit ? 1 : 0;
      work.first_unit = completion.units_done;
    }
  }
  void StopAtRandom(bool stops) { stops_ = stops; }
  std::uint64_t stopped() const { return stopped_; }

 private:
  Gpu& gpu_;
  std::map<const corpus::LoadedModule*, const device::Module*> modules_;
  std::mt19937 random_{1};
  bool stops_ = false;
  std::uint64_t stopped_ = 0;
};

// Prints a line, and flushes it because the program that runs next may end the process.
void PrintLine(std::string_view word, std::string rest) {
  std::ranges::replace(rest, '\n', ' ');
  std::printf("%.*s %s\n", static_cast<int>(word.size()), word.data(), rest.c_str());
  std::fflush(stdout);
}

// Collects the lines that one process prints.
class Reader {
 public:
  explicit Reader(CorpusOutcome& outcome) : outcome_(outcome) {}

  void Take(std::string line) {
    if (line.ends_with('\n')) line.pop_back();
    const std::size_t blank = line.find(' ');
    const std::string_view word = std::string_view(line).substr(0, blank);
    const std::string rest = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (word == kBegun) {
      ++outcome_.begun;
      program_ = rest;
      last_words_.clear();
    } else if (word == kRight) {
      ++outcome_.right;
    } else if (word == kWrong) {
      outcome_.wrong.push_back(program_ + ": " + rest);
    } else if (word == kDifferent) {
      outcome_.different.push_back(program_ + ": " + rest);
    } else if (word == kStopped) {
      outcome_.stopped_half_way += std::stoull(rest);
    } else {
      std::fprintf(stderr, "%s\n", line.c_str());
      last_words_ = line;
    }
  }
  // Records that the process has ended within a program.
  void TakeLoss(int status) {
    if (last_words_.empty()) {
      last_words_ = WIFSIGNALED(status)
                        ? "its process ended by signal " + std::to_string(WTERMSIG(status))
                        : "its process ended with status " + std::to_string(WEXITSTATUS(status));
    }
    if (program_.empty()) throw std::runtime_error("programs of the corpus: " + last_words_);
    outcome_.lost.push_back(program_ + ": " + last_words_);
  }

 private:
  CorpusOutcome& outcome_;
  std::string program_;     // The program that was begun last.
  std::string last_words_;  // The last other line since then, such as an error message.
};

// Runs the programs from `first` on in one process. Returns false if the process ended before the
// last program.
bool RunInProcess(std::size_t first, std::size_t count, std::chrono::seconds limit,
                  CorpusOutcome& outcome) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "exec '" + self + "' --part corpus --first " + std::to_string(first) +
                              " --programs " + std::to_string(count) + " --seconds " +
                              std::to_string(limit.count()) + " 2>&1";
  std::FILE* const from = ::popen(command.c_str(), "r");
  if (from == nullptr) throw std::runtime_error("no process for programs of the corpus");
  Reader reader(outcome);
  char* line = nullptr;
  std::size_t room = 0;
  while (::getline(&line, &room, from) >= 0) reader.Take(line);
  std::free(line);
  const int status = ::pclose(from);
  if (status != 0) reader.TakeLoss(status);
  return status == 0;
}

}  // namespace

std::size_t CorpusSize() { return Programs(std::string::npos).size(); }

CorpusOutcome RunCorpus(std::size_t count, Clock::time_point end) {
  CorpusOutcome outcome;
  for (bool all = false; !all && outcome.lost.size() < kLostMax;) {
    const auto left = std::chrono::floor<std::chrono::seconds>(end - Clock::now());
    if (left.count() < 1) break;
    all = RunInProcess(outcome.begun, count, left, outcome);
  }
  return outcome;
}

void RunCorpusHere(std::size_t first, std::size_t count, std::chrono::seconds limit) {
  const auto end = Clock::now() + limit;
  corpus::Runtime& runtime = corpus::Runtime::Instance();
  Gpu gpu(kGroupBlocks, device::Isolation::kOff);
  // With unified addressing the GPU accesses the memory at the same addresses.
  const auto pinned =
      gpu.device().Pin({runtime.used_memory().data(), corpus::Runtime::kMemoryBytes});
  if (!pinned.ok()) throw std::runtime_error("pinning: " + pinned.status().message());
  GpuBackend backend(gpu);
  runtime.SetBackend(&backend);
  const std::vector<corpus::Program> programs = Programs(count);
  for (std::size_t i = first; i < programs.size() && Clock::now() < end; ++i) {
    PrintLine(kBegun, programs[i].name);
    backend.StopAtRandom(false);
    // Programs with module variables cannot be right, because the host code would access different
    // variables from the kernel's.
    if (const std::string what = corpus::RunProgram(programs[i]); !what.empty()) {
      PrintLine(kWrong, what);
      continue;
    }
    PrintLine(kRight, "");
    const std::uint64_t before = backend.stopped();
    backend.StopAtRandom(true);
    const std::string what = corpus::RunProgram(programs[i]);
    if (!what.empty()) PrintLine(kDifferent, what);
    PrintLine(kStopped, std::to_string(backend.stopped() - before));
  }
  runtime.SetBackend(nullptr);
}

}  // namespace gpushared::testing
