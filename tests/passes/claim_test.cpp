// SPDX-License-Identifier: Apache-2.0
// Claimed kernels compute what their originals do, whenever they are stopped. A further kernel is
// one line in kCases.
#include "server/ptx/claim.h"

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ptx/parser.h"
#include "tests/passes/claim_schedules.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

constexpr std::uint32_t kSchedules = 1000;
constexpr std::uint32_t kThreads = 3;
constexpr std::uint64_t kMemoryBytes = std::uint64_t{512} << 10;

// One argument of a kernel: a value, or a buffer of random contents.
struct Argument {
  enum class Kind : std::uint8_t { kValue, kZeros, kBytes, kWords, kFloats };
  Kind kind = Kind::kValue;
  std::uint32_t count = 0;              // Elements of a buffer.
  std::uint32_t below = 256;            // Words and floats are whole numbers below this.
  std::array<std::byte, 4> value = {};  // Of a value.
};
Argument Zeros(std::uint32_t words) { return {.kind = Argument::Kind::kZeros, .count = words}; }
Argument Bytes(std::uint32_t count) { return {.kind = Argument::Kind::kBytes, .count = count}; }
Argument Words(std::uint32_t count, std::uint32_t below = 256) {
  return {.kind = Argument::Kind::kWords, .count = count, .below = below};
}
Argument Floats(std::uint32_t count) { return {.kind = Argument::Kind::kFloats, .count = count}; }
template <typename T>
Argument Value(T value) {
  static_assert(sizeof value == 4);
  Argument argument;
  std::memcpy(argument.value.data(), &value, sizeof value);
  return argument;
}
Argument Int(int value) { return Value(value); }

struct Case {
  const char* file;
  const char* kernel;
  device::Dim3 grid, block;
  std::vector<Argument> arguments;
  std::uint32_t dynamic_shared_bytes = 0;
};

const std::vector<Case>& Cases() {
  static const std::vector<Case> kCases = {
      {"claims", "place", {5, 3, 4}, {3, 5, 2}, {Zeros(60 * 30 * 4), Zeros(60 * 30 * 4)}},
      {"claims", "place", {7}, {45}, {Zeros(7 * 45 * 4), Zeros(7 * 45 * 4)}},
      {"claims", "place", {1, 1, 6}, {1}, {Zeros(24), Zeros(24)}},
      {"claims", "columns", {5, 3, 2}, {33}, {Zeros(32)}},
      {"claims", "columns", {17}, {33}, {Zeros(32)}},
      {"claims", "rows", {5, 3, 2}, {32}, {Zeros(32)}},
      {"claims", "planes", {2, 3, 5}, {32}, {Zeros(32)}},
      {"claims", "sizes_only", {2, 3, 5}, {1, 40}, {Zeros(64)}},
      {"claims", "no_parameters", {23}, {64}, {}},
      {"claims", "dynamic_shared", {9}, {40}, {Zeros(9 * 40 * 3), Int(0)}, 0},
      {"claims", "dynamic_shared", {9}, {40}, {Zeros(9 * 40 * 3), Int(1)}, 1},
      {"claims", "dynamic_shared", {9}, {40}, {Zeros(9 * 40 * 3), Int(77)}, 77},
      {"claims", "dynamic_shared", {9}, {40}, {Zeros(9 * 40 * 3), Int(128)}, 128},
      {"claims", "aligned_shared", {6}, {50}, {Zeros(300)}, 800},
      {"claims", "bounded", {9}, {64}, {Words(9 * 64)}},
      {"claims", "leaves", {11}, {72}, {Zeros(11 * 72)}},
      {"claims", "last_block", {19}, {32}, {Zeros(32), Zeros(1), Zeros(1)}},
      {"claims", "grid_stride", {6}, {32}, {Words(1000), Zeros(1000), Int(1000)}},
      {"claims", "look_back_scan", {24}, {32}, {Words(768), Zeros(768), Zeros(64)}},
      {"claims", "retried", {12}, {32}, {Zeros(2)}},
      {"barriers", "many_rounds", {5}, {70}, {Zeros(350), Int(4)}, 280},
      {"barriers", "producer_consumer", {7}, {128}, {Zeros(160)}},
      {"barriers", "reductions", {7}, {100}, {Zeros(300), Int(40), Int(1)}},
      {"barriers", "parted_warp", {5}, {64}, {Zeros(64)}},
      {"barriers", "counts_whole_warps", {5}, {80}, {Zeros(80)}},
      {"classic", "vector_add", {9}, {64}, {Floats(550), Floats(550), Zeros(550), Int(550)}},
      {"classic", "saxpy", {5}, {96}, {Int(1000), Value(2.5f), Floats(1000), Floats(1000)}},
      {"classic",
       "matrix_product_tiled",
       {2, 2},
       {16, 16},
       {Floats(1024), Floats(1024), Zeros(1024), Int(32)}},
      {"classic",
       "matrix_product_naive",
       {2, 4},
       {8, 4},
       {Floats(256), Floats(256), Zeros(256), Int(16)}},
      {"classic", "reduce", {5}, {256}, {Floats(2000), Zeros(1), Int(2000)}},
      {"classic", "histogram", {4}, {256}, {Bytes(3000), Zeros(256), Int(3000)}},
      {"classic", "mandelbrot", {3, 4}, {8, 4}, {Zeros(384), Int(24), Int(16), Int(20)}},
      {"classic", "n_body", {3}, {32}, {Floats(400), Zeros(400), Int(9)}},
      {"classic", "scan_blocks", {4}, {256}, {Words(1000), Zeros(1000), Int(1000)}},
      {"classic", "transpose", {3, 2}, {16, 16}, {Floats(1500), Zeros(1500), Int(40), Int(30)}},
      {"classic", "bitonic_sort", {2}, {512}, {Words(2048, 100000)}},
      {"classic", "stencil", {2, 5}, {32, 4}, {Floats(1200), Zeros(1200), Int(60), Int(20)}},
      {"classic", "softmax", {6}, {128}, {Floats(900), Zeros(900), Int(150)}},
      {"classic",
       "tanh_layer",
       {2, 4},
       {32},
       {Floats(2000), Floats(60), Floats(200), Zeros(300), Int(20), Int(50)}},
      {"divergence", "walk", {9}, {64}, {Zeros(600), Int(550)}},
      {"divergence", "select_case", {5}, {64}, {Words(64), Zeros(64)}},
      {"divergence", "early_return", {5}, {64}, {Zeros(64)}},
      {"divergence", "exchange_after_parting", {5}, {64}, {Zeros(64), Int(5)}},
      {"functions", "pass_structs", {4}, {40}, {Zeros(128)}},
      {"functions", "recurse", {4}, {40}, {Zeros(64)}},
      {"functions", "call_each_other", {4}, {40}, {Zeros(64)}},
      {"functions", "exchange_in_function", {4}, {64}, {Zeros(64)}},
      {"functions", "barrier_in_function", {4}, {128}, {Zeros(128)}},
      {"functions", "exit_in_function", {4}, {64}, {Zeros(64)}},
  };
  return kCases;
}

// A module in memory of its own, with its claimed forms.
class Bench {
 public:
  explicit Bench(const std::string& file) : memory_(kMemoryBytes / sizeof(Line)) {
    const std::string text = ReadFile(std::string(GPUSHARED_PASSES_PTX_DIR) + "/" + file + ".ptx");
    Result<ptx::Module> module = ptx::Parse(text);
    EXPECT_TRUE(module) << module.status().message();
    if (!module) return;
    const auto layout = executor::LayOutModule(*module);
    EXPECT_TRUE(layout) << layout.status().message();
    const std::vector<std::byte> initial = layout->InitialBytes(base());
    std::ranges::copy(initial, reinterpret_cast<std::byte*>(memory_.data()));
    used_ = layout->bytes;
    auto made = ClaimedModule::Make(*module, *layout, base());
    EXPECT_TRUE(made) << made.status().message();
    if (made) module_ = *std::move(made);
  }

  // Fails the test, and returns nothing, when there is no claimed form.
  std::optional<ClaimedLaunch> Prepare(const Case& what) {
    const ptx::ClaimedKernel* kernel = module_ ? module_->Find(what.kernel) : nullptr;
    if (kernel == nullptr) return std::nullopt;
    ClaimedLaunch launch;
    launch.original = &module_->Original(*kernel);
    launch.claimed = &module_->Claimed(*kernel);
    EXPECT_EQ(launch.claimed->info().unsupported, "");
    launch.parameter_offset = kernel->parameter_offset;
    launch.grid = what.grid;
    launch.block = what.block;
    launch.dynamic_shared_bytes = what.dynamic_shared_bytes;
    for (const Argument& argument : what.arguments) Append(argument, &launch.parameters);
    launch.parameters.resize(launch.original->info().parameter_bytes);
    launch.memory = {.base = base(), .mapped_bytes = &mapped_bytes_};
    launch.bytes = {reinterpret_cast<std::byte*>(memory_.data()), used_};
    return launch;
  }

  const ClaimedModule& module() const { return *module_; }

 private:
  struct alignas(256) Line {
    std::array<std::byte, 256> bytes;
  };

  std::uint64_t base() const { return reinterpret_cast<std::uint64_t>(memory_.data()); }

  void Append(const Argument& argument, std::vector<std::byte>* parameters) {
    if (argument.kind == Argument::Kind::kValue) {
      parameters->insert(parameters->end(), argument.value.begin(), argument.value.end());
      return;
    }
    used_ = (used_ + 255) / 256 * 256;
    const std::uint64_t address = base() + used_;
    std::mt19937 random(argument.count);
    for (std::uint32_t i = 0; i < argument.count; ++i) {
      const auto word = static_cast<std::uint32_t>(random() % argument.below);
      const auto real = static_cast<float>(word);
      std::byte* at = reinterpret_cast<std::byte*>(memory_.data()) + used_;
      if (argument.kind == Argument::Kind::kBytes) at[i] = static_cast<std::byte>(word);
      if (argument.kind == Argument::Kind::kWords) std::memcpy(at + 4 * i, &word, 4);
      if (argument.kind == Argument::Kind::kFloats) std::memcpy(at + 4 * i, &real, 4);
    }
    used_ += std::uint64_t{argument.count} * 4;
    parameters->resize((parameters->size() + 7) / 8 * 8);
    const auto* bytes = reinterpret_cast<const std::byte*>(&address);
    parameters->insert(parameters->end(), bytes, bytes + sizeof address);
  }

  std::vector<Line> memory_;
  std::atomic<std::uint64_t> mapped_bytes_ = kMemoryBytes;
  std::uint64_t used_ = 0;
  std::unique_ptr<ClaimedModule> module_;
};

class ClaimedKernels : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ClaimedKernels, ComputeTheSameUnderEverySchedule) {
  const Case& what = Cases()[GetParam()];
  Bench bench(what.file);
  const std::optional<ClaimedLaunch> launch = bench.Prepare(what);
  ASSERT_TRUE(launch) << what.kernel << " has no claimed form";
  const std::vector<std::byte> before(launch->bytes.begin(), launch->bytes.end());
  ScheduleRunner runner(kThreads);
  EXPECT_EQ(runner.Run(*launch, kSchedules, GetParam() * 100000), "");
  // A comparison of nothing with nothing would show nothing.
  EXPECT_FALSE(std::ranges::equal(before, launch->bytes)) << "the kernel writes nothing";
  EXPECT_EQ(runner.schedules(), kSchedules);
  // Stops came in the middle of launches, not only between them.
  EXPECT_GT(runner.stops(), kSchedules / 10);
}

INSTANTIATE_TEST_SUITE_P(All, ClaimedKernels, ::testing::Range<std::size_t>(0, Cases().size()),
                         [](const auto& any) {
                           const Case& what = Cases()[any.param];
                           return std::string(what.file) + "_" + what.kernel + "_" +
                                  std::to_string(any.param);
                         });

TEST(Claimed, KernelsThatWaitForAllBlocksAreNotAndTheReasonSaysSo) {
  Bench bench("claims");
  const auto& kernels = bench.module().kernels();
  const auto found = std::ranges::find(kernels, "barrier_of_the_grid", &ptx::ClaimedKernel::kernel);
  ASSERT_NE(found, kernels.end());
  EXPECT_EQ(found->claimed, "");
  EXPECT_THAT(found->reason, ::testing::HasSubstr("waiting for other blocks"));
}

TEST(Claimed, LocksThatBlocksShareCountAsWaiting) {
  Bench bench("divergence");
  for (const char* kernel : {"lane_lock", "naive_lane_lock", "wait_in_warp"}) {
    EXPECT_EQ(bench.module().Find(kernel), nullptr) << kernel;
  }
}

}  // namespace
}  // namespace gpushared::testing
