// SPDX-License-Identifier: Apache-2.0
// Contained clients of a CUDA device: what their modules share with the device, how faults become
// errors, and how their kernels are ended. Their results are tested in tests/conformance, and the
// memory that they can access in tests/passes.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/device/cuda/contain_words.h"
#include "server/device/cuda/contained_launches.h"
#include "server/device/cuda/cuda_module.h"
#include "server/ptx/passes/fence.h"
#include "tests/server/device/contained_kernels.h"
#include "tests/server/device/cuda_device_fixture.h"
#include "tests/support/plain_compiler.h"

namespace gpushared::device::cuda {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ContainedClient : public CudaDeviceTest {
 protected:
  void SetUp() override {
    CudaDeviceTest::SetUp();
    Begin({});
  }
  void TearDown() override {
    tenant_ = {};
    CudaDeviceTest::TearDown();
  }
  void Begin(CudaDeviceOptions options) {
    tenant_ = {};
    device_.reset();
    Start(std::move(options));
    tenant_ = NewContained();
  }
  void BeginWithClaims() {
    CudaDeviceOptions options;
    options.limits.claim_group_blocks = 4;
    options.make_compiler = [] { return std::make_unique<testing::PlainCompiler>(); };
    Begin(std::move(options));
  }
  std::unique_ptr<Space> NewSpace(std::uint64_t quota = 16 * kMebibyte) {
    auto space = gpu().CreateSpace({.quota_bytes = quota, .isolation = Isolation::kContain});
    EXPECT_TRUE(space.ok()) << space.status().ToString();
    return space.ok() ? *std::move(space) : nullptr;
  }
  Tenant NewContained() {
    Tenant tenant;
    tenant.space = NewSpace();
    EXPECT_TRUE(tenant.space->Resize(4 * kMebibyte).ok());
    auto module = Load(*tenant.space, kContainedKernels);
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    if (module.ok()) tenant.module = *std::move(module);
    return tenant;
  }
  LaunchWork Work(const Tenant& tenant, std::string_view kernel, std::uint64_t address,
                  StreamKey stream = 1, std::uint32_t blocks = 1) {
    LaunchWork work;
    work.id = ++last_id_;
    work.space = tenant.space.get();
    work.stream = stream;
    work.module = tenant.module.get();
    work.kernel = KernelNamed(*tenant.module, kernel);
    work.grid = {blocks, 1, 1};
    std::vector<std::byte>& bytes = parameters_[work.id];
    bytes.resize(8);
    std::memcpy(bytes.data(), &address, 8);
    work.parameters = bytes;
    return work;
  }
  WorkId Submit(std::string_view kernel, std::uint64_t address, StreamKey stream = 1,
                std::uint32_t blocks = 1) {
    const LaunchWork work = Work(tenant_, kernel, address, stream, blocks);
    gpu().Submit(work);
    return work.id;
  }
  Status Run(std::string_view kernel, std::uint64_t address, std::uint32_t blocks = 1) {
    return Await(Submit(kernel, address, 1, blocks)).status;
  }
  void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); }
  void ExpectTrap(const Status& status, const std::string& kernel = "traps") {
    EXPECT_EQ(status.code(), StatusCode::kKernelFault);
    EXPECT_EQ(std::string(status.message()),
              "kernel '" + kernel +
                  "' ended early: trap at line 10 of 'traps' [block (3,0,0) thread (0,0,0)]");
  }
  static std::atomic_ref<std::uint32_t> WordAt(std::uint64_t address) {
    return std::atomic_ref<std::uint32_t>(
        *reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address)));
  }
  std::uint32_t Word(std::uint64_t offset) const { return WordAt(tenant_.At(offset)).load(); }
  std::uint64_t At(std::uint64_t offset) const { return tenant_.At(offset); }
  static const ContainedLaunches& GetLaunches(const Tenant& tenant) {
    return *static_cast<const CudaModule&>(*tenant.module).contained();
  }
  static std::uint64_t LimitFor(const device::Module& module) {
    std::uint64_t limit = 0;
    const auto address = static_cast<const CudaModule&>(module).contained()->control();
    std::memcpy(&limit, reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)), 8);
    return limit;
  }
  // Returns whether the launch would be stoppable with more blocks.
  bool HasClaimedForm(LaunchWork work) {
    work.grid = {100'000, 1, 1};
    return gpu().CanStop(work, std::chrono::seconds(10));
  }
  void WaitForWord(std::uint64_t offset, std::uint32_t value) {
    while (Word(offset) < value) std::this_thread::sleep_for(microseconds(50));
  }

  Tenant tenant_;
};

TEST_F(ContainedClient, FaultFailsOnlyItsLaunchAndLeavesNoTrace) {
  const Tenant other = NewContained();
  const LaunchWork beside = Work(other, "fine", other.At(0), 2);
  const WorkId fault = Submit("traps", At(0), 1, 1000);
  gpu().Submit(beside);
  ExpectTrap(Await(fault).status);
  ExpectOk(Await(beside.id).status);
  ExpectOk(Run("fine", At(64)));
  EXPECT_EQ(Word(64), 7U);
  ExpectOk(Run("traps", At(0), 3));
  ExpectTrap(Run("traps", At(0), 4));
  EXPECT_EQ(gpu().loss(), nullptr);
}

TEST_F(ContainedClient, LaunchesBeforeFaultSucceedAndLaterOnesFailWithItsMessage) {
  Script("hold");
  const WorkId ahead = Submit("fine", At(0));
  const WorkId fault = Submit("traps", At(0), 1, 4);
  const WorkId behind = Submit("fine", At(64));
  EXPECT_FALSE(IsDone(ahead)) << "all three are in one batch";
  Script("go");
  ExpectOk(Await(ahead).status);
  ExpectTrap(Await(fault).status);
  ExpectTrap(Await(behind).status, "fine");
  ExpectOk(Run("fine", At(64)));
}

TEST_F(ContainedClient, FaultEndsRunningLaunchesOfModuleBeforeNextStarts) {
  Script("hold");
  const WorkId fault = Submit("traps", At(0), 1, 4);
  const WorkId endless = Submit("endless", At(0), 2);
  EXPECT_FALSE(IsDone(fault));
  Script("go");
  ExpectTrap(Await(fault).status);
  const WorkId next = Submit("fine", At(64), 3);
  ExpectOk(Await(next).status);
  EXPECT_TRUE(completed_.contains(endless)) << "it was waited for";
  ExpectTrap(Await(endless).status, "endless");
}

TEST_F(ContainedClient, KilledKernelExitsAtItsPollAndLeavesNoTrace) {
  for (const bool has_writes : {true, false}) {
    if (!has_writes) {
      tenant_ = {};
      device_.reset();
      fake_cuda_reset();
      Script("missing cuStreamWriteValue32");
      Begin({});
    }
    const WorkId endless = Submit("endless", At(0), 1, 4);
    WaitForWord(0, 1);
    gpu().RequestStop(endless);
    EXPECT_FALSE(IsDone(endless));
    gpu().RequestKill(endless);
    const Completion ended = Await(endless);
    EXPECT_EQ(ended.status.code(), StatusCode::kCancelled);
    EXPECT_FALSE(ended.stopped);
    EXPECT_THAT(std::string(ended.status.message()),
                HasSubstr("killed on request: kernel 'endless' ended early: stopped by the server "
                          "at line 13 of 'endless'"));
    EXPECT_EQ(Word(0), 1U) << "blocks that had not begun end at once";
    ExpectOk(Run("fine", At(64)));
    EXPECT_EQ(Word(64), 7U);
  }
}

TEST_F(ContainedClient, KillEndsNeitherOtherModulesNorLaterLaunches) {
  const Tenant other = NewContained();
  Script("hold");
  const WorkId endless = Submit("endless", At(0));
  const LaunchWork beside = Work(other, "fine", other.At(0), 2);
  gpu().Submit(beside);
  EXPECT_FALSE(IsDone(endless));
  gpu().RequestKill(endless);
  const WorkId later = Submit("fine", At(64), 3);
  EXPECT_FALSE(IsDone(later)) << "waits for the one that has to end";
  Script("go");
  EXPECT_EQ(Await(endless).status.code(), StatusCode::kCancelled);
  ExpectOk(Await(beside.id).status);
  ExpectOk(Await(later).status);
}

TEST_F(ContainedClient, KillBetweenTwoLaunchesIsNotLost) {
  for (int round = 0; round < 100; ++round) {
    const WorkId endless = Submit("endless", At(0), 1 + static_cast<StreamKey>(round % 3));
    const auto until = DeviceClock::now() + std::chrono::nanoseconds(600 * round);
    while (DeviceClock::now() < until) {
    }
    gpu().RequestKill(endless);
    EXPECT_EQ(Await(endless).status.code(), StatusCode::kCancelled);
    ExpectOk(Run("fine", At(64)));
  }
}

// ---- a driver that accepts no call

// A call of another thread that waits for the running kernel and blocks all other calls until the
// kernel or this object ends.
class BusyDriver {
 public:
  BusyDriver() {
    EXPECT_EQ(fake_cuda_script("lock on"), nullptr);
    caller_ = std::jthread([this] { Call(); });
    while (fake_cuda_lock_free_at() == 0) std::this_thread::yield();
  }
  ~BusyDriver() {
    caller_.join();
    EXPECT_EQ(fake_cuda_script("lock off"), nullptr);
  }
  bool has_returned() const { return has_returned_; }

 private:
  void Call() {
    const auto driver = Driver::Load();
    ASSERT_TRUE(driver.ok());
    Context context = nullptr;
    DeviceAddress address = 0;
    EXPECT_EQ((*driver)->DevicePrimaryCtxRetain(&context, 0), Code::kSuccess);
    EXPECT_EQ((*driver)->CtxSetCurrent(context), Code::kSuccess);
    EXPECT_EQ((*driver)->MemAlloc(&address, 4096), Code::kSuccess);
    EXPECT_EQ((*driver)->MemFree(address), Code::kSuccess);
    has_returned_ = true;
    EXPECT_EQ((*driver)->CtxSetCurrent(nullptr), Code::kSuccess);
    EXPECT_EQ((*driver)->DevicePrimaryCtxRelease(0), Code::kSuccess);
  }

  std::atomic<bool> has_returned_ = false;
  std::jthread caller_;
};

TEST_F(ContainedClient, KillEndsAllEndlessKernelsWhileDriverIsBlocked) {
  const Tenant other = NewContained();
  const WorkId endless = Submit("endless", At(0), 1, 1000);
  const LaunchWork beside = Work(other, "endless", other.At(0), 2);
  gpu().Submit(beside);
  WaitForWord(0, 1);
  {
    const BusyDriver driver;
    std::jthread watcher([&] {
      std::this_thread::sleep_for(milliseconds(50));
      EXPECT_FALSE(driver.has_returned());
      EXPECT_TRUE(gpu().ReportKernelsToEnd());
    });
    // This thread is blocked in the driver until the kernels have ended.
    (void)Await(endless);
  }
  for (const WorkId id : {endless, beside.id}) {
    const Completion ended = Await(id);
    EXPECT_EQ(ended.status.code(), StatusCode::kKernelFault);
    EXPECT_EQ(ended.fault, FaultKind::kLaunchTimeout);
    EXPECT_THAT(
        std::string(ended.status.message()),
        AllOf(HasSubstr("kernel 'endless' ended early: stopped by the server at line 13 of"),
              HasSubstr(", as were all kernels, because a driver call did not return")));
  }
  EXPECT_EQ(Word(0), 1U) << "blocks that had not begun end at once";
  ExpectOk(Run("fine", At(64)));
  EXPECT_EQ(gpu().loss(), nullptr);
}

// The call that ends the later blocks is accepted only when the running kernel has ended.
TEST_F(ContainedClient, KillEndsKernelThatDriverWaitsFor) {
  const WorkId endless = Submit("endless", At(0));
  WaitForWord(0, 1);
  {
    const BusyDriver driver;
    gpu().RequestKill(endless);
  }
  EXPECT_EQ(Await(endless).status.code(), StatusCode::kCancelled);
  ExpectOk(Run("fine", At(64)));
}

TEST_F(ContainedClient, StopRequestDoesNotAffectLaterLaunches) {
  const Tenant other = NewContained();
  ExpectOk(Run("fine", At(0)));
  EXPECT_TRUE(gpu().ReportKernelsToEnd());
  ExpectOk(Run("fine", At(64)));
  EXPECT_EQ(Word(64), 7U);
  const LaunchWork beside = Work(other, "fine", other.At(0), 2);
  gpu().Submit(beside);
  ExpectOk(Await(beside.id).status);
  auto later = Load(*tenant_.space, kContainedKernels);
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(WordAt(static_cast<const CudaModule&>(**later).contained()->host_words() +
                   offsetof(ptx::ContainHostWords, stop))
                .load(),
            0U);
  // A later trap is reported as a trap.
  ExpectTrap(Run("traps", At(0), 4));
}

TEST_F(ContainedClient, OnlyContainedLaunchesCanBeKilled) {
  EXPECT_FALSE(gpu().info().can_kill);
  EXPECT_TRUE(gpu().CanKill(Work(tenant_, "fine", At(0))));
  const Tenant free = NewTenant();
  EXPECT_FALSE(gpu().CanKill(StoreWork(free, free.At(0), 1)));
  tenant_ = {};
  EXPECT_FALSE(gpu().ReportKernelsToEnd()) << "none is here that looks";
}

TEST_F(ContainedClient, LaunchRejectedByDriverFailsAlone) {
  const WorkId endless = Submit("endless", At(0));
  WaitForWord(0, 1);
  Script("fail cuLaunchKernel 1 2");
  EXPECT_EQ(Await(Submit("fine", At(64), 2)).status.code(), StatusCode::kOutOfMemory);
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(IsDone(endless));
  gpu().RequestKill(endless);
  EXPECT_THAT(std::string(Await(endless).status.message()), HasSubstr("stopped by the server"));
}

TEST_F(ContainedClient, ReadingLaunchOutcomeMakesNoDriverCall) {
  fake_cuda_forget_calls();
  ExpectOk(Run("fine", At(64)));
  ExpectTrap(Run("traps", At(0), 4));
  EXPECT_EQ(fake_cuda_calls("cuMemcpyDtoHAsync"), 0U);
}

TEST_F(ContainedClient, SecondFaultIsNotReportedAsSuccess) {
  // Both launches have ended before the device checks. The fault record belongs to the launch that
  // faulted first.
  for (const bool is_first : {true, false}) {
    Script("hold");
    const WorkId one = Submit(is_first ? "traps" : "traps_too", At(0), 1, 4);
    const WorkId other = Submit(is_first ? "traps_too" : "traps", At(0), 2, 4);
    const WorkId beside = Submit("fine", At(64), 3);
    EXPECT_FALSE(IsDone(one));
    Script("go");
    WaitForWord(64, 7);
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(Await(one).status.code(), StatusCode::kKernelFault);
    EXPECT_EQ(Await(other).status.code(), StatusCode::kKernelFault);
    (void)Await(beside);
    ExpectOk(Run("fine", At(64)));
    ASSERT_TRUE(tenant_.space->Resize(0).ok());
    ASSERT_TRUE(tenant_.space->Resize(4 * kMebibyte).ok());
  }
}

TEST_F(ContainedClient, RejectsLaunchesUntilWordsAreZeroed) {
  const WorkId fault = Submit("traps", At(0), 1, 4);
  Script("fail cuMemsetD32Async 1 2");
  ExpectTrap(Await(fault).status);
  ExpectOk(Run("fine", At(64)));
  EXPECT_EQ(gpu().loss(), nullptr);
  Script("fail cuMemsetD32Async * 2");
  ExpectTrap(Run("traps", At(0), 4));
  const Status rejected = Run("fine", At(64));
  EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(std::string(rejected.message()), HasSubstr("writing device memory failed"));
}

TEST_F(ContainedClient, EarlierLaunchesSucceedEvenIfCheckedAfterFault) {
  constexpr std::size_t kLaunches = 260;
  Script("hold");
  std::vector<WorkId> ids;
  for (std::size_t i = 0; i < kLaunches; ++i) ids.push_back(Submit("fine", At(4 * i)));
  const WorkId fault = Submit("traps", At(0), 1, 4);
  fake_cuda_forget_calls();
  EXPECT_FALSE(IsDone(ids[0]));
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 0U);
  Script("go");
  // All submitted work ends before the device checks.
  WaitForWord(4 * (kLaunches - 1), 7);
  std::this_thread::sleep_for(milliseconds(50));
  for (const WorkId id : ids) ExpectOk(Await(id).status);
  ExpectTrap(Await(fault).status);
}

// ---- memory

TEST_F(ContainedClient, StrayWritesNeitherFaultNorAppearInLaterMappedMemory) {
  for (const std::uint64_t stray : {4 * kMebibyte, 8 * kMebibyte, std::uint64_t{1} << 31}) {
    ExpectOk(Run("fine", At(stray)));
  }
  EXPECT_EQ(Word(4 * kMebibyte), 7U) << "they went behind the limit";
  ASSERT_TRUE(tenant_.space->Resize(8 * kMebibyte).ok());
  EXPECT_EQ(Word(4 * kMebibyte), 0U);
  ExpectOk(Run("fine", At(6 * kMebibyte)));
  EXPECT_EQ(Word(6 * kMebibyte), 7U) << "the limit has moved";
  ExpectOk(Run("fine", At(12 * kMebibyte)));
  EXPECT_EQ(Word(8 * kMebibyte), 7U);
  ASSERT_TRUE(tenant_.space->Resize(2 * kMebibyte).ok());
  ExpectOk(Run("fine", At(6 * kMebibyte)));
  EXPECT_EQ(Word(2 * kMebibyte), 7U);
  ASSERT_TRUE(tenant_.space->Resize(8 * kMebibyte).ok());
  EXPECT_EQ(Word(2 * kMebibyte), 0U);
  EXPECT_EQ(Word(6 * kMebibyte), 0U);
  ASSERT_TRUE(tenant_.space->Resize(0).ok());
  ExpectOk(Run("fine", At(0)));
  EXPECT_EQ(gpu().loss(), nullptr);
}

// The running kernel received the old end of memory as its limit, and its stray accesses may still
// hit any address below it.
TEST_F(ContainedClient, ReturnsNoMemoryWhileKernelRuns) {
  const Tenant other = NewContained();
  const std::uint64_t used = fake_cuda_memory_used();
  const WorkId endless = Submit("endless", At(0));
  WaitForWord(0, 1);
  EXPECT_EQ(tenant_.space->Resize(2 * kMebibyte).value(), 4 * kMebibyte);
  EXPECT_EQ(fake_cuda_memory_used(), used);
  EXPECT_EQ(LimitFor(*tenant_.module), At(4 * kMebibyte));
  EXPECT_EQ(tenant_.space->Resize(6 * kMebibyte).value(), 6 * kMebibyte) << "more it may have";
  EXPECT_EQ(other.space->Resize(2 * kMebibyte).value(), 2 * kMebibyte) << "so may others";
  gpu().RequestKill(endless);
  EXPECT_EQ(Await(endless).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(tenant_.space->Resize(2 * kMebibyte).value(), 2 * kMebibyte);
}

TEST_F(ContainedClient, LimitIsWrittenToAllModulesOfClientOnly) {
  auto second = Load(*tenant_.space, kContainedKernels);
  ASSERT_TRUE(second.ok());
  const Tenant other = NewContained();
  EXPECT_EQ(LimitFor(**second), At(4 * kMebibyte));
  ASSERT_TRUE(tenant_.space->Resize(10 * kMebibyte).ok());
  for (const auto& module : {tenant_.module, *second}) {
    EXPECT_EQ(LimitFor(*module), At(10 * kMebibyte));
  }
  EXPECT_EQ(LimitFor(*other.module), other.At(4 * kMebibyte));
  second->reset();
  const auto third = Load(*other.space, kContainedKernels);
  ASSERT_TRUE(third.ok());
  ASSERT_TRUE(tenant_.space->Resize(2 * kMebibyte).ok());
  EXPECT_EQ(LimitFor(*tenant_.module), At(2 * kMebibyte));
  EXPECT_EQ(LimitFor(**third), other.At(4 * kMebibyte)) << "whose words were the second one's";
}

TEST_F(ContainedClient, UsesOnePageBeyondItsMemoryAndReturnsIt) {
  const std::uint64_t before = fake_cuda_memory_used();
  auto space = NewSpace();
  EXPECT_EQ(fake_cuda_memory_used(), before + 2 * kMebibyte);
  for (const std::uint64_t bytes : {6 * kMebibyte, 16 * kMebibyte, 2 * kMebibyte, 0 * kMebibyte}) {
    EXPECT_EQ(space->Resize(bytes).value(), bytes) << "the quota is the client's own";
    EXPECT_EQ(fake_cuda_memory_used(), before + bytes + 2 * kMebibyte);
  }
  space.reset();
  EXPECT_EQ(fake_cuda_memory_used(), before);
}

// If quota and modules filled the range, the tail would overlap the modules' variables.
TEST_F(ContainedClient, TailNeverOverlapsModules) {
  constexpr std::uint64_t kQuota = (std::uint64_t{4} << 30) - kModuleAreaBytes;
  Script("memory 8G");
  Begin({});
  auto fenced = gpu().CreateSpace({.quota_bytes = kQuota, .isolation = Isolation::kFence});
  ASSERT_TRUE(fenced.ok());
  EXPECT_EQ((*fenced)->range_bytes(), std::uint64_t{4} << 30);
  EXPECT_EQ(NewSpace(kQuota)->range_bytes(), std::uint64_t{8} << 30);
}

TEST_F(ContainedClient, FailedResizeChangesNothingAndKeepsTailAfterEnd) {
  const std::uint64_t used = fake_cuda_memory_used();
  // Growing by 4 MiB takes one more page and the next tail, which are mapped and zeroed at once.
  for (const char* call : {"cuMemCreate 1", "cuMemCreate 2", "cuMemMap 1", "cuMemMap 2",
                           "cuMemSetAccess 1", "cuMemsetD8Async 1"}) {
    SCOPED_TRACE(call);
    Script(std::string("fail ") + call + " 2");
    EXPECT_EQ(tenant_.space->Resize(8 * kMebibyte).status().code(), StatusCode::kOutOfMemory);
    EXPECT_EQ(fake_cuda_memory_used(), used);
    EXPECT_EQ(LimitFor(*tenant_.module), At(4 * kMebibyte));
    ExpectOk(Run("fine", At(12 * kMebibyte)));
  }
  EXPECT_EQ(tenant_.space->Resize(8 * kMebibyte).value(), 8 * kMebibyte);
  EXPECT_EQ(Word(4 * kMebibyte), 0U);
}

// The new memory includes the former tail, to which stray accesses may have written.
TEST_F(ContainedClient, ZeroesMemoryBeforeRaisingKernelsLimit) {
  ExpectOk(Run("fine", At(12 * kMebibyte)));
  ASSERT_EQ(Word(4 * kMebibyte), 7U);
  fake_cuda_forget_calls();
  Script("hold");
  std::thread grows([&] { ExpectOk(tenant_.space->Resize(8 * kMebibyte).status()); });
  while (fake_cuda_calls("cuMemsetD8Async") == 0) std::this_thread::sleep_for(microseconds(50));
  EXPECT_EQ(LimitFor(*tenant_.module), At(4 * kMebibyte));
  Script("go");
  grows.join();
  EXPECT_EQ(LimitFor(*tenant_.module), At(8 * kMebibyte));
  for (const std::uint64_t step : {4, 6, 8}) EXPECT_EQ(Word(step * kMebibyte), 0U);
  EXPECT_EQ(fake_cuda_calls("cuMemsetD8Async"), 1U);
}

TEST_F(ContainedClient, FailedLimitWriteIsErrorAndIsRetried) {
  for (const std::uint64_t bytes : {8 * kMebibyte, 2 * kMebibyte}) {
    const std::uint64_t before = tenant_.space->Resize(4 * kMebibyte).value();
    Script("fail cuMemcpyHtoDAsync 1 2");
    EXPECT_FALSE(tenant_.space->Resize(bytes).ok());
    ExpectOk(Run("fine", At(12 * kMebibyte)));
    EXPECT_EQ(tenant_.space->Resize(before).value(), before);
    EXPECT_EQ(LimitFor(*tenant_.module), At(before));
    EXPECT_EQ(tenant_.space->Resize(bytes).value(), bytes);
    EXPECT_EQ(LimitFor(*tenant_.module), At(bytes));
  }
  EXPECT_EQ(gpu().loss(), nullptr);
}

TEST_F(ContainedClient, UnmappableTailIsDeviceLoss) {
  // Unmaps 4 MiB, then the tail.
  Script("fail cuMemMap 1 2; leaks ignored");
  EXPECT_FALSE(tenant_.space->Resize(0).ok());
  Poll();
  EXPECT_NE(gpu().loss(), nullptr);
  (void)fake_cuda_take_mistakes();
}

// ---- modules

TEST_F(ContainedClient, KernelsReachVariablesByAddress) {
  ExpectOk(Run("by_address", At(0)));
  EXPECT_EQ(Word(0), 10U);
}

TEST_F(ContainedClient, StrayAccessesAfterVariablesHitUnusedMemory) {
  // The variable fills its page of the module area, so 50,000 bytes after its end is another page.
  std::string text = R"(.version 8.1
.target sm_80
.address_size 64
.global .align 8 .b8 large[2097152];
.entry fine(.param .u64 a) {
.reg .b64 %rd<4>; mov.u64 %rd1, large; add.u64 %rd1, %rd1, 2097144;
st.global.u64 [%rd1+50000], 9; ret; }
)";
  auto large = Load(*tenant_.space, text);
  ASSERT_TRUE(large.ok()) << large.status().ToString();
  tenant_.module = *large;
  ExpectOk(Run("fine", At(0)));
  EXPECT_EQ(gpu().loss(), nullptr);
}

TEST_F(ContainedClient, KernelsCannotAccessTheirFaultRecords) {
  const ContainedLaunches& launches = GetLaunches(tenant_);
  for (const std::uint64_t word :
       {launches.control() + offsetof(ptx::ContainControl, stop), launches.host_words(),
        launches.host_words() + offsetof(ptx::ContainHostWords, stop)}) {
    ExpectOk(Run("fine", word));
    EXPECT_EQ(WordAt(word).load(), 0U);
  }
  // Clients' kernels cannot read the host's words either. The test may write `block`, because the
  // device ignores it while `place` is 0.
  const std::uint64_t block = launches.host_words() + offsetof(ptx::FaultRecord, block);
  WordAt(block) = 0x5ec7e7;
  for (const std::uint64_t word : {launches.control(), block}) {
    EXPECT_NE(WordAt(word).load(), 0U);
    std::memcpy(reinterpret_cast<void*>(At(0)), &word, sizeof word);
    ExpectOk(Run("reads_through", At(0)));
    EXPECT_NE(Word(8), WordAt(word).load());
  }
}

TEST_F(ContainedClient, ModulesHaveSeparateCleanWords) {
  auto second = Load(*tenant_.space, kContainedKernels);
  ASSERT_TRUE(second.ok());
  const DeviceAddress control = GetLaunches(tenant_).control();
  EXPECT_NE(static_cast<const CudaModule&>(**second).contained()->control(), control);
  ExpectTrap(Run("traps", At(0), 4));
  tenant_.module = nullptr;
  auto third = Load(*tenant_.space, kContainedKernels);
  ASSERT_TRUE(third.ok());
  tenant_.module = *third;
  EXPECT_EQ(GetLaunches(tenant_).control(), control);
  ExpectOk(Run("fine", At(0)));
}

TEST_F(ContainedClient, FailedModulePreparationLeavesNothingBehind) {
  for (const char* call : {"cuModuleGetGlobal", "cuMemcpyHtoDAsync", "cuModuleGetFunction",
                           "cuModuleLoadDataEx", "cuMemCreate", "cuMemMap"}) {
    auto space = NewSpace();
    const std::uint64_t before = fake_cuda_memory_used();
    for (const int which : {1, 2, 3}) {
      if (which > 1 && std::string(call) != "cuMemcpyHtoDAsync") continue;
      Script(std::string("fail ") + call + " " + std::to_string(which) + " 2");
      EXPECT_FALSE(Load(*space, kContainedKernels).ok()) << call;
      EXPECT_EQ(fake_cuda_memory_used(), before) << call;
    }
    EXPECT_TRUE(Load(*space, kContainedKernels).ok()) << call;
    EXPECT_TRUE(space->Resize(4 * kMebibyte).ok()) << "no limit of those modules is kept";
  }
}

TEST_F(ContainedClient, RejectsModuleWithoutGpuMemoryForItsWords) {
  tenant_ = {};
  device_.reset();
  Start({});
  auto space = NewSpace();
  for (const auto& [call, doing] :
       {std::pair("cuMemHostAlloc", "allocating pinned host memory"),
        std::pair("cuMemHostGetDevicePointer", "mapping pinned host memory"),
        std::pair("cuMemAlloc", "allocating device memory")}) {
    Script(std::string("fail ") + call + " 1 2");
    const Status rejected = Load(*space, kContainedKernels).status();
    EXPECT_EQ(rejected.code(), StatusCode::kOutOfMemory);
    EXPECT_THAT(std::string(rejected.message()),
                HasSubstr(std::string("module rejected: ") + doing));
  }
  EXPECT_TRUE(Load(*space, kContainedKernels).ok());
}

TEST_F(ContainedClient, RejectsSpaceWithoutMemoryForItsTail) {
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async"}) {
    Script(std::string("fail ") + call + " 1 2");
    const auto rejected =
        gpu().CreateSpace({.quota_bytes = kMebibyte, .isolation = Isolation::kContain});
    ASSERT_FALSE(rejected.ok()) << call;
    EXPECT_THAT(std::string(rejected.status().message()), HasSubstr("to contain its kernels"));
  }
}

// ---- preemptible forms

TEST_F(ContainedClient, PreemptibleFormsAreContained) {
  BeginWithClaims();
  const LaunchWork fault = Work(tenant_, "traps", At(0), 1, 20);
  ASSERT_TRUE(HasClaimedForm(fault));
  gpu().Submit(fault);
  ExpectTrap(Await(fault.id).status);
  ExpectOk(Run("fine", At(64), 20));
  ExpectOk(Run("by_address", At(0)));
  EXPECT_EQ(Word(0), 10U);
}

TEST_F(ContainedClient, KillEndsPreemptibleLaunchInsideBlockAndStopDoesNot) {
  BeginWithClaims();
  const LaunchWork endless = Work(tenant_, "endless", At(0), 1, 20);
  ASSERT_TRUE(HasClaimedForm(endless));
  fake_cuda_forget_calls();
  gpu().Submit(endless);
  WaitForWord(0, 1);
  gpu().RequestStop(endless.id);
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(IsDone(endless.id));
  gpu().RequestKill(endless.id);
  const Completion ended = Await(endless.id);
  EXPECT_EQ(ended.status.code(), StatusCode::kCancelled);
  EXPECT_FALSE(ended.stopped);
  EXPECT_THAT(std::string(ended.status.message()), HasSubstr("line 13 of 'endless'"));
  EXPECT_EQ(Word(0), 1U);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 2U) << "no group follows those that were there";
  ExpectOk(Run("fine", At(64), 20));
}

TEST_F(ContainedClient, PreemptibleLaunchKilledBeforeItStartsRunsNothing) {
  BeginWithClaims();
  LaunchWork endless = Work(tenant_, "endless", At(0));
  endless.may_be_stopped = false;
  gpu().Submit(endless);
  WaitForWord(0, 1);
  const LaunchWork work = Work(tenant_, "fine", At(64), 1, 4);
  gpu().Submit(work);
  gpu().RequestKill(work.id);
  EXPECT_EQ(Await(work.id).status.code(), StatusCode::kCancelled);
  EXPECT_EQ(Word(64), 0U);
  const Status beside = Await(endless.id).status;
  EXPECT_EQ(beside.code(), StatusCode::kKernelFault) << "one word ends all of the module";
  EXPECT_THAT(std::string(beside.message()), HasSubstr("stopped by the server"));
}

}  // namespace
}  // namespace gpushared::device::cuda
