// SPDX-License-Identifier: Apache-2.0
// Kernels of large modules, whose code is loaded into the driver at their first launch.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "server/device/cuda/cuda_module.h"
#include "server/device/cuda/kernel_loader.h"
#include "tests/server/device/cuda_device_fixture.h"

namespace gpushared::device::cuda {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kMany = CudaModule::kLoadedAtOnceMax + 4;

// Returns a module with the kernels `store`, `odd`, and more that do the same as `store`.
std::string ManyKernels(std::size_t count) {
  std::string text(kStorePtx);
  for (std::size_t i = 2; i < count; ++i) {
    text += ".visible .entry store" + std::to_string(i) +
            "(.param .u64 address, .param .u32 value)\n{\n.reg .b64 %rd<2>;\n.reg .b32 %r<2>;\n"
            "ld.param.u64 %rd1, [address];\nld.param.u32 %r1, [value];\n"
            "st.global.u32 [%rd1], %r1;\nret;\n}\n";
  }
  return text;
}

class CudaLateKernel : public CudaDeviceTest {
 protected:
  void TearDown() override {
    tenant_ = {};
    CudaDeviceTest::TearDown();
  }
  void Begin(std::size_t kernels, CudaDeviceOptions options = {}) {
    Start(std::move(options));
    tenant_ = NewTenant();
    fake_cuda_forget_calls();
    auto module = Load(*tenant_.space, ManyKernels(kernels));
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    tenant_.module = *std::move(module);
  }
  LaunchWork GetWork(const std::string& kernel, std::uint64_t offset) {
    LaunchWork work = StoreWork(tenant_, tenant_.At(offset), 1);
    work.kernel = KernelNamed(*tenant_.module, kernel);
    return work;
  }
  std::uint32_t WordAt(std::uint64_t offset) {
    std::uint32_t word = 0;
    const WorkId copy = Copy(tenant_, CopyWork::Direction::kDeviceToHost,
                             std::as_writable_bytes(std::span(&word, 1)), offset);
    EXPECT_TRUE(Await(copy).status.ok());
    return word;
  }

  Tenant tenant_;
};

TEST_F(CudaLateKernel, LoadsOnlyLaunchedKernelsAndEachOnce) {
  Begin(kMany);
  EXPECT_EQ(fake_cuda_calls("cuFuncLoad"), 0U);
  const std::uint64_t own = static_cast<std::uint64_t>(::gettid());
  for (int round = 0; round < 3; ++round) {
    for (const char* name : {"store3", "store7"}) {
      const LaunchWork work = GetWork(name, 64);
      gpu().Submit(work);
      EXPECT_TRUE(Await(work.id).status.ok());
      EXPECT_EQ(WordAt(64), static_cast<std::uint32_t>(work.id));
    }
  }
  EXPECT_EQ(fake_cuda_calls("cuFuncLoad"), 2U);
  fake_cuda_call call = {};
  for (std::size_t i = 0; fake_cuda_call_at(i, &call) != 0; ++i) {
    if (std::strcmp(call.name, "cuFuncLoad") == 0) {
      EXPECT_NE(call.thread, own);
    }
  }
}

TEST_F(CudaLateKernel, LoadsModuleWithFewKernelsWhole) {
  Begin(CudaModule::kLoadedAtOnceMax);
  EXPECT_EQ(fake_cuda_calls("cuFuncLoad"), CudaModule::kLoadedAtOnceMax);
}

TEST_F(CudaLateKernel, EagerLoadingLoadsKernelsWithModule) {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  Begin(kMany);
  EXPECT_EQ(fake_cuda_calls("cuFuncLoad"), kMany);
  ::setenv("CUDA_MODULE_LOADING", "LAZY", 1);
}

TEST_F(CudaLateKernel, LoadsModuleWholeIfDriverListsNoKernels) {
  Script("missing cuModuleEnumerateFunctions");
  Begin(kMany);
  const LaunchWork work = GetWork("store3", 64);
  gpu().Submit(work);
  EXPECT_TRUE(Await(work.id).status.ok());
}

TEST_F(CudaLateKernel, LateKernelHasSameFactsAsLoadedOne) {
  Begin(kMany);
  const auto small = Load(*tenant_.space, ManyKernels(CudaModule::kLoadedAtOnceMax));
  ASSERT_TRUE(small.ok());
  const KernelInfo& loaded = (*small)->kernels()[KernelNamed(**small, "odd")];
  const KernelInfo& late = tenant_.module->kernels()[KernelNamed(*tenant_.module, "odd")];
  EXPECT_EQ(late.parameter_bytes, loaded.parameter_bytes);
  EXPECT_EQ(late.parameters.size(), loaded.parameters.size());
  EXPECT_EQ(late.threads_per_block_max, loaded.threads_per_block_max);
  EXPECT_EQ(late.dynamic_shared_bytes_max, loaded.dynamic_shared_bytes_max);
  EXPECT_EQ(late.static_shared_bytes, loaded.static_shared_bytes);
  EXPECT_EQ(late.local_bytes, loaded.local_bytes);
  EXPECT_EQ(late.registers, loaded.registers);
}

TEST_F(CudaLateKernel, FailedLoadFailsOnlyLaunchesOfItsKernel) {
  Begin(kMany);
  Script("fail cuFuncLoad 1 2");
  for (int i = 0; i < 2; ++i) {
    const LaunchWork work = GetWork("store3", 64);
    gpu().Submit(work);
    const Completion failed = Await(work.id);
    EXPECT_EQ(failed.status.code(), StatusCode::kOutOfMemory);
    EXPECT_THAT(failed.status.message(),
                HasSubstr("launch rejected: kernel 'store3': loading it failed: cuFuncLoad: "));
  }
  const LaunchWork other = GetWork("store4", 64);
  gpu().Submit(other);
  EXPECT_TRUE(Await(other.id).status.ok());
}

// The stop arrives while the driver loads the kernel, and the module may be unloaded before the
// load ends.
TEST_F(CudaLateKernel, StopAndUnloadDuringLoadAreHarmless) {
  Begin(kMany);
  Script("slow cuFuncLoad 20");
  const LaunchWork work = GetWork("store3", 64);
  gpu().Submit(work);
  gpu().RequestStop(work.id);
  EXPECT_TRUE(Await(work.id).stopped);
  tenant_.module.reset();
}

// The launch already occupies a slot of the window, and work that has to end before an idle window
// may be queued after it. Therefore the load cannot wait for an idle window.
TEST_F(CudaLateKernel, LoadForWaitingLaunchSkipsIdleWindow) {
  std::atomic<int> asked = 0;
  CudaDeviceOptions options;
  options.await_quiet = [&asked] { ++asked; };
  Begin(kMany, std::move(options));
  const LaunchWork work = GetWork("store3", 64);
  gpu().Submit(work);
  EXPECT_TRUE(Await(work.id).status.ok());
  EXPECT_EQ(fake_cuda_calls("cuFuncLoad"), 1U);
  EXPECT_EQ(asked, 0);
}

TEST(KernelLoader, ForgettingModuleWaitsForLoadInProgress) {
  auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok()) << driver.status().ToString();
  KernelLoader loader(CudaContext::Open(*driver, 0, nullptr).value(), Urgency::kAwaited);
  std::promise<void> begun, forgotten;
  const int owner = 0;
  loader.Load(&owner, &owner, [&] {
    begun.set_value();
    EXPECT_EQ(forgotten.get_future().wait_for(std::chrono::milliseconds(100)),
              std::future_status::timeout);
  });
  begun.get_future().wait();
  loader.Forget(&owner);
  forgotten.set_value();
}

// A client that launches thousands of kernels for the first time must not block all other clients.
TEST(KernelLoader, ClientsAlternateRegardlessOfQueueLength) {
  auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok()) << driver.status().ToString();
  KernelLoader loader(CudaContext::Open(*driver, 0, nullptr).value(), Urgency::kAwaited);
  const int many = 0, few = 0, gone = 0;          // Clients.
  const std::array<int, 2> modules_of_many = {};  // Owners.
  const int module_of_few = 0, module_of_gone = 0;
  std::promise<void> begun, go_on, all;
  std::string order;
  loader.Load(&many, &modules_of_many[0], [&] {
    begun.set_value();
    go_on.get_future().wait();
  });
  begun.get_future().wait();
  for (int i = 0; i < 10; ++i) {
    loader.Load(&many, &modules_of_many[static_cast<std::size_t>(i) % 2], [&] { order += 'm'; });
  }
  loader.Load(&gone, &module_of_gone, [&] { order += 'g'; });
  for (int i = 0; i < 2; ++i) loader.Load(&few, &module_of_few, [&] { order += 'f'; });
  loader.Forget(&module_of_gone);
  loader.Load(&many, &modules_of_many[0], [&] { all.set_value(); });
  go_on.set_value();
  all.get_future().wait();
  EXPECT_EQ(order, "mfmfmmmmmmmm");
}

TEST(KernelLoader, ForgetsQueuedLoadsWithoutWaiting) {
  auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok()) << driver.status().ToString();
  const auto context = CudaContext::Open(*driver, 0, nullptr).value();
  ASSERT_TRUE(context->idle_windows().MayIssue(false));
  KernelLoader loader(context, Urgency::kAwaited);
  const int owner = 0;
  loader.Load(&owner, &owner, [] { FAIL() << "its owner is gone"; });
  while (!context->idle_windows().IsWanted()) std::this_thread::yield();
  auto forgotten = std::async(std::launch::async, [&] { loader.Forget(&owner); });
  EXPECT_EQ(forgotten.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  context->idle_windows().EndWork();
}

TEST_F(CudaLateKernel, LaterWorkOfStreamKeepsItsOrder) {
  Begin(kMany);
  Script("slow cuFuncLoad 5");
  const LaunchWork first = GetWork("store3", 64);
  const LaunchWork second = GetWork("store4", 64);
  gpu().Submit(first);
  gpu().Submit(second);
  EXPECT_EQ(WordAt(64), static_cast<std::uint32_t>(second.id));
}

TEST_F(CudaLateKernel, AGraphWaitsForAllOfItsKernels) {
  Begin(kMany);
  std::deque<GraphNode> nodes;
  std::vector<const GraphNode*> pointers;
  for (std::uint64_t i = 2; i < kMany; ++i) {
    nodes.emplace_back(GetWork("store" + std::to_string(i), 4 * i));
    pointers.push_back(&nodes.back());
  }
  const std::vector<std::uint64_t> versions(nodes.size(), 1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (fake_cuda_calls("cuGraphLaunch") == 0 && std::chrono::steady_clock::now() < end) {
    GraphWork work;
    work.id = ++last_id_;
    work.space = tenant_.space.get();
    work.stream = 1;
    work.nodes = pointers;
    work.number = 1;
    work.version = 1;
    work.node_versions = versions;
    gpu().SubmitGraph(work);
    EXPECT_TRUE(Await(work.id).status.ok());
  }
  EXPECT_EQ(fake_cuda_calls("cuGraphLaunch"), 1U);
  EXPECT_EQ(fake_cuda_calls("cuFuncLoad"), nodes.size());
}

}  // namespace
}  // namespace gpushared::device::cuda
