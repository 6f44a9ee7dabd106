// SPDX-License-Identifier: Apache-2.0
// One operation at a time, measured on request: gpu_bench starts this program twice, once with the
// client library (gpu_ops_shared) and once with the driver itself (gpu_ops_native).
//
// Answers each input line with one line: "ok" and numbers, or "rejected" and the reason. Times are
// in ns.
//   device                               -> ok <multiprocessors> <name>, <id>.
//   calibrate                            -> ok <iterations of kernel step per us>.
//   calibrate_waves                      -> ok <iterations per us of blocks that fill the device>.
//   submit <ms>                          -> a launch, the caller's side: means of bursts of 64.
//   round_trip <iterations> <ms>         -> launch and wait.
//   rate <iterations> <ms>               -> per launch, back to back: means of batches.
//   rate_waves <waves> <iterations> <ms> -> like rate, for kernels with this many waves of blocks.
//   copy to_device|to_host pinned|pageable sync|async <bytes> <ms>.
//   connect                              -> a session with a module and its first launch.
//   restart <pid>                        -> like connect, after SIGKILL to that worker.
//   keep_occupied <waves> <iterations>   -> answers first, then keeps the device full with kernels
//                                           of this many waves until the input ends.
// Numbers are samples by default. Results are compared before "ok" is answered.

#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gpushared/client.h"

#include "samples/kernels/kernel_image.h"
#include "tests/gpu/calibration.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Samples = std::vector<double>;

constexpr unsigned kBurst = 64;
// A HostBuffer of this size is always available.
constexpr std::size_t kPinnedPiece = std::size_t{64} << 20;
// Larger copies are not compared completely, because that would take longer than the copy.
constexpr std::size_t kComparedWholeMax = std::size_t{16} << 20;
constexpr std::size_t kCheckedStep = 4093;  // Words; a prime, so that all offsets occur.

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}
void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

double Ns(Clock::duration duration) {
  return static_cast<double>(std::chrono::nanoseconds(duration).count());
}

// A session with a kernel whose every launch is counted and verified at the end of an operation.
class Launcher {
 public:
  explicit Launcher(const ClientOptions& options)
      : client_(Must(Client::Connect(options))),
        module_(Must(
            client_.LoadModule(std::as_bytes(std::span(kernel_image_begin, kernel_image_end))))),
        step_(Must(module_.GetKernel("step"))),
        occupy_(Must(module_.GetKernel("occupy"))),
        out_(Must(client_.AllocateDevice(2 * sizeof(unsigned)))),
        stream_(client_.default_stream()) {
    Clear();
  }

  const Client& client() const { return client_; }
  const Stream& stream() const { return stream_; }

  void Launch(unsigned iterations) {
    Must(stream_.Launch(step_, {}, out_, iterations));
    ++launches_;
  }
  // Launches whole waves of blocks, which leave no space for any other block.
  void Occupy(unsigned waves, unsigned iterations) {
    const unsigned blocks = client_.device().multiprocessors * kBlocksAtOnce * waves;
    Must(stream_.Launch(occupy_, {.grid = {blocks}, .block = {32}}, out_, iterations));
  }
  void Wait() { Must(stream_.Synchronize()); }

  // Verifies that every launch so far has run once, the last one with `iterations`.
  void Check(unsigned iterations) {
    std::array<unsigned, 2> out = {};
    Must(stream_.CopyToHost(out.data(), out_, sizeof out));
    Wait();
    if (out[0] != launches_ || out[1] != LoopResult(iterations)) {
      throw std::runtime_error("after " + std::to_string(launches_) + " launches of " +
                               std::to_string(iterations) + " iterations the device says " +
                               std::to_string(out[0]) + " and " + std::to_string(out[1]) +
                               ", expected is " + std::to_string(LoopResult(iterations)));
    }
  }
  void Clear() {
    const std::array<unsigned, 2> zero = {};
    Must(stream_.CopyToDevice(out_, zero.data(), sizeof zero));
    Wait();
    launches_ = 0;
  }

 private:
  Client client_;
  Module module_;
  Kernel step_, occupy_;
  DeviceBuffer out_;
  Stream stream_;
  unsigned launches_ = 0;
};

// ---- launches

double StepIterationsPerUs(Launcher& launcher) {
  unsigned last = 0;
  const double per_us = IterationsPerUs(
      [&](unsigned iterations) { launcher.Launch(last = iterations); }, [&] { launcher.Wait(); });
  launcher.Check(last);
  return per_us;
}
double WaveIterationsPerUs(Launcher& launcher) {
  const double per_us = IterationsPerUs(
      [&](unsigned iterations) { launcher.Occupy(1, iterations); }, [&] { launcher.Wait(); });
  launcher.Clear();  // The blocks have overwritten the other kernel's counters.
  return per_us;
}

Samples Submit(Launcher& launcher, Clock::duration limit) {
  Samples samples;
  const auto end = Clock::now() + limit;
  do {
    const auto begin = Clock::now();
    for (unsigned i = 0; i < kBurst; ++i) launcher.Launch(0);
    samples.push_back(Ns(Clock::now() - begin) / kBurst);
    launcher.Wait();
  } while (Clock::now() < end);
  launcher.Check(0);
  return samples;
}

Samples RoundTrip(Launcher& launcher, unsigned iterations, Clock::duration limit) {
  Samples samples;
  const auto end = Clock::now() + limit;
  do {
    const auto begin = Clock::now();
    launcher.Launch(iterations);
    launcher.Wait();
    samples.push_back(Ns(Clock::now() - begin));
  } while (Clock::now() < end);
  launcher.Check(iterations);
  return samples;
}

Samples GetRate(Launcher& launcher, const std::function<void()>& launch, Clock::duration limit) {
  constexpr int kBatches = 5;
  const auto wait = [&] { launcher.Wait(); };
  const double each = NsPer(launch, wait, kBurst);
  const auto launches = static_cast<unsigned>(
      std::clamp(Ns(limit) / kBatches / each, double{kBurst}, double{100'000}));
  Samples samples;
  for (int i = 0; i < kBatches; ++i) samples.push_back(NsPer(launch, wait, launches));
  return samples;
}

Samples Rate(Launcher& launcher, unsigned iterations, Clock::duration limit) {
  Samples samples = GetRate(
      launcher, [&] { launcher.Launch(iterations); }, limit);
  launcher.Check(iterations);
  return samples;
}

Samples RateOfWaves(Launcher& launcher, unsigned waves, unsigned iterations,
                    Clock::duration limit) {
  Samples samples = GetRate(
      launcher, [&] { launcher.Occupy(waves, iterations); }, limit);
  launcher.Clear();
  return samples;
}

// ---- copies

struct CopyCase {
  bool is_to_device = true;
  bool is_pinned = true;
  bool is_sync = true;
  std::size_t bytes = 0;
};

// Device memory, pageable memory and one HostBuffer, kept between operations because allocating a
// gigabyte takes longer than copying it. Larger pinned copies go through the HostBuffer in pieces.
class Copies {
 public:
  explicit Copies(const Launcher& launcher) : launcher_(launcher) {}

  Samples Run(const CopyCase& wanted, Clock::duration limit) {
    Prepare(wanted);
    const std::size_t copies =
        wanted.is_sync ? 1 : std::clamp(kAsyncBytes / wanted.bytes, kLeast, kMost);
    Samples samples;
    Copy(wanted, 1);  // The first copy touches the pages for the first time.
    const auto end = Clock::now() + limit;
    do {
      const auto begin = Clock::now();
      Copy(wanted, copies);
      samples.push_back(Ns(Clock::now() - begin) / static_cast<double>(copies));
    } while (Clock::now() < end || samples.size() < 3);
    Check(wanted);
    return samples;
  }

 private:
  static constexpr std::size_t kAsyncBytes = std::size_t{64} << 20, kLeast = 2, kMost = 64;

  std::byte* Host(const CopyCase& wanted) {
    return wanted.is_pinned ? pinned_.data() : pageable_.data();
  }
  std::size_t Piece(const CopyCase& wanted) const {
    return wanted.is_pinned ? std::min(wanted.bytes, kPinnedPiece) : wanted.bytes;
  }
  static std::uint32_t Word(std::size_t at, std::uint32_t round) {
    return static_cast<std::uint32_t>(at) * 2654435761u + round;
  }

  void Prepare(const CopyCase& wanted) {
    if (device_.size() < wanted.bytes) {
      device_.Reset();
      device_ = Must(launcher_.client().AllocateDevice(wanted.bytes));
    }
    if (wanted.is_pinned && pinned_.size() < Piece(wanted)) {
      pinned_.Reset();
      pinned_ = Must(launcher_.client().AllocateHost(Piece(wanted)));
    }
    if (!wanted.is_pinned && pageable_.size() < wanted.bytes) pageable_.resize(wanted.bytes);
    ++round_;
    Mark(Host(wanted), Piece(wanted), round_);
    if (wanted.is_to_device) return;
    // Copies to the device what the measured copies bring back, then clears it on the host.
    CopyCase there = wanted;
    there.is_to_device = true;
    Copy(there, 1);
    Mark(Host(wanted), Piece(wanted), 0);
  }

  // Marks all words, or one of every kCheckedStep words, which suffices to notice a missing piece.
  static void Mark(std::byte* bytes, std::size_t count, std::uint32_t round) {
    for (std::size_t at = 0; at < count / 4; at += Stride(count)) {
      const std::uint32_t word = round == 0 ? 0 : Word(at, round);
      std::memcpy(bytes + at * 4, &word, sizeof word);
    }
  }
  static std::size_t Stride(std::size_t bytes) {
    return bytes <= kComparedWholeMax ? 1 : kCheckedStep;
  }

  void Copy(const CopyCase& wanted, std::size_t times) {
    const std::size_t piece = Piece(wanted);
    for (std::size_t i = 0; i < times; ++i) {
      for (std::size_t at = 0; at < wanted.bytes; at += piece) {
        const std::size_t bytes = std::min(piece, wanted.bytes - at);
        std::byte* host = Host(wanted) + (wanted.is_pinned ? 0 : at);
        Must(wanted.is_to_device
                 ? launcher_.stream().CopyToDevice(device_.address() + at, host, bytes)
                 : launcher_.stream().CopyToHost(host, device_.address() + at, bytes));
      }
    }
    Must(launcher_.stream().Synchronize());
  }

  void Check(const CopyCase& wanted) {
    const std::size_t piece = Piece(wanted);
    if (wanted.is_to_device) {
      // Copies back into other memory than the source.
      std::vector<std::byte> back(piece);
      for (std::size_t at = 0; at < wanted.bytes; at += piece) {
        const std::size_t bytes = std::min(piece, wanted.bytes - at);
        Must(launcher_.stream().CopyToHost(back.data(), device_.address() + at, bytes));
        Must(launcher_.stream().Synchronize());
        Compare(back.data(), bytes, piece);
      }
    } else {
      Compare(Host(wanted), std::min(piece, wanted.bytes), piece);
    }
  }

  void Compare(const std::byte* bytes, std::size_t count, std::size_t marked) const {
    for (std::size_t at = 0; at < count / 4; at += Stride(marked)) {
      std::uint32_t word = 0;
      std::memcpy(&word, bytes + at * 4, sizeof word);
      if (word != Word(at, round_)) {
        throw std::runtime_error("word " + std::to_string(at) + " arrived as " +
                                 std::to_string(word) + ", sent was " +
                                 std::to_string(Word(at, round_)));
      }
    }
  }

  const Launcher& launcher_;
  DeviceBuffer device_;
  HostBuffer pinned_;
  std::vector<std::byte> pageable_;
  std::uint32_t round_ = 0;
};

// ---- the program

class Program {
 public:
  explicit Program(ClientOptions options) : options_(std::move(options)) {}

  std::string Answer(const std::string& line) {
    std::istringstream words(line);
    std::string operation;
    words >> operation;
    const auto found = operations_.find(operation);
    if (found == operations_.end()) throw std::runtime_error("no operation '" + operation + "'");
    std::ostringstream answer;
    answer << "ok";
    for (const double value : found->second(words)) answer << ' ' << value;
    if (operation == "device") {
      const DeviceProperties& device = launcher().client().device();
      answer << ' ' << device.name << ", " << device.id;
    }
    return answer.str();
  }

 private:
  using Operation = std::function<Samples(std::istream&)>;

  Launcher& launcher() {
    if (!launcher_) launcher_.emplace(options_);
    return *launcher_;
  }

  template <typename T>
  static T Next(std::istream& words) {
    T value{};
    if (!(words >> value)) throw std::runtime_error("an argument is missing or no number");
    return value;
  }
  static Clock::duration Limit(std::istream& words) {
    return std::chrono::milliseconds(Next<unsigned>(words));
  }
  // Returns whether the next word is `yes`; accepts only `yes` or `no`.
  static bool Choice(std::istream& words, const char* yes, const char* no) {
    const auto word = Next<std::string>(words);
    if (word != yes && word != no)
      throw std::runtime_error("'" + word + "' was asked, known are " + yes + " and " + no);
    return word == yes;
  }

  Samples Copy(std::istream& words) {
    CopyCase wanted;
    wanted.is_to_device = Choice(words, "to_device", "to_host");
    wanted.is_pinned = Choice(words, "pinned", "pageable");
    wanted.is_sync = Choice(words, "sync", "async");
    wanted.bytes = Next<std::size_t>(words);
    if (!copies_) copies_.emplace(launcher());
    return copies_->Run(wanted, Limit(words));
  }

  // Returns the time until a new session has run its first kernel; a server whose worker died
  // rejects clients for a while.
  Samples FirstLaunch(Clock::duration patience) {
    const auto begin = Clock::now();
    for (;;) {
      try {
        Launcher fresh(options_);
        fresh.Launch(0);
        fresh.Check(0);
        return {Ns(Clock::now() - begin)};
      } catch (const std::exception&) {
        if (Clock::now() - begin > patience) throw;
        std::this_thread::sleep_for(1ms);
      }
    }
  }

  // Closes this process's session first, because a second session would find an existing context.
  Samples Connect() {
    copies_.reset();
    launcher_.reset();
    return FirstLaunch(0s);
  }

  Samples Restart(pid_t worker) {
    copies_.reset();
    launcher_.reset();
    if (::kill(worker, SIGKILL) != 0)
      throw std::runtime_error("worker " + std::to_string(worker) + " is not there to be killed");
    return FirstLaunch(30s);
  }

  [[noreturn]] void KeepOccupied(unsigned waves, unsigned iterations) {
    launcher();
    std::puts("ok");
    std::fflush(stdout);
    std::thread([] {
      // Continues until the caller closes the input or exits.
      while (std::getchar() != EOF) {
      }
      std::_Exit(0);
    }).detach();
    for (;;) {
      for (int i = 0; i < 16; ++i) launcher().Occupy(waves, iterations);
      launcher().Wait();
    }
  }

  const std::map<std::string, Operation> operations_ = {
      {"device",
       [this](std::istream&) -> Samples {
         return {static_cast<double>(launcher().client().device().multiprocessors)};
       }},
      {"calibrate", [this](std::istream&) -> Samples { return {StepIterationsPerUs(launcher())}; }},
      {"calibrate_waves",
       [this](std::istream&) -> Samples { return {WaveIterationsPerUs(launcher())}; }},
      {"submit", [this](std::istream& words) { return Submit(launcher(), Limit(words)); }},
      {"round_trip",
       [this](std::istream& words) {
         const auto iterations = Next<unsigned>(words);
         return RoundTrip(launcher(), iterations, Limit(words));
       }},
      {"rate",
       [this](std::istream& words) {
         const auto iterations = Next<unsigned>(words);
         return Rate(launcher(), iterations, Limit(words));
       }},
      {"rate_waves",
       [this](std::istream& words) {
         const auto waves = Next<unsigned>(words);
         const auto iterations = Next<unsigned>(words);
         return RateOfWaves(launcher(), waves, iterations, Limit(words));
       }},
      {"keep_occupied",
       [this](std::istream& words) -> Samples {
         const auto waves = Next<unsigned>(words);
         KeepOccupied(waves, Next<unsigned>(words));
       }},
      {"copy", [this](std::istream& words) { return Copy(words); }},
      {"connect", [this](std::istream&) { return Connect(); }},
      {"restart", [this](std::istream& words) { return Restart(Next<pid_t>(words)); }},
  };
  const ClientOptions options_;
  std::optional<Launcher> launcher_;
  // Declared after launcher_, which it uses, so that it is destroyed first.
  std::optional<Copies> copies_;
};

int Main(int argc, char** argv) {
  ClientOptions options{.name = "gpu_ops"};
  if (argc > 1 && std::strcmp(argv[1], "high") == 0) {
    options.scheduling_class = SchedulingClass::kHigh;
  } else if (argc > 1 && std::strcmp(argv[1], "normal") == 0) {
    options.scheduling_class = SchedulingClass::kNormal;
  } else if (argc > 1 && std::strcmp(argv[1], "low") == 0) {
    options.scheduling_class = SchedulingClass::kLow;
  } else if (argc > 1) {
    std::fprintf(stderr, "usage: %s [high|normal|low], then one operation a line\n", argv[0]);
    return 2;
  }
  Program program(options);
  for (std::string line; std::getline(std::cin, line);) {
    std::string answer;
    try {
      answer = program.Answer(line);
    } catch (const std::exception& error) {
      answer = std::string("rejected ") + error.what();
    }
    std::replace(answer.begin(), answer.end(), '\n', ' ');
    std::puts(answer.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) { return gpushared::testing::Main(argc, argv); }
