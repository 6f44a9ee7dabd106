// SPDX-License-Identifier: Apache-2.0
// One of two programs that share a GPU: a hog, which keeps the GPU full, or round trips that are
// measured next to a hog. The program is built with the client library (gpu_hog_shared) and with
// the driver itself (gpu_hog_native), so that all contenders run the same kernels in equal grids.
//
//   --load calibrate   measures the parameters of the others, on an otherwise idle GPU
//   --load hog         kernels of --waves waves of --block-us blocks, two of them in flight
//   --load null        round trips of one block that only counts itself
//   --load kernel_1ms  round trips of a kernel that fills the GPU for 1 ms
//
// Several loads, each with its own options and separated by `+`, run one after the other through
// the first one's client, so that a schedule of loads costs only one start:
// --load null ... + --load kernel_1ms ...
//
// A wave is all the blocks that the GPU runs at once, so it leaves no space for other blocks. Round
// trips are made one at a time, with exponentially distributed think times. Every block counts
// itself, so that a launched block that ran twice or not at all is detected.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "gpushared/client.h"

#include "samples/kernels/kernel_image.h"
#include "samples/language_model/options.h"
#include "tests/gpu/calibration.h"

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Number of words in which blocks count themselves, so that few of 4,000 blocks that end at once
// collide on one word.
constexpr unsigned kCounters = 256;
constexpr unsigned kInFlight = 2;
// One in this many launches has its device time measured. The others do not, because an event with
// timing separates kernels that would otherwise run back to back.
constexpr std::uint64_t kTimedEvery = 8;
constexpr double kMeasuredKernelUs = 1000;
constexpr unsigned kGridMax = (1U << 31) - 1;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).value();
}
void Must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

struct Shape {
  unsigned blocks = 1;
  unsigned iterations = 0;  // Iterations of each block's loop.
};

// A session with a kernel whose every block is counted.
class Launcher {
 public:
  explicit Launcher(const ClientOptions& options)
      : client_(Must(Client::Connect(options))),
        module_(Must(
            client_.LoadModule(std::as_bytes(std::span(kernel_image_begin, kernel_image_end))))),
        count_(Must(module_.GetKernel("count"))),
        out_(Must(client_.AllocateDevice((1 + kCounters) * sizeof(unsigned)))),
        stream_(Must(client_.CreateStream())) {
    Clear();
  }

  const Client& client() const { return client_; }
  const Stream& stream() const { return stream_; }

  void Launch(const Shape& shape) {
    Must(stream_.Launch(count_, {.grid = {shape.blocks}, .block = {32}}, out_, shape.iterations,
                        kCounters));
    blocks_ += shape.blocks;
  }
  void Wait() { Must(stream_.Synchronize()); }

  // Returns whether each block since Clear has run once, the last one with `iterations`.
  bool HasRunAll(unsigned iterations) {
    std::array<unsigned, 1 + kCounters> out = {};
    Must(stream_.CopyToHost(out.data(), out_, sizeof out));
    Wait();
    // The counters may wrap around, as the sum does.
    const unsigned counted = std::accumulate(out.begin() + 1, out.end(), 0U);
    return counted == static_cast<unsigned>(blocks_) && out[0] == LoopResult(iterations);
  }
  void Clear() {
    const std::array<unsigned, 1 + kCounters> zero = {};
    Must(stream_.CopyToDevice(out_, zero.data(), sizeof zero));
    Wait();
    blocks_ = 0;
  }

 private:
  const Client client_;
  const Module module_;
  const Kernel count_;
  const DeviceBuffer out_;
  const Stream stream_;
  std::uint64_t blocks_ = 0;
};

// The size of a wave on this GPU, and the speed of a block's loop when the GPU is full of blocks.
struct Calibration {
  unsigned wave_blocks = 0;
  double iterations_per_us = 0;

  unsigned Iterations(double us) const {
    return std::max(1U, static_cast<unsigned>(us * iterations_per_us));
  }
};

Calibration Calibrate(Launcher& launcher) {
  Calibration found{.wave_blocks = launcher.client().device().multiprocessors * kBlocksAtOnce};
  unsigned last = 0;
  found.iterations_per_us = IterationsPerUs(
      [&](unsigned iterations) {
        launcher.Launch({.blocks = found.wave_blocks, .iterations = last = iterations});
      },
      [&] { launcher.Wait(); });
  if (!launcher.HasRunAll(last)) throw std::runtime_error("not every block ran once");
  launcher.Clear();
  return found;
}

struct Outcome {
  std::string fields;  // The load's fields in the JSON output.
  double seconds = 0;
};

template <typename... Fields>
std::string Joined(const Fields&... fields) {
  std::ostringstream text;
  (text << ... << fields);
  return text.str();
}

// ---- the hog

class Hog {
 public:
  Hog(Launcher& launcher, const Shape& shape)
      : launcher_(launcher),
        shape_(shape),
        timed_begin_(Must(launcher.client().CreateEvent(EventTiming::kOn))),
        timed_end_(Must(launcher.client().CreateEvent(EventTiming::kOn))) {
    for (Event& end : ends_) end = Must(launcher.client().CreateEvent());
  }

  // Launches kernels for this many seconds, then waits for the last one.
  Outcome Run(double seconds_max) {
    const auto begin = Clock::now();
    do {
      if (launches_ >= kInFlight) Await(launches_ - kInFlight);
      Launch();
    } while (Seconds(Clock::now() - begin) < seconds_max);
    for (std::uint64_t i = launches_ - std::min<std::uint64_t>(launches_, kInFlight); i < launches_;
         ++i) {
      Await(i);
    }
    const double seconds = Seconds(Clock::now() - begin);
    const double kernel_ms = timed_s_ * 1000 / static_cast<double>(timed_);
    return {Joined("\"launches\": ", launches_, ", \"launches_per_s\": ",
                   static_cast<double>(launches_) / seconds, ", \"kernel_ms\": ", kernel_ms),
            seconds};
  }

 private:
  static bool IsTimed(std::uint64_t launch) { return launch % kTimedEvery == 0; }

  void Launch() {
    const Stream& stream = launcher_.stream();
    if (IsTimed(launches_)) Must(stream.Record(timed_begin_));
    launcher_.Launch(shape_);
    if (IsTimed(launches_)) Must(stream.Record(timed_end_));
    Must(stream.Record(ends_[launches_ % kInFlight]));
    ++launches_;
  }
  void Await(std::uint64_t launch) {
    Must(ends_[launch % kInFlight].Synchronize());
    if (!IsTimed(launch)) return;
    timed_s_ += Seconds(Must(Event::ElapsedTime(timed_begin_, timed_end_)));
    ++timed_;
  }

  Launcher& launcher_;
  const Shape shape_;
  const Event timed_begin_, timed_end_;
  std::array<Event, kInFlight> ends_;
  std::uint64_t launches_ = 0, timed_ = 0;
  double timed_s_ = 0;
};

// ---- round trips

Outcome MeasureRoundTrips(Launcher& launcher, const Shape& shape, double seconds_max,
                          double pause_ms, unsigned seed) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> pause(1 / pause_ms);
  std::vector<double> taken_us;
  const auto begin = Clock::now();
  do {
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(pause(random)));
    const auto launched = Clock::now();
    launcher.Launch(shape);
    launcher.Wait();
    taken_us.push_back(Seconds(Clock::now() - launched) * 1e6);
  } while (Seconds(Clock::now() - begin) < seconds_max);
  const double seconds = Seconds(Clock::now() - begin);
  std::sort(taken_us.begin(), taken_us.end());
  const auto at = [&](double fraction) {
    const auto size = static_cast<double>(taken_us.size());
    return taken_us[std::min(static_cast<std::size_t>(fraction * size), taken_us.size() - 1)];
  };
  const double mean =
      std::accumulate(taken_us.begin(), taken_us.end(), 0.0) / static_cast<double>(taken_us.size());
  return {Joined("\"pause_ms\": ", pause_ms, ", \"count\": ", taken_us.size(),
                 ", \"p50_us\": ", at(0.5), ", \"p90_us\": ", at(0.9), ", \"p99_us\": ", at(0.99),
                 ", \"max_us\": ", taken_us.back(), ", \"mean_us\": ", mean),
          seconds};
}

// ---- the program

samples::Options KnownOptions() {
  return samples::Options({
      {"--load", "", "calibrate, hog, null or kernel_1ms"},
      {"--waves", "50", "of a hog's kernel"},
      {"--block-us", "20", "how long a hog's block takes"},
      {"--seconds", "2", "how long to go on"},
      {"--pause-ms", "0", "mean pause between round trips; 0: 1 for null, 3 for kernel_1ms"},
      {"--seed", "1", "of the pauses"},
      {"--wave-blocks", "0", "what calibrate says; 0 finds it out"},
      {"--iterations-per-us", "0", "what calibrate says; 0 finds it out"},
      {"--class", "", "scheduling class: high, normal or low; empty: low for a hog, else high"},
      {"--name", "", "shown by gpusharedctl; empty: the load"},
      {"--device", "", "device to use; empty lets the server choose"},
      {"--start-at", "0", "begin at this Unix time in seconds, to start together with others"},
      {"--json", "", "write the outcome to this file"},
  });
}

SchedulingClass GetClass(const samples::Options& options, bool is_hog) {
  if (!options.Text("--class").empty()) return options.Class("--class");
  return is_hog ? SchedulingClass::kLow : SchedulingClass::kHigh;
}

Calibration GetCalibration(const samples::Options& options, Launcher& launcher) {
  const Calibration given{
      .wave_blocks = static_cast<unsigned>(options.Integer("--wave-blocks", 0, 1 << 20)),
      .iterations_per_us = options.Number("--iterations-per-us", 0, 4000)};
  if ((given.wave_blocks == 0) != (given.iterations_per_us == 0))
    throw std::runtime_error("--wave-blocks and --iterations-per-us come together");
  return given.wave_blocks != 0 ? given : Calibrate(launcher);
}

Shape GetShape(const std::string& load, const samples::Options& options,
               const Calibration& calibration) {
  if (load == "null") return {};
  if (load == "kernel_1ms")
    return {calibration.wave_blocks, calibration.Iterations(kMeasuredKernelUs)};
  const auto waves = static_cast<unsigned>(options.Integer("--waves", 1, 1 << 16));
  if (calibration.wave_blocks > kGridMax / waves) {
    throw std::runtime_error("option '--waves' is '" + options.Text("--waves") +
                             "', allowed: grids of " + std::to_string(kGridMax) + " blocks");
  }
  return {waves * calibration.wave_blocks,
          calibration.Iterations(options.Number("--block-us", 0.001, 1e6))};
}

void Report(const samples::Options& options, const std::string& json) {
  std::printf("gpu_hog: %s\n", json.c_str());
  const std::string& path = options.Text("--json");
  if (path.empty()) return;
  std::ofstream file(path);
  file << json << '\n';
  file.close();
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
}

// Runs a load and returns whether every block ran once. Creates the client unless an earlier load
// has created it.
bool RunLoad(const samples::Options& options, std::optional<Launcher>& client) {
  const std::string& load = options.Text("--load");
  if (load != "calibrate" && load != "hog" && load != "null" && load != "kernel_1ms") {
    throw std::runtime_error("option '--load' is '" + load +
                             "', allowed: calibrate, hog, null and kernel_1ms");
  }
  const std::string& name = options.Text("--name");
  if (!client) {
    client.emplace(ClientOptions{.name = name.empty() ? load : name,
                                 .scheduling_class = GetClass(options, load == "hog"),
                                 .device = options.Text("--device")});
  }
  Launcher& launcher = *client;
  launcher.Clear();
  const DeviceProperties& device = launcher.client().device();
  const Calibration calibration = GetCalibration(options, launcher);
  const std::string head = Joined("{\"device\": \"", device.id, "\", \"load\": \"", load,
                                  "\", \"wave_blocks\": ", calibration.wave_blocks,
                                  ", \"iterations_per_us\": ", calibration.iterations_per_us);
  if (load == "calibrate") {
    Report(options, Joined(head, ", \"multiprocessors\": ", device.multiprocessors, "}"));
    return true;
  }
  const Shape shape = GetShape(load, options, calibration);
  const double seconds_max = options.Number("--seconds", 0, 1e6);
  const double given_pause_ms = options.Number("--pause-ms", 0, 1e6);
  const double pause_ms = given_pause_ms > 0 ? given_pause_ms : load == "null" ? 1 : 3;
  const auto seed = static_cast<unsigned>(options.Integer("--seed", 0, 1 << 30));
  // Launches once before measuring, because the first launch loads the kernel.
  launcher.Launch(shape);
  launcher.Wait();

  const double late_s = samples::SleepUntilUnixTime(options.Number("--start-at", 0, 1e11));
  const Outcome outcome = load == "hog"
                              ? Hog(launcher, shape).Run(seconds_max)
                              : MeasureRoundTrips(launcher, shape, seconds_max, pause_ms, seed);
  const bool is_right = launcher.HasRunAll(shape.iterations);
  const std::string asked = load == "hog"
                                ? Joined(", \"waves\": ", options.Number("--waves", 1, 1 << 16),
                                         ", \"block_us\": ", options.Number("--block-us", 0, 1e6))
                                : "";
  Report(options, Joined(head, asked, ", \"blocks\": ", shape.blocks, ", ", outcome.fields,
                         ", \"seconds\": ", outcome.seconds, ", \"late_s\": ", late_s,
                         ", \"results_checked\": ", is_right ? "true" : "false", "}"));
  return is_right;
}

int Run(int argc, char** argv) {
  std::optional<Launcher> client;
  bool are_right = true;
  for (int first = 1; first <= argc; ++first) {
    std::vector<char*> words = {argv[0]};
    while (first < argc && std::string_view(argv[first]) != "+") words.push_back(argv[first++]);
    samples::Options options = KnownOptions();
    if (!options.Parse(static_cast<int>(words.size()), words.data(),
                       "gpu_hog: keeps a GPU full, or measures beside who does"))
      return 0;
    are_right &= RunLoad(options, client);
  }
  return are_right ? 0 : 1;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  try {
    return gpushared::testing::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_hog: %s\n", error.what());
    return 1;
  }
}
