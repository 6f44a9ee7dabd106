// SPDX-License-Identifier: Apache-2.0
// Claims and fences on this GPU. Do the programs of the corpus compute the same results when their
// kernels are stopped at random? How soon does a launch stop? How much do the passes cost? No
// compiler is needed, because the driver compiles the passes' results.
//
// gpu_claims [--part stops|costs|corpus] [--rows FILE] [--ms N] [--programs N] [--seconds N]
//            [--blocks N] [--first N]
//   --part stops    only whether stops end launches amid a group of blocks.
//   --part costs    everything else. Without --part, both parts run.
//   --part corpus   only the programs of the corpus, which `costs` runs at its end.
//   --first N       the programs of the corpus from the Nth on, in this process (RunCorpusHere).
//   --ms N          time per measurement (200).
//   --programs N    programs to run (all).
//   --seconds N     time for all programs (3600).
//   --blocks N      blocks in the large groups of a launch (1048576).

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/report.h"
#include "tests/gpu/claims_corpus.h"
#include "tests/gpu/claims_gpu.h"
#include "tests/gpu/part_of_rows.h"

__asm__(
    ".pushsection .rodata\n"
    "gpu_claims_ptx_begin:\n"
    ".incbin \"" GPUSHARED_KERNEL_IMAGE
    "\"\n"
    "gpu_claims_ptx_end:\n"
    ".popsection\n");
extern "C" const char gpu_claims_ptx_begin[], gpu_claims_ptx_end[];

namespace gpushared::testing {
namespace {

using device::Completion;
using device::LaunchWork;
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kFull = 8;  // Number of blocks of kThreads that share a multiprocessor.
// Minimum number of stops, because a single one may coincide with the end of a group.
constexpr std::size_t kStopsMin = 4;
constexpr std::size_t kTooEarlyMax = 16;  // Limit for stops of launches that had not begun.

class Claims {
 public:
  Claims(const std::string& rows, long ms, std::size_t programs, long seconds, long blocks)
      : limit_(std::chrono::milliseconds(ms)),
        programs_(programs),
        large_group_blocks_(static_cast<std::uint64_t>(blocks)),
        end_(Clock::now() + std::chrono::seconds(seconds)) {
    if (rows.empty()) return;
    rows_.open(rows, std::ios::app);
    if (!rows_) throw std::runtime_error("cannot write '" + rows + "'");
  }

  void Stops() {
    (void)StopLatency(large_group_blocks_);
    Row("stops that ended a launch amid a group of its blocks, of all",
        static_cast<double>(amid_group_) / static_cast<double>(stopped_), "-", "rule", ">= 0.5",
        std::to_string(stopped_) + " stops of launches in groups of " +
            std::to_string(large_group_blocks_) +
            " blocks; without its word each would wait for the end of a group");
  }

  void Costs() {
    const double small = StopLatency(0);
    const double large = StopLatency(large_group_blocks_);
    Row("ending a block that had not begun",
        std::max(0.0, large - small) / (2.0 * static_cast<double>(large_group_blocks_)), "ns",
        "fact", "-",
        "from stops of launches in groups of 16 thousand and of " +
            std::to_string(large_group_blocks_) + " blocks");
    for (const char* kernel : {"busy", "stream"}) GetCosts(kernel, {5, 20, 50}, true);
    for (const char* kernel : {"tight", "sharing"}) GetCosts(kernel, {50}, false);
    Grids();
  }

  void Corpus() {
    const CorpusOutcome all = RunCorpus(programs_, end_);
    Row("programs of the corpus that compute right as they are", static_cast<double>(all.right),
        "-", "rule", ">= 1",
        "of " + std::to_string(all.begun) + " for which there was time, of " +
            std::to_string(CorpusSize()) + (all.wrong.empty() ? "" : "; not: ") +
            Joined(all.wrong));
    Row("of these, not claimed and stopped at random", static_cast<double>(all.different.size()),
        "-", "rule", "== 0", Joined(all.different));
    Row("launches of theirs that were stopped half way", static_cast<double>(all.stopped_half_way),
        "-", "figure", ">= 1", "");
    Row("programs of the corpus that ended their context, or did not end",
        static_cast<double>(all.lost.size()), "-", "rule", "== 0", Joined(all.lost));
  }

 private:
  void Row(const std::string& what, double value, const std::string& unit, const std::string& kind,
           const std::string& must, const std::string& note) {
    std::printf("%-64s %12.6g %s %s\n", what.c_str(), value, unit.c_str(), note.c_str());
    if (!rows_.is_open()) return;
    rows_ << part_ << '\t' << what << '\t' << value << '\t' << unit << '\t' << kind << '\t' << must
          << '\t' << note << '\n'
          << std::flush;
  }

  static std::string Joined(const std::vector<std::string>& texts) {
    std::string all;
    for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
    return all;
  }

  static std::string_view Text() {
    return {gpu_claims_ptx_begin,
            static_cast<std::size_t>(gpu_claims_ptx_end - gpu_claims_ptx_begin)};
  }
  struct Parameters {
    std::uint64_t out = 0;
    std::uint32_t rounds = 1;
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)).first(12); }
  };

  // Returns the number of rounds with which a block takes `wanted` if `blocks_each` blocks share
  // its multiprocessor. Subtracts the microseconds that a launch takes without rounds.
  std::uint32_t RoundsFor(Gpu& gpu, const device::Module& module, const char* kernel,
                          Clock::duration wanted, std::uint32_t blocks_each = kFull) const {
    const auto time_of = [&](std::uint32_t rounds) -> Clock::duration {
      const Parameters parameters{.out = gpu.space().base(), .rounds = rounds};
      LaunchWork work =
          gpu.Work(module, kernel, {gpu.device().info().multiprocessors * blocks_each, 1, 1},
                   {kThreads, 1, 1}, parameters.bytes());
      work.may_be_stopped = false;
      (void)gpu.GetTime(work);
      return gpu.GetTime(work);
    };
    const Clock::duration empty = time_of(0);
    std::uint32_t rounds = 64;
    for (; rounds < (1U << 24); rounds *= 2) {
      const Clock::duration took = time_of(rounds) - empty;
      if (took < wanted && took < limit_) continue;
      return static_cast<std::uint32_t>(static_cast<double>(rounds) *
                                        std::min(1.0, static_cast<double>(wanted.count()) /
                                                          static_cast<double>(took.count()))) +
             1;
    }
    return rounds;
  }

  // Returns the p50 of a stop's time in ns, while all multiprocessors run blocks of 20 us.
  double StopLatency(std::uint64_t group_blocks) {
    Gpu gpu(group_blocks, device::Isolation::kOff);
    const device::Module& module = gpu.Load(Text());
    Parameters parameters{.out = gpu.space().base()};
    parameters.rounds = RoundsFor(gpu, module, "busy", microseconds(20));
    LaunchWork work =
        gpu.Work(module, "busy", {1U << 22, 1, 1}, {kThreads, 1, 1}, parameters.bytes());
    Samples samples;
    std::size_t in_vain = 0, too_early = 0;
    std::mt19937 random(2);
    const auto end = Clock::now() + limit_;
    do {
      gpu.Submit(work);
      // After stops that came too early, waits longer before the next one, because a busy machine
      // may begin a launch late.
      const auto patience = limit_ / 100 * (1U << std::min<std::size_t>(too_early, 6));
      const auto begin = Clock::now() + patience * (1 + random() % 4);
      while (Clock::now() < begin) {
      }
      gpu.device().RequestStop(work.id);
      const Completion completion = gpu.Await("a launch that was to stop");
      if (completion.stopped && completion.units_done == 0) {
        if (++too_early > kTooEarlyMax) {
          throw std::runtime_error("no launch had begun before its stop came");
        }
      } else if (completion.stopped) {
        samples.Add(Clock::now() - begin);
        if (group_blocks > 0) {
          ++stopped_;
          amid_group_ += completion.units_done % group_blocks != 0 ? 1 : 0;
        }
      } else {
        ++in_vain;
      }
    } while (samples.count() + in_vain < kStopsMin || Clock::now() < end);
    if (group_blocks == 0) {
      Row("launches of 20 us blocks that ran on to their end after a stop",
          static_cast<double>(in_vain), "-", "rule", "== 0",
          std::to_string(samples.count()) + " were stopped");
      const std::string note = std::to_string(samples.count()) + " samples";
      Row("stop of a launch of 20 us blocks, p50", samples.Percentile(0.5) / 1e3, "us", "fact", "-",
          note);
      Row("stop of a launch of 20 us blocks, p99", samples.Percentile(0.99) / 1e3, "us", "figure",
          "<= 60", note);
    }
    return samples.Percentile(0.5);
  }

  double Median(Gpu& gpu, LaunchWork work, bool claimed) const {
    work.may_be_stopped = claimed;
    Samples samples;
    (void)gpu.GetTime(work);
    const auto end = Clock::now() + limit_ / 4;
    do {
      samples.Add(gpu.GetTime(work));
    } while (Clock::now() < end);
    return samples.Percentile(0.5);
  }

  // Measures the cost of the forms of a kernel. `is_bound`: whether the rows have bounds, which
  // worst-case kernels lack.
  void GetCosts(const char* kernel, std::initializer_list<int> block_us, bool is_bound) {
    Gpu plain(0, device::Isolation::kOff);
    const device::Module& module = plain.Load(Text());
    Gpu fenced(0, device::Isolation::kFence);
    Gpu contained(0, device::Isolation::kContain);
    const device::Module& fenced_module = fenced.Load(Text());
    const device::Module& contained_module = contained.Load(Text());
    for (const int us : block_us) {
      Parameters parameters{.out = plain.space().base()};
      parameters.rounds = RoundsFor(plain, module, kernel, microseconds(us));
      const device::Dim3 grid{plain.device().info().multiprocessors * kFull * 8, 1, 1};
      const LaunchWork work =
          plain.Work(module, kernel, grid, {kThreads, 1, 1}, parameters.bytes());
      const double original = Median(plain, work, false);
      const double claimed = Median(plain, work, true);
      const auto isolated = [&](Gpu& gpu, const device::Module& isolated_module) {
        Parameters inside = parameters;
        inside.out = gpu.space().base();
        return Median(
            gpu, gpu.Work(isolated_module, kernel, grid, {kThreads, 1, 1}, inside.bytes()), false);
      };
      const double fence = isolated(fenced, fenced_module);
      const double contain = isolated(contained, contained_module);
      const std::string of =
          std::string("kernel '") + kernel + "', blocks of " + std::to_string(us) + " us: ";
      const std::string note = "original " + std::to_string(original / 1e3) + " us";
      const char* const kind = is_bound ? "figure" : "fact";
      Row(of + "claimed / original", claimed / original, "-", kind,
          !is_bound  ? "-"
          : us >= 50 ? "<= 1.05"
                     : "<= 1.15",
          note);
      Row(of + "fenced / original", fence / original, "-", kind, is_bound ? "<= 1.12" : "-", note);
      Row(of + "contained / original", contain / original, "-", "fact", "-", note);
    }
  }

  // Measures preemptible launches of few blocks, which all claim at once, and of several groups.
  void Grids() {
    Gpu gpu(0, device::Isolation::kOff);
    const device::Module& module = gpu.Load(Text());
    Parameters parameters{.out = gpu.space().base()};
    const std::uint32_t multiprocessors = gpu.device().info().multiprocessors;
    struct Grid {
      const char* what;
      std::uint32_t blocks_each;  // Number of blocks per multiprocessor.
    };
    for (const Grid& grid :
         {Grid{"one block for each multiprocessor", 1},
          Grid{"two blocks for each multiprocessor", 2}, Grid{"a single wave of blocks", kFull},
          Grid{"several groups", kFull * 40}}) {
      parameters.rounds =
          RoundsFor(gpu, module, "busy", microseconds(50), std::min(grid.blocks_each, kFull));
      const LaunchWork work = gpu.Work(module, "busy", {multiprocessors * grid.blocks_each, 1, 1},
                                       {kThreads, 1, 1}, parameters.bytes());
      const double original = Median(gpu, work, false);
      const double claimed = Median(gpu, work, true);
      Row(std::string("kernel 'busy', ") + grid.what + ": claimed / original", claimed / original,
          "-", "figure", grid.blocks_each > kFull ? "<= 1.05" : "-",
          "original " + std::to_string(original / 1e3) + " us");
    }
  }

  const std::string part_ = PartOfRows("claims");
  const Clock::duration limit_;
  const std::size_t programs_;
  const std::uint64_t large_group_blocks_;
  const Clock::time_point end_;  // End of the time for the corpus.
  // Launches stopped in large groups, and those of them that did not wait for a group's end.
  std::uint64_t stopped_ = 0;
  std::uint64_t amid_group_ = 0;
  std::ofstream rows_;
};

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  std::string rows, part;
  long ms = 200, programs = 1000, seconds = 3600, blocks = 1L << 20, first = -1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char* const value = argv[i + 1];
    if (std::strcmp(argv[i], "--part") == 0) part = value;
    if (std::strcmp(argv[i], "--rows") == 0) rows = value;
    if (std::strcmp(argv[i], "--ms") == 0) ms = std::strtol(value, nullptr, 10);
    if (std::strcmp(argv[i], "--programs") == 0) programs = std::strtol(value, nullptr, 10);
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::strtol(value, nullptr, 10);
    if (std::strcmp(argv[i], "--blocks") == 0) blocks = std::strtol(value, nullptr, 10);
    if (std::strcmp(argv[i], "--first") == 0) first = std::strtol(value, nullptr, 10);
  }
  const bool is_part = part.empty() || part == "stops" || part == "costs" || part == "corpus";
  if (argc % 2 == 0 || !is_part || ms < 1 || programs < 1 || seconds < 1 || blocks < 1) {
    std::fprintf(stderr,
                 "usage: gpu_claims [--part stops|costs|corpus] [--rows FILE] [--ms N] "
                 "[--programs N] [--seconds N] [--blocks N] [--first N], N at least 1\n");
    return 2;
  }
  try {
    gpushared::device::cuda::PrepareEnvironment();
    const auto count = static_cast<std::size_t>(programs);
    if (first >= 0) {
      gpushared::testing::RunCorpusHere(static_cast<std::size_t>(first), count,
                                        std::chrono::seconds(seconds));
      return 0;
    }
    gpushared::testing::Claims claims(rows, ms, count, seconds, blocks);
    if (part.empty() || part == "stops") claims.Stops();
    if (part.empty() || part == "costs") claims.Costs();
    if (part != "stops") claims.Corpus();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_claims: %s\n", error.what());
    return 1;
  }
}
