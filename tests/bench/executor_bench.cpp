// SPDX-License-Identifier: Apache-2.0
// Lane-instructions per second of the cpu device's executor on one thread, for kernels compiled by
// nvcc, with its operations compiled for x86-64 and for x86-64-v3. The baseline is the same
// computation as a g++ -O2 loop. The contenders alternate and CPU time is measured, so that a noisy
// machine affects all of them alike.
#include "tests/bench/executor_bench.h"

#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/device/memory_budget.h"
#include "server/device/reach.h"
#include "tests/bench/report.h"
#include "tests/executor/launcher.h"

namespace gpushared::testing {
namespace {

using executor::Flavour;

constexpr int kRounds = 15;
constexpr std::uint64_t kMemoryBytes = std::uint64_t{24} << 20;

// An executor with its memory, and arrays with the same contents for the host loop.
struct Side {
  explicit Side(Flavour flavour) : launcher(kMemoryBytes, flavour) {
    launcher.LoadFile(GPUSHARED_EXECUTOR_KERNELS);
  }
  float* Floats(std::size_t count) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> value(-1, 1);
    float* at = Array<float>(count);
    for (std::size_t i = 0; i < count; ++i) at[i] = value(random);
    return at;
  }
  template <typename T>
  T* Array(std::size_t count) {
    T* const at = launcher.Allocate<T>(count);
    const auto base = reinterpret_cast<std::uint64_t>(at);
    const std::uint64_t bytes = count * sizeof(T);
    reach.Add({.base = base, .bytes = bytes});
    const std::uint64_t first = base / kMapPageBytes * kMapPageBytes;
    steps.Add({.base = first, .bytes = device::RoundUp(base + bytes, kMapPageBytes) - first});
    // Leaves a hole, so that arrays are not adjacent and each is a separate range of the access
    // set.
    launcher.AllocateBytes(1);
    return at;
  }
  Launcher launcher;
  device::Reach reach;  // Access set with all arrays.
  device::Reach steps;  // Access set of the arrays' whole mapping pages, as a server grants it.
};

// Prepares a computation on one side's arrays: the host loop if `host`, otherwise the kernel.
using Prepare = std::function<std::function<void()>(Side& side, bool host)>;

struct Workload {
  const char* name;
  Prepare prepare;
};

void Finish(const executor::RunOutcome& outcome) {
  if (outcome.fault) throw std::runtime_error(outcome.fault->message);
}

std::vector<Workload> Workloads() {
  constexpr int kN = 256, kLong = 1 << 20, kRows = 128, kColumns = 512;
  constexpr int kInputs = 192, kUnits = 128, kSamples = 32;
  constexpr int kWidth = 320, kHeight = 240, kLimit = 100;
  const auto product = [](const char* kernel) {
    return [kernel](Side& side, bool host) -> std::function<void()> {
      const float *a = side.Floats(kN * kN), *b = side.Floats(kN * kN);
      float* c = side.Floats(kN * kN);
      if (host) return [=] { host::MatrixProduct(a, b, c, kN); };
      return [=, &side] {
        Finish(side.launcher.Run(kernel, {kN / 16, kN / 16, 1}, {16, 16, 1}, a, b, c, kN));
      };
    };
  };
  return {
      {"tiled gemm 256^3", product("matrix_product_tiled")},
      {"naive gemm 256^3", product("matrix_product_naive")},
      {"saxpy 1 M",
       [](Side& side, bool host) -> std::function<void()> {
         const float* x = side.Floats(kLong);
         float* y = side.Floats(kLong);
         if (host) return [=] { host::Saxpy(kLong, 1e-3f, x, y); };
         return [=, &side] {
           Finish(side.launcher.Run("saxpy", {64, 1, 1}, {256, 1, 1}, kLong, 1e-3f, x, y));
         };
       }},
      {"reduce 1 M",
       [](Side& side, bool host) -> std::function<void()> {
         const float* x = side.Floats(kLong);
         float* total = side.Floats(1);
         if (host) return [=] { *total = host::Reduce(x, kLong); };
         return [=, &side] {
           Finish(side.launcher.Run("reduce", {64, 1, 1}, {256, 1, 1}, x, total, kLong));
         };
       }},
      {"mandelbrot 320 x 240",
       [](Side& side, bool host) -> std::function<void()> {
         int* out = side.Array<int>(kWidth * kHeight);
         if (host) return [=] { host::Mandelbrot(out, kWidth, kHeight, kLimit); };
         return [=, &side] {
           Finish(side.launcher.Run("mandelbrot", {kWidth / 16, kHeight / 8, 1}, {16, 8, 1}, out,
                                    kWidth, kHeight, kLimit));
         };
       }},
      {"language model: tanh layer 192 x 128, 32 samples",
       [](Side& side, bool host) -> std::function<void()> {
         const float *w = side.Floats(kInputs * kUnits), *bias = side.Floats(kUnits);
         const float* in = side.Floats(kInputs * kSamples);
         float* out = side.Floats(kUnits * kSamples);
         if (host) return [=] { host::TanhLayer(w, bias, in, out, kInputs, kUnits, kSamples); };
         return [=, &side] {
           Finish(side.launcher.Run("tanh_layer", {1, kSamples, 1}, {kUnits, 1, 1}, w, bias, in,
                                    out, kInputs, kUnits));
         };
       }},
      {"language model: softmax 128 x 512",
       [](Side& side, bool host) -> std::function<void()> {
         const float* in = side.Floats(kRows * kColumns);
         float* out = side.Floats(kRows * kColumns);
         if (host) return [=] { host::Softmax(in, out, kRows, kColumns); };
         return [=, &side] {
           Finish(side.launcher.Run("softmax", {kRows, 1, 1}, {128, 1, 1}, in, out, kColumns));
         };
       }},
  };
}

// Returns this thread's CPU time, which other activity on the machine affects less than wall time.
std::chrono::nanoseconds ThreadTime() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

struct Contender {
  std::string name;
  std::unique_ptr<Side> side;
  std::function<void()> run;
  Samples samples;
};

void Measure(const Workload& workload, Report& report) {
  std::vector<Contender> contenders;
  const auto add = [&](const std::string& name, Flavour flavour, bool host,
                       device::Reach Side::*bound = nullptr) {
    auto side = std::make_unique<Side>(flavour);
    std::function<void()> run = workload.prepare(*side, host);
    if (bound != nullptr) side->launcher.reaches = {(*side).*bound};
    contenders.push_back({name, std::move(side), std::move(run), {}});
  };
  add("g++ -O2 loop", Flavour::kBaseline, true);
  add("x86-64", Flavour::kBaseline, false);
  if (executor::BestFlavour() == Flavour::kV3) add("x86-64-v3", Flavour::kV3, false);
  // The kernel may access only its arrays, each of which is a separate range.
  add("the last, with an access set", executor::BestFlavour(), false, &Side::reach);
  // This access set consists of whole mapping pages, so that neighbouring arrays merge into one
  // range.
  add("the same, access set in whole pages", executor::BestFlavour(), false, &Side::steps);

  double lane_instructions = 0;
  for (Contender& contender : contenders) {
    contender.side->launcher.count_instructions = true;
    contender.run();
    contender.side->launcher.count_instructions = false;
    lane_instructions = static_cast<double>(contender.side->launcher.counts().lane_instructions);
  }
  for (int round = 0; round < kRounds; ++round) {
    for (Contender& contender : contenders) {
      const std::chrono::nanoseconds start = ThreadTime();
      contender.run();
      contender.samples.Add(ThreadTime() - start);
    }
  }
  const std::string name = workload.name;
  report.AddValue(name + ", lane-instructions", lane_instructions / 1e6, "M");
  const double host_ns = contenders.front().samples.Percentile(0.5);
  for (const Contender& contender : contenders) {
    report.Add("  " + contender.name, contender.samples);
    if (&contender == &contenders.front()) continue;
    const double ns = contender.samples.Percentile(0.5);
    report.AddValue("    lane-instructions/s at p50", lane_instructions / ns, "G");
    report.AddValue("    time relative to the g++ -O2 loop", ns / host_ns, "x");
  }
}

void MeasureWorkloads(Report& report) {
  for (const Workload& workload : Workloads()) Measure(workload, report);
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using namespace gpushared::testing;
  return RunReport(argc, argv, "executor_bench: one thread, CPU time", MeasureWorkloads);
}
