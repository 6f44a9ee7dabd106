// SPDX-License-Identifier: Apache-2.0
// The cost of sharing on a GPU: each operation through the client library and through the driver's
// own calls, alternating, in two processes of the same run. The server is the one that the client
// library finds.
//
// gpu_bench [--rows FILE] [--json FILE] [--ms N] [--bytes-max N] [--worker PID]
//   --rows FILE     appends the judged results; run.sh describes rows.
//   --json FILE     all percentiles.
//   --ms N          time per operation, side and round (80).
//   --bytes-max N   largest copy (1 GiB).
//   --worker PID    measures a restart too, by killing this worker of the server.
//   --limit N       time for one answer of a process, in s (20).
//   --only-shared LABEL  only null launches through the server, in rows that begin with the label.
//   --only-low LABEL     only a low client's kernels back to back, in rows that begin with LABEL.
//   --only-native LABEL  only a kernel next to another process's kernels, both through the driver.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/bench/report.h"
#include "tests/gpu/child.h"
#include "tests/gpu/part_of_rows.h"

namespace gpushared::testing {
namespace {

constexpr int kRounds = 2;
constexpr double kSubmitMaxNs = 2000;
constexpr std::size_t kSmallCopyBytesMax = std::size_t{16} << 20;
// A process that no longer answers is replaced, so that later operations are still measured, but
// only a few times, because each replacement costs its limit.
constexpr int kReplacedMax = 3;
// A session waits up to 30 s after the death of a worker (gpu_ops.cpp).
constexpr std::chrono::seconds kRestartLimit{40};
// Kernels that are preemptible between blocks have blocks of this length, as in gpu_claims.
constexpr int kBlockUs = 20;

struct Options {
  std::string rows, json, worker, only_shared, only_low, only_native;
  long ms = 80;
  long limit = 20;
  std::size_t bytes_max = std::size_t{1} << 30;
};

std::string Text(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// The requirement on an operation: none, a bound on native time / shared time, or a bound in ns.
struct Promise {
  double ratio_least = 0;
  double shared_most_ns = 0;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    if (options.rows.empty()) return;
    rows_.open(options.rows, std::ios::app);
    if (!rows_) throw std::runtime_error("cannot write '" + options.rows + "'");
  }

  // Returns the message about a run that has failed.
  std::string Complaint() const {
    return std::to_string(failures_) + " measurements failed, the first: " + first_failure_;
  }
  bool Run() {
    if (!options_.only_shared.empty()) {
      NullLaunches();
      return failures_ == 0;
    }
    (void)Native().Ask("device");
    const double per_us = Native().Ask("calibrate").at(0);
    wave_per_us_ = Native().Ask("calibrate_waves").at(0);
    if (!options_.only_native.empty()) {
      BesideAnotherProcess(per_us);
      return failures_ == 0;
    }
    if (options_.only_low.empty()) LowRates("a low client alone", per_us, 0.99, false);
    (void)Shared().Ask("device");  // From here on a high session exists.
    if (!options_.only_low.empty()) {
      LowRates(options_.only_low, per_us, 0.93, false);
      return failures_ == 0;
    }
    LowRates("a low client beside an idle high session", per_us, 0.95, true);
    const std::string ms = std::to_string(options_.ms);
    Compare("null launch: submit, of the caller's time", "submit " + ms,
            {.shared_most_ns = kSubmitMaxNs});
    Compare("null launch: round trip", "round_trip 0 " + ms, {});
    for (const int us : {0, 10, 100}) {
      const std::string iterations = Text("%.0f", per_us * us);
      Compare(
          us == 0 ? "null launch: back to back" : std::to_string(us) + " us kernel: back to back",
          "rate " + iterations + ' ' + ms, {.ratio_least = us == 0 ? 0.80 : 0.99});
    }
    Compare("1000 us kernel: round trip", "round_trip " + Text("%.0f", per_us * 1000) + ' ' + ms,
            {.ratio_least = 0.99});
    BesideLowKernels();
    Compare("session: from nothing to the end of the first launch", "connect", {});
    Killed();
    Copies(4096, kSmallCopyBytesMax);
    CopiesOfLesserClasses();
    if (!options_.worker.empty()) Restart();
    // The longest copies come last, because they are the first to exceed a time limit.
    Copies(kSmallCopyBytesMax * 16, std::size_t{256} << 20);
    Copies(std::size_t{1} << 30, std::size_t{1} << 30);
    report_.Print();
    return failures_ == 0;
  }

 private:
  // Measures copies of `first` bytes, and 16 times as many, and so on up to `last`.
  void Copies(std::size_t first, std::size_t last) {
    for (std::size_t bytes = first; bytes <= std::min(last, options_.bytes_max); bytes *= 16) {
      for (const char* direction : {"to_device", "to_host"}) {
        for (const char* memory : {"pinned", "pageable"}) {
          for (const char* mode : {"sync", "async"}) GetCopy(direction, memory, mode, bytes);
        }
      }
    }
  }

  // Measures copies of a client that is not high. Unlike a high client's, they are submitted in
  // pieces, so that they can be preempted.
  void CopiesOfLesserClasses() {
    const std::size_t bytes = std::min(kSmallCopyBytesMax, options_.bytes_max);
    for (const char* of_class : {"normal", "low"}) {
      for (const char* direction : {"to_device", "to_host"}) {
        const std::string what = std::string("copy ") + direction + ", pinned, async, " +
                                 SizeText(bytes) + ", of a " + of_class + " client";
        try {
          Child client("gpu_ops_shared", of_class, limit_);
          const std::string question = std::string("copy ") + direction + " pinned async " +
                                       std::to_string(bytes) + ' ' + std::to_string(options_.ms);
          const Samples native = Ask(Native(), question), shared = Ask(client, question);
          Add(what, shared);
          Row(what, native.Percentile(0.5) / shared.Percentile(0.5), "native/shared", "fact", "-",
              BothSides(native, shared));
        } catch (const std::exception& error) {
          Failed(what, error);
        }
      }
    }
  }

  // Compares a low client's kernels back to back with native ones of the same length. An isolated
  // client's kernels take longer for the same work, so the client calibrates them itself.
  void LowRates(const std::string& label, double per_us, double least, bool has_waves) {
    const std::string ms = ' ' + std::to_string(options_.ms);
    try {
      Child low("gpu_ops_shared", "low", limit_);
      const auto compare = [&](const std::string& what, const std::string& question,
                               double native_iterations, double low_iterations) {
        Samples native, shared;
        for (int round = 0; round < kRounds; ++round) {
          for (const double each : Native().Ask(question + Text("%.0f", native_iterations) + ms))
            native.Add(each);
          for (const double each : low.Ask(question + Text("%.0f", low_iterations) + ms))
            shared.Add(each);
        }
        Add(label + ", " + what, shared);
        Row(label + ", " + what, native.Percentile(0.5) / shared.Percentile(0.5), "native/shared",
            "figure", Text(">= %.2f", least), BothSides(native, shared));
      };
      const double low_per_us = low.Ask("calibrate").at(0);
      for (const int us : {20, 50, 100, 300}) {
        compare(std::to_string(us) + " us kernels back to back", "rate ", per_us * us,
                low_per_us * us);
      }
      if (!has_waves) return;
      // These run as their preemptible forms.
      const double low_wave_per_us = low.Ask("calibrate_waves").at(0);
      compare("300 us kernels of 20 us blocks", "rate_waves 15 ", wave_per_us_ * kBlockUs,
              low_wave_per_us * kBlockUs);
    } catch (const std::exception& error) {
      Failed(label, error);
    }
  }

  // Measures how long a kernel waits for non-preemptible work: machine code of another process that
  // fills the GPU.
  void BesideAnotherProcess(double per_us) {
    const std::string kernel = "round_trip " + Text("%.0f", per_us * 1000) + ' ';
    const std::string label = options_.only_native + ", native 1 ms kernel: round trip";
    try {
      const Samples alone = Ask(Native(), kernel + std::to_string(2 * options_.ms));
      Fact(label + " alone", alone);
      for (const int length_ms : {0, 1, 3, 10, 50}) {
        Child other("gpu_ops_native", "", limit_);
        (void)other.Ask("keep_occupied 1 " + Text("%.0f", wave_per_us_ * 1000 * length_ms));
        // Allows about ten of the longest waits.
        const long limit = options_.ms * std::max(5, 2 * length_ms / 3);
        const Samples beside = Ask(Native(), kernel + std::to_string(limit));
        Fact(label + " beside another process's kernels of " + std::to_string(length_ms) + " ms",
             beside);
        if (length_ms > 0) continue;
        // If the two processes alternate, each waits for the other's time slice.
        Fact(options_.only_native +
                 ", native null launch: round trip beside null kernels of "
                 "another process, with the switches between contexts",
             Ask(Native(), "round_trip 0 " + std::to_string(5 * options_.ms)));
      }
    } catch (const std::exception& error) {
      Failed(label, error);
    }
  }
  void Fact(const std::string& what, const Samples& samples) {
    Add(what, samples);
    Row(what + ", p99", samples.Percentile(0.99) / 1e3, "us", "fact", "-",
        "p50 " + Text("%.3f", samples.Percentile(0.5) / 1e3) + " us, worst " +
            Text("%.3f", samples.Percentile(1) / 1e3) + " us");
  }

  // Measures the effect of a low client's death during its kernels on a high client, and on the
  // next low client.
  void Killed() {
    const std::string what = "a low client killed amid its kernels: ";
    try {
      Samples samples;
      {
        Child low("gpu_ops_shared", "low", limit_);
        (void)low.Ask("keep_occupied 1 " + Text("%.0f", wave_per_us_ * 1000));
        (void)Ask(Shared(), "round_trip 0 20");  // Long enough for the kernel to begin.
        low.Kill();
        samples = Ask(Shared(), "round_trip 0 " + std::to_string(4 * options_.ms));
      }
      Add(what + "a high client's round trip", samples);
      Row(what + "a high client's round trip", samples.Percentile(1) / 1e3, "us worst", "fact", "-",
          "p99 " + Text("%.3f", samples.Percentile(0.99) / 1e3) + " us");
      Child next("gpu_ops_shared", "low", limit_);
      (void)next.Ask("round_trip 0 1");
      Row(what + "the next computes", 1, "-", "rule", "== 1", "");
    } catch (const std::exception& error) {
      Failed(what + "the next computes", error);
    }
  }

  void NullLaunches() {
    (void)Shared().Ask("device");
    const std::string ms = std::to_string(options_.ms);
    try {
      const Samples round_trips = Ask(Shared(), "round_trip 0 " + ms);
      const Samples each = Ask(Shared(), "rate 0 " + ms);
      const std::string what = options_.only_shared + ", null launch: ";
      Row(what + "round trip, p50", round_trips.Percentile(0.5) / 1e3, "us", "fact", "-",
          "p99 " + Text("%.3f", round_trips.Percentile(0.99) / 1e3) + " us");
      Row(what + "back to back", each.Percentile(0.5) / 1e3, "us each", "fact", "-", "");
    } catch (const std::exception& error) {
      Failed(options_.only_shared, error);
    }
  }

  static std::string SizeText(std::size_t bytes) {
    return bytes < (1 << 20)   ? std::to_string(bytes >> 10) + " KiB"
           : bytes < (1 << 30) ? std::to_string(bytes >> 20) + " MiB"
                               : std::to_string(bytes >> 30) + " GiB";
  }
  static std::string BothSides(const Samples& native, const Samples& shared) {
    return "us, native p50 " + Text("%.3f", native.Percentile(0.5) / 1e3) + " p99 " +
           Text("%.3f", native.Percentile(0.99) / 1e3) + ", shared p50 " +
           Text("%.3f", shared.Percentile(0.5) / 1e3) + " p99 " +
           Text("%.3f", shared.Percentile(0.99) / 1e3);
  }
  static Samples Ask(Child& child, const std::string& question) {
    Samples samples;
    for (const double sample : child.Ask(question)) samples.Add(sample);
    return samples;
  }
  // Writes the complete file after each operation, because a time limit may end this process at any
  // moment.
  void Add(const std::string& what, const Samples& samples) {
    report_.Add(what, samples);
    if (options_.json.empty()) return;
    const std::string begun = options_.json + ".begun";
    if (!report_.WriteJson(begun)) throw std::runtime_error("cannot write '" + begun + "'");
    std::filesystem::rename(begun, options_.json);
  }

  void GetCopy(const std::string& direction, const std::string& memory, const std::string& mode,
               std::size_t bytes) {
    const std::size_t promised = std::size_t{mode == "sync" ? 16U : 1U} << 20;
    Compare("copy " + direction + ", " + memory + ", " + mode + ", " + SizeText(bytes),
            "copy " + direction + ' ' + memory + ' ' + mode + ' ' + std::to_string(bytes) + ' ' +
                std::to_string(options_.ms),
            {.ratio_least = bytes >= promised ? 0.95 : 0});
  }

  // Alternates between the two sides, so that a slow moment of the machine affects both alike.
  void Compare(const std::string& what, const std::string& question, const Promise& promise) {
    Samples native, shared;
    try {
      for (int round = 0; round < kRounds; ++round) {
        for (const double sample : Native().Ask(question)) native.Add(sample);
        for (const double sample : Shared().Ask(question)) shared.Add(sample);
      }
    } catch (const std::exception& error) {
      Failed(what, error);
      return;
    }
    Add("native: " + what, native);
    Add("shared: " + what, shared);
    const double ratio = native.Percentile(0.5) / shared.Percentile(0.5);
    const std::string note = BothSides(native, shared);
    if (promise.shared_most_ns > 0) {
      Row(what, shared.Percentile(0.5), "ns", "figure", Text("<= %.0f", promise.shared_most_ns),
          note);
    } else {
      Row(what, ratio, "native/shared", "figure",
          promise.ratio_least > 0 ? Text(">= %.2f", promise.ratio_least) : "-", note);
    }
  }

  // Measures the effect of a low client's kernels, which fill the device, on a high client's
  // launch. Kernels of a single wave of blocks run to their end; others can be preempted.
  void BesideLowKernels() {
    struct Kernels {
      int us, waves;
    };
    for (const auto [us, waves] :
         {Kernels{20, 1}, Kernels{100, 1}, Kernels{1000, 1}, Kernels{1000, 1000 / kBlockUs}}) {
      const std::string what =
          "null launch: round trip beside a low client's kernels of " + std::to_string(us) +
          (waves == 1 ? " us" : " us in blocks of " + std::to_string(us / waves) + " us");
      try {
        Child low("gpu_ops_shared", "low", limit_);
        (void)low.Ask("keep_occupied " + std::to_string(waves) + ' ' +
                      Text("%.0f", wave_per_us_ * us / waves));
        const Samples samples = Ask(Shared(), "round_trip 0 " + std::to_string(4 * options_.ms));
        Add(what, samples);
        Row(what, samples.Percentile(0.99) / 1e3, "us p99", "fact", "-",
            "p50 " + Text("%.3f", samples.Percentile(0.5) / 1e3) + " us");
      } catch (const std::exception& error) {
        Failed(what, error);
      }
    }
  }

  void Restart() {
    const std::string what = "worker killed: until a new session has run a kernel";
    try {
      Samples samples;
      shared_.reset();
      Child fresh("gpu_ops_shared", "high", kRestartLimit);
      samples.Add(fresh.Ask("restart " + options_.worker).at(0));
      Add(what, samples);
      Row(what, samples.Percentile(0.5) / 1e6, "ms", "rule", ">= 0", "once");
    } catch (const std::exception& error) {
      Failed(what, error);
    }
  }

  Child& Native() { return Alive(native_, "gpu_ops_native", ""); }
  Child& Shared() { return Alive(shared_, "gpu_ops_shared", "high"); }
  Child& Alive(std::unique_ptr<Child>& child, const char* program, const char* of_class) {
    if (child != nullptr && !child->is_gone()) return *child;
    if (child != nullptr && replaced_ == kReplacedMax) {
      throw std::runtime_error("not asked: " + std::to_string(kReplacedMax + 1) +
                               " programs have died or not answered");
    }
    replaced_ += child != nullptr ? 1 : 0;
    child = std::make_unique<Child>(program, of_class, limit_);
    return *child;
  }

  void Failed(const std::string& what, const std::exception& error) {
    if (++failures_ == 1) first_failure_ = what + ": " + error.what();
    std::fprintf(stderr, "gpu_bench: %s: %s\n", what.c_str(), error.what());
    if (rows_.is_open())
      rows_ << part_ << '\t' << what << "\tfailed\t-\trule\t== 1\t" << error.what() << '\n';
  }

  void Row(const std::string& what, double value, const std::string& unit, const std::string& kind,
           const std::string& must, const std::string& note) {
    if (!rows_.is_open()) return;
    rows_ << part_ << '\t' << what << '\t' << value << '\t' << unit << '\t' << kind << '\t' << must
          << '\t' << note << '\n'
          << std::flush;
  }

  const Options options_;
  const std::string part_ = PartOfRows("bench");
  const std::chrono::seconds limit_{options_.limit};
  std::unique_ptr<Child> native_, shared_;
  int replaced_ = 0;        // Processes that were replaced because they had exited.
  double wave_per_us_ = 0;  // Iterations per us of native blocks that fill the device.
  Report report_{"gpu_bench"};
  std::ofstream rows_;
  int failures_ = 0;
  std::string first_failure_;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::runtime_error("option '" + name + "' needs a value");
    const std::string value = argv[i + 1];
    if (name == "--rows") {
      options.rows = value;
    } else if (name == "--json") {
      options.json = value;
    } else if (name == "--worker") {
      options.worker = value;
    } else if (name == "--only-shared") {
      options.only_shared = value;
    } else if (name == "--only-low") {
      options.only_low = value;
    } else if (name == "--only-native") {
      options.only_native = value;
    } else if (name == "--ms" || name == "--limit" || name == "--bytes-max") {
      char* end = nullptr;
      const long number = std::strtol(value.c_str(), &end, 10);
      if (*end != '\0' || number < 1)
        throw std::runtime_error("option '" + name + "' is '" + value + "', allowed: 1 and more");
      if (name == "--ms") {
        options.ms = number;
      } else if (name == "--limit") {
        options.limit = number;
      } else {
        options.bytes_max = static_cast<std::size_t>(number);
      }
    } else {
      throw std::runtime_error("unknown option '" + name + "'");
    }
  }
  return options;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  try {
    gpushared::testing::Bench bench(gpushared::testing::Parse(argc, argv));
    if (bench.Run()) return 0;
    // Prints the message last, where readers of the log look first.
    std::fflush(stdout);
    std::fprintf(stderr, "gpu_bench: %s\n", bench.Complaint().c_str());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 1;
  }
}
