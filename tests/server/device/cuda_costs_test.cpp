// SPDX-License-Identifier: Apache-2.0
// Checks the model itself: the fake driver with the costs of a real one, in virtual time.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "server/device/cuda/driver.h"
#include "tests/support/fake_cuda/costs.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/virtual_time/virtual_time.h"

namespace gpushared::device::cuda {
namespace {

using testing::fake_cuda::Costs;

// spin(rounds, out): every block runs a loop of `rounds` and adds 1 to the word at `out`.
constexpr const char* kSpinPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u32 rounds, .param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u32 %r1, [rounds];
  ld.param.u64 %rd1, [out];
  atom.global.add.u32 %r3, [%rd1], 1;
LOOP:
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra LOOP;
  ret;
}
)";

// Fixture with a GPU of one multiprocessor, which has space for four blocks of one warp.
class CudaCosts : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda_reset();
    ASSERT_EQ(fake_cuda_script("sms 1; attribute 39 128; costs on"), nullptr);
    virtual_time_begin();
    driver_ = *Driver::Load();
    Do(driver_->DevicePrimaryCtxRetain, &context_, 0);
    Do(driver_->CtxSetCurrent, context_);
    Do(driver_->StreamCreateWithPriority, &low_, kStreamNonBlocking, 0);
    Do(driver_->StreamCreateWithPriority, &high_, kStreamNonBlocking, -5);
    Do(driver_->ModuleLoadDataEx, &module_, static_cast<const void*>(kSpinPtx), 0U,
       static_cast<JitOption*>(nullptr), static_cast<void**>(nullptr));
    Do(driver_->ModuleGetFunction, &spin_, module_, "spin");
    Do(driver_->MemAlloc, &out_, std::size_t{4096});
    Do(driver_->MemHostAlloc, &host_, std::size_t{4096}, 0U);
    Do(driver_->EventCreate, &timed_, 0U);
    Do(driver_->EventCreate, &untimed_, kEventDisableTiming);
  }
  void TearDown() override {
    Do(driver_->EventDestroy, timed_);
    Do(driver_->EventDestroy, untimed_);
    Do(driver_->MemFreeHost, host_);
    Do(driver_->MemFree, out_);
    Do(driver_->ModuleUnload, module_);
    Do(driver_->StreamDestroy, low_);
    Do(driver_->StreamDestroy, high_);
    Do(driver_->DevicePrimaryCtxRelease, 0);
    EXPECT_STREQ(fake_cuda_take_mistakes(), "");
    fake_cuda_reset();
  }

  template <typename Call, typename... Arguments>
  void Do(const Call& call, Arguments... arguments) {
    const Status status = driver_->Try(call, arguments...);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  void Launch(Stream stream, std::uint32_t rounds, unsigned blocks = 1) {
    std::array<void*, 2> given = {&rounds, &out_};
    Do(driver_->LaunchKernel, spin_, blocks, 1U, 1U, 32U, 1U, 1U, 0U, stream, given.data(),
       static_cast<void**>(nullptr));
  }
  std::uint64_t GetTime(const std::function<void()>& what) {
    const std::uint64_t begin = virtual_time_now();
    what();
    return virtual_time_now() - begin;
  }
  // Returns the time that work takes on an idle GPU until its end is known.
  std::uint64_t TimeOfWork(const std::function<void()>& what) {
    return GetTime([&] {
      what();
      Do(driver_->CtxSynchronize);
    });
  }
  // Returns the time between two long kernels of a stream, less the time between them without
  // `what`.
  std::uint64_t Between(const std::function<void()>& what) {
    const auto both = [&](const std::function<void()>& between) {
      return TimeOfWork([&] {
        Launch(low_, kLong);
        between();
        Launch(low_, kLong);
      });
    };
    return both(what) - both([] {});
  }

  static constexpr std::uint32_t kLong = 10'000;
  const Costs costs_;
  std::shared_ptr<const Driver> driver_;
  Context context_ = nullptr;
  Stream low_ = nullptr, high_ = nullptr;
  Module module_ = nullptr;
  Function spin_ = nullptr;
  DeviceAddress out_ = 0;
  void* host_ = nullptr;
  Event timed_ = nullptr, untimed_ = nullptr;
};

TEST_F(CudaCosts, CallOccupiesItsThreadAndItsWorkStartsAfterwards) {
  EXPECT_EQ(GetTime([&] { Launch(low_, 1); }), costs_.call_launch);
  EXPECT_EQ(driver_->StreamQuery(low_), Code::kNotReady);
  virtual_time_spend(costs_.launch_delay + 1000 + costs_.notice);
  EXPECT_EQ(GetTime([&] { Do(driver_->StreamQuery, low_); }), costs_.call_query);
}

TEST_F(CudaCosts, IdleTimeBetweenKernelsGrowsWithEveryOperation) {
  const std::uint64_t one = TimeOfWork([&] { Launch(low_, kLong); });
  const std::uint64_t two = TimeOfWork([&] { Launch(low_, 2 * kLong); });
  const std::uint64_t one_and_one = TimeOfWork([&] {
    Launch(low_, kLong);
    Launch(low_, kLong);
  });
  // The remainder is the second kernel's own first instructions.
  EXPECT_GE(one_and_one - two, costs_.kernel_gap);
  EXPECT_LT(one_and_one - two, costs_.kernel_gap + 10 * costs_.instruction);
  EXPECT_GT(two - one, one / 2);
  EXPECT_EQ(Between([&] { Do(driver_->EventRecord, untimed_, low_); }), costs_.untimed_event);
  EXPECT_EQ(Between([&] { Do(driver_->EventRecord, timed_, low_); }), costs_.timed_event);
  EXPECT_EQ(Between([&] { Do(driver_->StreamWriteValue32, low_, out_ + 64, 1U, 0U); }),
            costs_.write_value);
  EXPECT_EQ(Between([&] { Do(driver_->MemsetD32Async, out_ + 64, 1U, std::size_t{1}, low_); }),
            costs_.kernel_gap + costs_.fill_kernel);
  EXPECT_EQ(Between([&] { Do(driver_->MemcpyDtoHAsync, host_, out_, std::size_t{32}, low_); }),
            2 * costs_.engine_switch + costs_.copy_latency);
}

TEST_F(CudaCosts, BlocksRunInWavesThatFitGpu) {
  const auto time = [&](unsigned blocks) {
    return TimeOfWork([&] { Launch(low_, kLong, blocks); });
  };
  const std::uint64_t wave = time(1) - costs_.call_launch - costs_.launch_delay;
  EXPECT_LT(time(4), time(1) + 10);
  EXPECT_GT(time(5), time(4) + wave / 2);
  EXPECT_LT(time(8), time(5) + 10);
}

TEST_F(CudaCosts, BlocksOfHigherPriorityRunFirst) {
  Launch(low_, kLong, 400);
  virtual_time_spend(1'000'000);  // The long kernel is running by then.
  const std::uint64_t time = GetTime([&] {
    Launch(high_, 1, 4);
    Do(driver_->StreamSynchronize, high_);
  });
  EXPECT_EQ(driver_->StreamQuery(low_), Code::kNotReady);
  // The urgent kernel waits for at most one block of the other one.
  const std::uint64_t wave = std::uint64_t{3} * kLong * costs_.instruction;
  EXPECT_LT(time, wave + 20'000);
  Do(driver_->CtxSynchronize);
}

TEST_F(CudaCosts, SleepingWaiterWakesLater) {
  const auto waits = [&] { return TimeOfWork([&] { Launch(low_, kLong); }); };
  const std::uint64_t spins = waits();
  Do(driver_->DevicePrimaryCtxSetFlags, 0, kContextBlockingSync);
  EXPECT_EQ(waits() - spins, costs_.wake);
}

// ---- "lock on"

TEST_F(CudaCosts, CallThatWaitsForGpuBlocksOtherThreadsCalls) {
  ASSERT_EQ(fake_cuda_script("lock on"), nullptr);
  const std::uint64_t kernel = TimeOfWork([&] { Launch(low_, kLong); });
  const std::uint64_t begin = virtual_time_now();
  Launch(low_, kLong);
  Module other = nullptr;
  fake_cuda_elsewhere(1);
  const std::uint64_t own = GetTime([&] {
    Do(driver_->ModuleLoadDataEx, &other, static_cast<const void*>(kSpinPtx), 0U,
       static_cast<JitOption*>(nullptr), static_cast<void**>(nullptr));
  });
  fake_cuda_elsewhere(0);
  EXPECT_EQ(own, 0U) << "it is another thread's";
  EXPECT_EQ(fake_cuda_lock_free_at(), UINT64_MAX) << "the kernel runs";
  // The word that would stop the kernel cannot be written before the kernel has ended.
  Do(driver_->StreamWriteValue32, high_, out_ + 64, 1U, 0U);
  EXPECT_EQ(virtual_time_now() - begin,
            kernel - costs_.notice + costs_.call_load + costs_.call_write);
  EXPECT_EQ(fake_cuda_lock_free_at(), 0U);
  Launch(low_, kLong);
  // A call of the same thread waits, too, and needs the lock like other calls.
  EXPECT_GT(GetTime([&] { Do(driver_->ModuleUnload, other); }), kernel / 2);
}

TEST_F(CudaCosts, RegisteringBlocksOthersByItsSizeAndUnregisteringWaitsForGpu) {
  ASSERT_EQ(fake_cuda_script("lock on"), nullptr);
  constexpr std::size_t kMebibytes = 16;
  std::vector<std::byte> memory(kMebibytes << 20);
  const std::uint64_t registering = costs_.call_register + kMebibytes * costs_.register_mebibyte;
  const std::uint64_t kernel = TimeOfWork([&] { Launch(low_, 5 * kLong); });
  ASSERT_GT(kernel, 2 * registering);
  Launch(low_, 5 * kLong);
  const auto others_call = [&] {
    return GetTime([&] { Do(driver_->StreamWriteValue32, high_, out_ + 64, 1U, 0U); });
  };
  fake_cuda_elsewhere(1);
  Do(driver_->MemHostRegister, static_cast<void*>(memory.data()), memory.size(), 0U);
  fake_cuda_elsewhere(0);
  EXPECT_EQ(others_call(), registering + costs_.call_write);
  EXPECT_EQ(driver_->StreamQuery(low_), Code::kNotReady) << "the kernel runs on";
  fake_cuda_elsewhere(1);
  Do(driver_->MemHostUnregister, static_cast<void*>(memory.data()));
  fake_cuda_elsewhere(0);
  EXPECT_EQ(fake_cuda_lock_free_at(), UINT64_MAX) << "the kernel runs";
  EXPECT_GT(others_call(), costs_.call_unregister + kMebibytes * costs_.unregister_mebibyte);
  EXPECT_EQ(driver_->StreamQuery(low_), Code::kSuccess);
}

TEST_F(CudaCosts, LoadsCodeUnderLockOnceAndOtherCallsDoNotWait) {
  ASSERT_EQ(fake_cuda_script("lock on"), nullptr);
  Module other = nullptr;
  Function found = nullptr;
  Do(driver_->ModuleLoadDataEx, &other, static_cast<const void*>(kSpinPtx), 0U,
     static_cast<JitOption*>(nullptr), static_cast<void**>(nullptr));
  Launch(low_, kLong);
  EXPECT_GT(GetTime([&] { Do(driver_->ModuleGetFunction, &found, other, "spin"); }), 100'000U);
  Launch(low_, kLong);
  EXPECT_LT(GetTime([&] {
              Do(driver_->ModuleGetFunction, &found, other, "spin");
              Do(driver_->FuncLoad, found);
            }),
            1000U);
  Do(driver_->CtxSynchronize);
  Do(driver_->ModuleUnload, other);
}

// Like a step of a language model: 300 short kernels, with a few parameters that differ from those
// of the previous step.
TEST_F(CudaCosts, GraphLaunchCostsFiftiethOfSingleLaunches) {
  constexpr std::size_t kNodes = 300;
  std::uint32_t rounds = 100;
  std::array<void*, 2> given = {&rounds, &out_};
  const KernelNode kernel{.function = spin_, .block_x = 32, .parameters = given.data()};
  DriverGraph graph = nullptr;
  Do(driver_->GraphCreate, &graph, 0U);
  std::array<DriverNode, kNodes> nodes{};
  for (std::size_t i = 0; i < kNodes; ++i) {
    const DriverNode* const after = i == 0 ? nullptr : &nodes.at(i - 1);
    Do(driver_->GraphAddKernelNode, &nodes.at(i), graph, after, std::size_t{i == 0 ? 0U : 1U},
       &kernel);
  }
  DriverExec exec = nullptr;
  const std::uint64_t made =
      GetTime([&] { Do(driver_->GraphInstantiateWithFlags, &exec, graph, 0ULL); });
  const auto list = [&] {
    for (std::size_t i = 0; i < kNodes; ++i) Launch(low_, rounds);
  };
  const std::uint64_t by_list = GetTime(list);
  Do(driver_->CtxSynchronize);
  const std::uint64_t by_graph = GetTime([&] { Do(driver_->GraphLaunch, exec, low_); });
  Do(driver_->CtxSynchronize);
  const std::uint64_t changed = GetTime([&] {
    for (std::size_t i = 0; i < kNodes; i += 10) {
      Do(driver_->GraphExecKernelNodeSetParams, exec, nodes.at(i), &kernel);
    }
  });
  const std::uint64_t list_ends = TimeOfWork(list);
  const std::uint64_t graph_ends = TimeOfWork([&] { Do(driver_->GraphLaunch, exec, low_); });
  std::printf(
      "modelled, 300 kernels of 6 us: calls %.1f us as a list, %.1f us as a graph, %.1f us more "
      "with "
      "30 changed nodes; to the end %.0f us and %.0f us; made in %.0f us\n",
      static_cast<double>(by_list) / 1e3, static_cast<double>(by_graph) / 1e3,
      static_cast<double>(changed) / 1e3, static_cast<double>(list_ends) / 1e3,
      static_cast<double>(graph_ends) / 1e3, static_cast<double>(made) / 1e3);
  EXPECT_EQ(by_list, kNodes * costs_.call_launch);
  EXPECT_EQ(by_graph, costs_.call_graph_launch + kNodes * costs_.graph_launched_node);
  EXPECT_EQ(changed, 30 * costs_.call_graph_node);
  EXPECT_LT(50 * by_graph, by_list);
  // The graph's kernels are closer together, too, but the first one begins only after the call for
  // all of them.
  EXPECT_LE(graph_ends + (kNodes - 1) * (costs_.kernel_gap - costs_.graph_gap),
            list_ends + by_graph);
  Do(driver_->GraphExecDestroy, exec);
  Do(driver_->GraphDestroy, graph);
}

// The calls that CudaModule makes for a module: with all kernels, and with only the launched ones.
TEST_F(CudaCosts, LazyLoadingSavesTimeForModuleWithFewUsedKernels) {
  constexpr unsigned kKernels = 300, kUsed = 3;
  std::string text = ".version 8.0\n.target sm_75\n.address_size 64\n";
  for (unsigned i = 0; i < kKernels; ++i) {
    text += ".visible .entry k" + std::to_string(i) + "() { ret; }\n";
  }
  struct Loaded {
    std::uint64_t ns = 0, bytes = 0;
  };
  const auto load = [&](const char* mode, unsigned loaded) {
    ::setenv("CUDA_MODULE_LOADING", mode, 1);
    Module module = nullptr;
    std::vector<Function> functions(kKernels);
    const std::uint64_t before = fake_cuda_memory_used();
    Loaded took;
    took.ns = GetTime([&] {
      Do(driver_->ModuleLoadDataEx, &module, static_cast<const void*>(text.c_str()), 0U,
         static_cast<JitOption*>(nullptr), static_cast<void**>(nullptr));
      Do(driver_->ModuleEnumerateFunctions, functions.data(), kKernels, module);
      for (const Function function : functions) {
        const char* name = nullptr;
        Do(driver_->FuncGetName, &name, function);
        for (const FunctionAttribute attribute :
             {FunctionAttribute::kSharedBytes, FunctionAttribute::kLocalBytes,
              FunctionAttribute::kRegisters, FunctionAttribute::kPtxVersion,
              FunctionAttribute::kBinaryVersion}) {
          int value = 0;
          Do(driver_->FuncGetAttribute, &value, attribute, function);
        }
      }
      for (unsigned i = 0; i < loaded; ++i) {
        Do(driver_->FuncLoad, functions[i]);
        Do(driver_->FuncSetAttribute, functions[i], FunctionAttribute::kDynamicSharedBytesMax, 0);
      }
    });
    took.bytes = fake_cuda_memory_used() - before;
    Do(driver_->ModuleUnload, module);
    EXPECT_EQ(fake_cuda_memory_used(), before);
    ::unsetenv("CUDA_MODULE_LOADING");
    return took;
  };
  load("LAZY", 0);  // Fast, because the text has been compiled before.
  const Loaded all = load("EAGER", kKernels), first = load("LAZY", 1), used = load("LAZY", kUsed);
  std::printf(
      "modelled, 300 kernels: %.2f ms and %.1f MiB with all, %.2f ms to the first launch, "
      "%.2f ms and %.2f MiB with 3\n",
      static_cast<double>(all.ns) / 1e6, static_cast<double>(all.bytes) / 1048576,
      static_cast<double>(first.ns) / 1e6, static_cast<double>(used.ns) / 1e6,
      static_cast<double>(used.bytes) / 1048576);
  EXPECT_EQ(used.bytes, kUsed * costs_.kernel_code_bytes);
  EXPECT_EQ(all.bytes, kKernels * costs_.kernel_code_bytes);
  EXPECT_EQ(all.ns - used.ns, (kKernels - kUsed) * (costs_.kernel_load + 2 * costs_.call_other));
  EXPECT_LT(10 * first.ns, all.ns);
}

TEST_F(CudaCosts, InjectsWrongCopiesAndLostWords) {
  auto* const words = static_cast<std::uint32_t*>(host_);
  const auto copied = [&](std::uint32_t sent) {
    words[0] = words[1] = sent;
    words[2] = words[3] = 0;
    Do(driver_->MemcpyHtoDAsync, out_, words, std::size_t{8}, low_);
    Do(driver_->MemcpyDtoHAsync, words + 2, out_, std::size_t{8}, low_);
    Do(driver_->StreamSynchronize, low_);
    return words[2] == sent && words[3] == sent;
  };
  const auto written = [&](std::uint32_t value) {
    Do(driver_->StreamWriteValue32, low_, out_, value, 0U);
    Do(driver_->MemcpyDtoHAsync, words, out_, std::size_t{4}, low_);
    Do(driver_->StreamSynchronize, low_);
    return words[0];
  };
  ASSERT_EQ(fake_cuda_script("copies wrong 9"), nullptr);
  EXPECT_TRUE(copied(1)) << "shorter ones are right";
  EXPECT_EQ(written(5), 5U);
  ASSERT_EQ(fake_cuda_script("copies wrong 5; words lost"), nullptr);
  EXPECT_EQ(written(6), 5U);
  EXPECT_FALSE(copied(1));
  EXPECT_EQ(words[2], 1U);
  EXPECT_EQ(words[3], 0x02000001U) << "wrong twice, there and back";
  for (const char* wrong : {"copies right", "copies wrong", "copies wrong many", "words"}) {
    EXPECT_NE(fake_cuda_script(wrong), nullptr) << wrong;
  }
}

TEST_F(CudaCosts, SetsNamedCostAndRejectsUnknownOnes) {
  ASSERT_EQ(fake_cuda_script("cost timed_event 7000"), nullptr);
  EXPECT_EQ(Between([&] { Do(driver_->EventRecord, timed_, low_); }), 7000U);
  EXPECT_NE(fake_cuda_script("cost frobnication 1"), nullptr);
}

}  // namespace
}  // namespace gpushared::device::cuda
