// SPDX-License-Identifier: Apache-2.0
// The cost of gate mode to a launch, the cost of the calls that can mark work, and how two
// processes share a GPU. Each measurement has its own process and limit.
//
// gate_bench --drop-in DIR [--rows FILE] [--ms N] [--limit N]
//   Launches through the driver alone and through the library in DIR, alternating; costs of calls.
// gate_bench --pair [--under TEXT] [--rows FILE] [--ms N] [--limit N]
//   Two processes. The environment decides whether they run under MPS; TEXT names it in the rows.
//   --ms N      time per measurement (300).
//   --limit N   seconds that one measurement may take (20).
//
// Rows have the format of run.sh. Exit status 0: every measurement succeeded.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/gate_probes.h"
#include "tests/gpu/part_of_rows.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string drop_in, rows, under = "as the environment says";
  ProbeTime time{300};
  std::chrono::seconds limit{20};
  bool is_pair = false;
};

constexpr int kRounds = 3;  // Rounds of launches, natively and through the gate.

// ---- rows

class Rows {
 public:
  explicit Rows(const std::string& path) {
    if (path.empty()) return;
    file_.open(path, std::ios::app);
    if (!file_) throw std::runtime_error("cannot write '" + path + "'");
  }
  void Add(const std::string& what, const std::string& value, const std::string& unit,
           const std::string& note = "", const std::string& kind = "fact",
           const std::string& must = "-") {
    std::printf("%-64s %12s %s %s\n", what.c_str(), value.c_str(), unit.c_str(), note.c_str());
    std::fflush(stdout);
    if (!file_.is_open()) return;
    std::string clean = note;
    std::ranges::replace_if(
        clean, [](char c) { return c == '\t' || c == '\n'; }, ' ');
    file_ << PartOfRows("gate") << '\t' << what << '\t' << value << '\t' << unit << '\t' << kind
          << '\t' << must << '\t' << clean << '\n'
          << std::flush;
  }
  void Rule(const std::string& what, bool holds, const std::string& note = "") {
    Add(what, holds ? "1" : "0", "-", note, "rule", "== 1");
  }

 private:
  std::ofstream file_;
};

std::string Number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

double GetNumber(const Measured& measured, const std::string& name) {
  const auto found = measured.find(name);
  if (found == measured.end()) throw std::runtime_error("no answer to '" + name + "'");
  return std::strtod(found->second.c_str(), nullptr);
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// ---- processes

// A probe in a separate process. It answers with lines of a name, a tab and a value.
class ProbeProcess {
 public:
  ProbeProcess(std::vector<std::string> arguments, const std::vector<std::string>& variables) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
    arguments.insert(arguments.begin(), {"gate_bench", "--probe"});
    std::vector<char*> list;
    for (std::string& argument : arguments) list.push_back(argument.data());
    list.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(ends[1], STDOUT_FILENO);
      for (const std::string& variable : variables) ::putenv(::strdup(variable.c_str()));
      ::execv("/proc/self/exe", list.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    from_ = ends[0];
    if (pid_ < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
  }
  ~ProbeProcess() {
    ::close(from_);
    if (pid_ < 0) return;
    // Does not wait, because a process that hangs inside the driver may survive even SIGKILL.
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, WNOHANG);
  }
  ProbeProcess(const ProbeProcess&) = delete;
  ProbeProcess& operator=(const ProbeProcess&) = delete;

  // Throws std::runtime_error if the probe fails, or does not exit by `end`.
  Measured Wait(Clock::time_point end) {
    std::string text;
    for (std::array<char, 4096> piece{};;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      pollfd waited{.fd = from_, .events = POLLIN, .revents = 0};
      const int ready = left > 0 ? ::poll(&waited, 1, static_cast<int>(left)) : 0;
      if (ready < 0 && errno == EINTR) continue;
      if (ready <= 0) throw std::runtime_error("no answer within its limit");
      const ssize_t count = ::read(from_, piece.data(), piece.size());
      if (count <= 0) break;
      text.append(piece.data(), static_cast<std::size_t>(count));
    }
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    Measured measured;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t tab = line.find('\t');
      if (tab != std::string::npos) measured[line.substr(0, tab)] = line.substr(tab + 1);
    }
    if (const auto error = measured.find("error"); error != measured.end()) {
      throw std::runtime_error(error->second);
    }
    if (status == 0) return measured;
    throw std::runtime_error(WIFSIGNALED(status)
                                 ? "signal " + std::to_string(WTERMSIG(status))
                                 : "exit status " + std::to_string(WEXITSTATUS(status)));
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
};

// A Pair in memory that the probes inherit through its descriptor.
class SharedPair {
 public:
  SharedPair() : file_(::memfd_create("gate_bench pair", 0)) {
    if (file_ < 0 || ::ftruncate(file_, sizeof(Pair)) != 0) {
      throw std::runtime_error(std::string("no memfd: ") + std::strerror(errno));
    }
  }
  ~SharedPair() { ::close(file_); }
  SharedPair(const SharedPair&) = delete;
  SharedPair& operator=(const SharedPair&) = delete;
  std::string descriptor() const { return std::to_string(file_); }

 private:
  const int file_;
};

// ---- measurements

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), rows_(options.rows) {}

  bool Single() {
    Ask("launches", [&] { Launches(); });
    Ask("calls for marks", [&] { Marks(); });
    return is_whole_;
  }
  bool Two() {
    Ask("two processes, " + options_.under, [&] { TwoProcesses(); });
    return is_whole_;
  }

 private:
  void Ask(const std::string& name, const std::function<void()>& question) {
    std::string why;
    try {
      question();
    } catch (const std::exception& error) {
      why = error.what();
      is_whole_ = false;
    }
    rows_.Rule("gate_bench, " + name + ": answered", why.empty(), why);
  }

  Measured Run(const std::string& probe, const std::vector<std::string>& variables = {}) const {
    ProbeProcess process({probe, TimeText()}, variables);
    return process.Wait(Clock::now() + options_.limit);
  }
  std::string TimeText() const { return std::to_string(options_.time.count()); }

  std::vector<std::string> Gated() const {
    const char* const path = std::getenv("LD_LIBRARY_PATH");
    return {"LD_LIBRARY_PATH=" + options_.drop_in +
                (path == nullptr || *path == '\0' ? "" : ":" + std::string(path)),
            "GPUSHARED_MODE=gate"};
  }

  void Launches() {
    const double alone = GetNumber(Run("launches"), "p50");
    std::vector<double> native, gated, more;
    std::string library;
    for (int i = 0; i < kRounds; ++i) {
      Measured through = Run("launches", Gated());
      native.push_back(GetNumber(through, "native p50"));
      gated.push_back(GetNumber(through, "p50"));
      more.push_back(gated.back() - native.back());
      library = through["library"];
    }
    std::array<char, PATH_MAX> real{};
    const bool is_known = ::realpath(options_.drop_in.c_str(), real.data()) != nullptr;
    std::array<char, PATH_MAX> served{};
    const bool is_served = ::realpath(library.c_str(), served.data()) != nullptr;
    rows_.Rule("launches of gate_bench pass the gate",
               is_known && is_served &&
                   std::string(served.data()).starts_with(std::string(real.data()) + "/"),
               library);
    rows_.Add("ns per launch: native", Number(Median(native)), "ns",
              "p50, median of rounds; " + Number(alone) + " in a process without a gate");
    rows_.Add("ns per launch: through the gate", Number(Median(gated)), "ns",
              "in turns with the native ones of the same processes");
    rows_.Add("ns per launch: more through the gate", Number(Median(more)), "ns", "", "figure",
              "<= 50");
  }

  void Marks() {
    Measured measured = Run("marks");
    const auto row = [&](const std::string& what, const std::string& name, double per,
                         const std::string& unit) {
      if (measured.contains(name)) {
        rows_.Add(what, Number(GetNumber(measured, name) / per), unit, "p50");
      } else {
        rows_.Add(what, "none", unit, "the driver lacks the call");
      }
    };
    const std::string write = "cuStreamWriteValue32 into registered pages of a memfd";
    row("ns per call: " + write, "write", 1, "ns");
    row(write + ": seen by the host after", "seen", 1e3, "us");
    row("ns per call: cuEventRecord", "record", 1, "ns");
    row("ns per call: cuEventQuery", "query", 1, "ns");
    row("ns per call: cuStreamIsCapturing", "is capturing", 1, "ns");
  }

  // Returns the measurements of side 0.
  Measured RunPair(const std::string& probe) const {
    const SharedPair pair;
    ProbeProcess first({probe, TimeText(), pair.descriptor(), "0"}, {});
    ProbeProcess second({probe, TimeText(), pair.descriptor(), "1"}, {});
    const auto end = Clock::now() + options_.limit;
    Measured measured = first.Wait(end);
    (void)second.Wait(end);
    return measured;
  }

  void TwoProcesses() {
    const Measured alone = Run("alone");
    const std::string note =
        alone.at("mps") == "1" ? "clients of MPS" : "no clients of MPS, as the driver says";
    const auto rows = [&](const std::string& what, const Measured& pair, const char* name) {
      const double p50 = GetNumber(pair, "p50") / 1e3;
      rows_.Add(what + ", p50", Number(p50), "us", note);
      rows_.Add(what + ", p99", Number(GetNumber(pair, "p99") / 1e3), "us");
      rows_.Add(what + ", p50: more than alone", Number(p50 - GetNumber(alone, name) / 1e3), "us",
                "alone " + Number(GetNumber(alone, name) / 1e3));
    };
    rows("20 us kernels of two processes in turns, " + options_.under, RunPair("turns"), "kernel");
    rows("null kernel beside another process's 20 us kernels, " + options_.under, RunPair("beside"),
         "null");
  }

  const Options options_;
  Rows rows_;
  bool is_whole_ = true;
};

// ---- the probe's side

Measured RunProbe(const std::vector<std::string>& arguments) {
  if (arguments.size() < 2) throw std::runtime_error("a probe needs a name and a time");
  const std::string& name = arguments[0];
  const ProbeTime time(std::strtol(arguments[1].c_str(), nullptr, 10));
  if (name == "launches") return ProbeLaunches(time);
  if (name == "marks") return ProbeMarks(time);
  if (name == "alone") return ProbeAlone(time);
  if (arguments.size() != 4) throw std::runtime_error("no probe '" + name + "' of one process");
  void* const memory = ::mmap(nullptr, sizeof(Pair), PROT_READ | PROT_WRITE, MAP_SHARED,
                              static_cast<int>(std::strtol(arguments[2].c_str(), nullptr, 10)), 0);
  if (memory == MAP_FAILED) throw std::runtime_error(std::strerror(errno));
  // The pages are zero, which is the initial state.
  Pair& pair = *std::launder(static_cast<Pair*>(memory));
  const unsigned side = arguments[3] == "0" ? 0 : 1;
  if (name == "turns") return ProbeTurns(time, pair, side);
  if (name == "beside") return ProbeBeside(time, pair, side);
  throw std::runtime_error("no probe '" + name + "'");
}

int Probe(const std::vector<std::string>& arguments) {
  Measured measured;
  try {
    measured = RunProbe(arguments);
  } catch (const std::exception& error) {
    measured = {{"error", error.what()}};
  }
  for (const auto& [name, value] : measured) std::printf("%s\t%s\n", name.c_str(), value.c_str());
  return 0;
}

// Returns false if an argument is not understood.
bool Parse(const std::vector<std::string>& arguments, Options& options) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--pair") {
      options.is_pair = true;
      continue;
    }
    if (++i == arguments.size()) return false;
    const std::string& value = arguments[i];
    const long number = std::strtol(value.c_str(), nullptr, 10);
    if (name == "--drop-in") {
      options.drop_in = value;
    } else if (name == "--rows") {
      options.rows = value;
    } else if (name == "--under") {
      options.under = value;
    } else if (name == "--ms" && number > 0) {
      options.time = ProbeTime(number);
    } else if (name == "--limit" && number > 0) {
      options.limit = std::chrono::seconds(number);
    } else {
      return false;
    }
  }
  return options.is_pair != !options.drop_in.empty();
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "--probe") {
    return gpushared::testing::Probe({arguments.begin() + 1, arguments.end()});
  }
  gpushared::testing::Options options;
  if (!gpushared::testing::Parse(arguments, options)) {
    std::fprintf(stderr,
                 "usage: gate_bench --drop-in DIR | --pair [--under TEXT], [--rows FILE] [--ms N] "
                 "[--limit N], N at least 1\n");
    return 2;
  }
  try {
    gpushared::testing::Bench bench(options);
    return (options.is_pair ? bench.Two() : bench.Single()) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gate_bench: %s\n", error.what());
    return 1;
  }
}
