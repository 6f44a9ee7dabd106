// SPDX-License-Identifier: Apache-2.0
// How soon high work gets the cpu device while a low kernel of a million blocks runs.
//
// High work arrives at random moments. Two times are measured from its arrival: until the start of
// its block, and until the end of the preempted low launch. Both are compared with the time of one
// block of the low kernel in the same run.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/device/cpu/cpu_device.h"
#include "tests/bench/report.h"
#include "tests/support/load_module.h"

namespace gpushared::testing {
namespace {

using device::DeviceClock;
using std::chrono::microseconds;

constexpr std::string_view kText = R"(
.version 8.1
.target sm_75
.address_size 64
.entry work(.param .u64 out, .param .u32 rounds) {
.reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<5>;
ld.param.u64 %rd0, [out];
ld.param.u32 %r0, [rounds];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
add.u32 %r3, %r1, %r2;
LOOP:
mad.lo.u32 %r3, %r3, 1664525, 1013904223;
sub.u32 %r0, %r0, 1;
setp.ne.u32 %p0, %r0, 0;
@%p0 bra LOOP;
mul.wide.u32 %rd1, %r1, 4;
add.s64 %rd2, %rd0, %rd1;
st.global.u32 [%rd2], %r3;
ret;
}
)";
constexpr std::uint32_t kBlocks = 1'000'000;
constexpr std::uint32_t kThreads = 64;
constexpr device::StreamKey kLow = 1;
constexpr device::StreamKey kHigh = 2;

template <typename T>
T Must(Result<T> result) {
  if (result) return *std::move(result);
  std::fprintf(stderr, "%s\n", std::string(result.status().message()).c_str());
  std::exit(1);
}

struct Parameters {
  std::uint64_t out = 0;
  std::uint32_t rounds = 0;
};
constexpr std::size_t kParameterBytes = 12;  // sizeof would include tail padding.

class Bench {
 public:
  Bench()
      : device_(Must(device::CreateCpuDevice({.executor_threads = 1}, [] {}))),
        space_(Must(device_->CreateSpace({.quota_bytes = std::uint64_t{16} << 20}))) {
    (void)Must(space_->Resize(std::uint64_t{2} << 20));
    module_ = Must(LoadModule(*space_, kText));
  }

  void Submit(device::StreamKey stream, std::uint32_t blocks, std::uint32_t rounds,
              std::uint64_t first_unit = 0) {
    Parameters& parameters = parameters_.at(stream);
    parameters = {.out = space_->base() + stream * 4096, .rounds = rounds};
    device::LaunchWork work;
    work.id = stream;
    work.space = space_.get();
    work.stream = stream;
    work.priority = stream == kHigh ? 2 : 0;
    work.first_unit = first_unit;
    work.module = module_.get();
    work.grid = {blocks, 1, 1};
    work.block = {kThreads, 1, 1};
    work.parameters = std::as_bytes(std::span(&parameters, 1)).first(kParameterBytes);
    device_->Submit(work);
  }
  void Stop() { device_->RequestStop(kLow); }
  // Waits for `count` completions, and stores those of low and high work in `low` and `high`.
  void Await(std::size_t count, device::Completion* low, device::Completion* high) {
    std::vector<device::Completion> out(2);
    while (count > 0) {
      const std::size_t taken = device_->TakeCompletions(out);
      for (std::size_t i = 0; i < taken; ++i) *(out[i].id == kLow ? low : high) = out[i];
      count -= taken;
      // Sleeps instead of spinning, because the measured work may need the machine's only core.
      if (taken == 0) std::this_thread::sleep_for(microseconds(200));
    }
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Space> space_;
  std::shared_ptr<const device::Module> module_;
  std::vector<Parameters> parameters_ = std::vector<Parameters>(3);
};

void MeasureStops(Report& report, std::uint32_t rounds, const std::string& name) {
  constexpr int kArrivals = 400;
  Bench bench;
  std::mt19937 random(1);
  Samples until_high, until_stopped, block;
  std::uint64_t done = 0;
  for (int i = 0; i < kArrivals; ++i) {
    bench.Submit(kLow, kBlocks, rounds, done);
    std::this_thread::sleep_for(microseconds(500 + random() % 3000));
    const auto arrival = DeviceClock::now();
    bench.Submit(kHigh, 1, 1);
    bench.Stop();
    device::Completion low, high;
    bench.Await(2, &low, &high);
    until_high.Add(high.started - arrival);
    until_stopped.Add(low.ended - arrival);
    const std::uint64_t ran = low.units_done - done;
    if (ran > 0) block.Add((low.ended - low.started) / static_cast<std::int64_t>(ran));
    done = low.units_done < kBlocks ? low.units_done : 0;
  }
  report.Add(name + ": one block", block);
  report.Add(name + ": high starts", until_high);
  report.Add(name + ": low has stopped", until_stopped);
}

void MeasureAll(Report& report) {
  MeasureStops(report, 100, "short blocks");
  MeasureStops(report, 2000, "long blocks");
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  using namespace gpushared::testing;
  return RunReport(argc, argv, "stop_bench: stops on the cpu device", MeasureAll);
}
