// SPDX-License-Identifier: Apache-2.0
// Preemptible forms on a CUDA device: how they are made, which launches use them, and how they are
// stopped. tests/conformance verifies that all kernels compute the same results.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "server/device/cuda/claim_words.h"
#include "server/device/cuda/code_maker.h"
#include "server/device/cuda/urgent_writes.h"
#include "tests/server/device/cuda_device_fixture.h"
#include "tests/support/plain_compiler.h"

namespace gpushared::device::cuda {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// gated(runs, gate, closed): counts block i in runs[i]. Block `closed` then adds ones to the gate
// until its highest bit is set. The pass does not recognise that as a wait.
constexpr std::string_view kGatedPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry gated(.param .u64 runs, .param .u64 gate, .param .u32 closed)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [runs];
  ld.param.u64 %rd2, [gate];
  ld.param.u32 %r1, [closed];
  mov.u32 %r2, %ctaid.x;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd1, %rd3;
  atom.global.add.u32 %r3, [%rd4], 1;
  setp.ne.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
AGAIN:
  atom.global.add.u32 %r4, [%rd2], 1;
  setp.lt.u32 %p2, %r4, 0x80000000;
  @%p2 bra AGAIN;
DONE:
  ret;
}
)";

// count(out): adds one to a variable and stores the previous value.
constexpr std::string_view kCountPtx = R"(
.version 8.0
.target sm_75
.address_size 64
.global .align 4 .u32 total;
.visible .entry count(.param .u64 out)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  atom.global.add.u32 %r1, [total], 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

// Settings of a test compiler, and what it observed.
struct Workshop {
  std::mutex mutex;
  std::condition_variable changed;
  bool keeps_all = true;  // Find succeeds for every text.
  bool is_shut = false;   // While set, Compile blocks for texts with preemptible forms.
  bool is_abandoned = false;
  Status failure;                         // Result of Compile, except for the trial at start.
  std::size_t compiled = 0, waiting = 0;  // Number of texts with preemptible forms.
  std::vector<std::string> architectures;
  std::vector<std::string> warnings, notes;

  void Change(const std::function<void()>& change) {
    const std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
  void WaitUntil(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex);
    changed.wait(lock, holds);
  }
  std::vector<std::string> Notes() {
    const std::lock_guard lock(mutex);
    return notes;
  }
};

class SlowCompiler : public testing::PlainCompiler {
 public:
  explicit SlowCompiler(Workshop& shop) : shop_(shop) {}
  Result<std::vector<std::byte>> Compile(std::string_view ptx,
                                         std::string_view architecture) override {
    std::unique_lock lock(shop_.mutex);
    shop_.architectures.emplace_back(architecture);
    if (ptx.find("gpushared_trial") != std::string_view::npos) {
      return PlainCompiler::Compile(ptx, architecture);
    }
    const bool has_forms = ptx.find(".entry") != ptx.rfind(".entry");
    if (has_forms) {
      ++shop_.waiting;
      shop_.changed.notify_all();
      shop_.changed.wait(lock, [this] { return !shop_.is_shut || shop_.is_abandoned; });
      --shop_.waiting;
    }
    if (shop_.is_abandoned) return Status(StatusCode::kCancelled, "abandoned");
    if (!shop_.failure.ok()) return shop_.failure;
    if (has_forms) ++shop_.compiled;
    return PlainCompiler::Compile(ptx, architecture);
  }
  std::optional<std::vector<std::byte>> Find(std::string_view ptx,
                                             std::string_view architecture) override {
    const std::lock_guard lock(shop_.mutex);
    if (!shop_.keeps_all) return std::nullopt;
    return PlainCompiler::Find(ptx, architecture);
  }
  void Abandon() override {
    shop_.Change([this] { shop_.is_abandoned = true; });
  }

 private:
  Workshop& shop_;
};

class Claims : public CudaDeviceTest {
 protected:
  CudaDeviceOptions WithCompiler() {
    CudaDeviceOptions options;
    options.limits.claim_group_blocks = 4;
    options.make_compiler = [this] { return std::make_unique<SlowCompiler>(shop_); };
    options.warn = [this](const std::string& text) {
      shop_.Change([&] { shop_.warnings.push_back(text); });
    };
    options.note = [this](const std::string& text) {
      shop_.Change([&] { shop_.notes.push_back(text); });
    };
    return options;
  }
  Tenant NewTenantWith(std::string_view text, Isolation isolation = Isolation::kOff) {
    Tenant tenant;
    auto space = gpu().CreateSpace({.quota_bytes = 512 * kMebibyte, .isolation = isolation});
    EXPECT_TRUE(space.ok());
    tenant.space = *std::move(space);
    EXPECT_TRUE(tenant.space->Resize(4 * kMebibyte).ok());
    auto module = Load(*tenant.space, text);
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    if (module.ok()) tenant.module = *std::move(module);
    return tenant;
  }
  LaunchWork Launch(const Tenant& tenant, std::vector<std::byte> parameters, std::uint32_t blocks) {
    LaunchWork work;
    work.id = ++last_id_;
    work.space = tenant.space.get();
    work.stream = 1;
    work.module = tenant.module.get();
    work.grid = {blocks, 1, 1};
    parameters_[work.id] = std::move(parameters);
    work.parameters = parameters_[work.id];
    return work;
  }
  // Returns a launch whose block `closed` waits for Open().
  LaunchWork Gated(const Tenant& tenant, std::uint32_t blocks, std::uint32_t closed) {
    std::vector<std::byte> bytes(20);
    const std::array<std::uint64_t, 2> addresses = {tenant.At(kRuns), tenant.At(kGate)};
    std::memcpy(bytes.data(), addresses.data(), 16);
    std::memcpy(bytes.data() + 16, &closed, 4);
    return Launch(tenant, bytes, blocks);
  }
  LaunchWork Count(const Tenant& tenant) {
    std::vector<std::byte> bytes(8);
    const std::uint64_t address = tenant.At(0);
    std::memcpy(bytes.data(), &address, 8);
    return Launch(tenant, bytes, 1);
  }
  // The fake GPU's memory is the memory of this process.
  static std::atomic_ref<std::uint32_t> Word(std::uint64_t address) {
    return std::atomic_ref<std::uint32_t>(
        *reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address)));
  }
  static void Open(const Tenant& tenant) { Word(tenant.At(kGate)).fetch_or(0x80000000); }
  static void Shut(const Tenant& tenant) { Word(tenant.At(kGate)).store(0); }
  static std::uint32_t Runs(const Tenant& tenant, std::uint32_t block) {
    return Word(tenant.At(kRuns + std::uint64_t{4} * block)).load();
  }
  void WaitForBlock(const Tenant& tenant, std::uint32_t block) {
    while (Runs(tenant, block) == 0) std::this_thread::sleep_for(microseconds(50));
  }
  // Waits until earlier stops have arrived, by a copy that the device orders after the writes of
  // stop words.
  void WaitForStops(const Tenant& tenant) {
    std::vector<std::byte> host(4);
    CopyWork copy;
    copy.id = ++last_id_;
    copy.space = tenant.space.get();
    copy.stream = 77;
    copy.direction = CopyWork::Direction::kHostToDevice;
    copy.host = host.data();
    copy.destination = tenant.At(kScratch);
    copy.width_bytes = host.size();
    gpu().Submit(copy);
    EXPECT_TRUE(Await(copy.id).status.ok());
  }
  // Returns whether the launch could be stopped if it had many blocks.
  bool CanStop(LaunchWork work) {
    work.grid = {100'000, 1, 1};
    return gpu().CanStop(work, std::chrono::seconds(10));
  }

  // 32 small blocks on each of the fake GPU's multiprocessors.
  static constexpr std::uint32_t kBlocksAtOnce = 32 * 132;
  static constexpr std::uint64_t kRuns = 0, kGate = kMebibyte, kScratch = 2 * kMebibyte;
  Workshop shop_;
};

TEST_F(Claims, StopEndsLaunchAfterRunningBlockAndLaunchResumesThere) {
  for (const bool has_writes : {true, false}) {
    fake_cuda_reset();
    if (!has_writes) Script("missing cuStreamWriteValue32");
    Start(WithCompiler());
    EXPECT_EQ(gpu().info().preemption, Preemption::kWithinCommand);
    EXPECT_TRUE(gpu().info().stopping_costs);
    Tenant tenant = NewTenantWith(kGatedPtx);
    LaunchWork work = Gated(tenant, 10, 2);
    fake_cuda_forget_calls();
    gpu().Submit(work);
    WaitForBlock(tenant, 2);
    EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 2U) << "two groups of 4 blocks, the rest waits";
    gpu().RequestStop(work.id);
    WaitForStops(tenant);
    EXPECT_FALSE(IsDone(work.id)) << "a block is running";
    Open(tenant);
    const Completion stopped = Await(work.id);
    EXPECT_TRUE(stopped.status.ok()) << stopped.status.ToString();
    EXPECT_TRUE(stopped.stopped);
    EXPECT_EQ(stopped.units_done, 3U);
    EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 2U) << "what waited is not begun";
    for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(Runs(tenant, i), i < 3 ? 1U : 0U) << i;
    work.id = ++last_id_;
    work.first_unit = stopped.units_done;
    work.may_be_stopped = false;
    gpu().Submit(work);
    const Completion whole = Await(work.id);
    EXPECT_TRUE(whole.status.ok()) << whole.status.ToString();
    EXPECT_FALSE(whole.stopped);
    EXPECT_EQ(whole.units_done, 10U);
    EXPECT_LT(whole.started, whole.ended);
    for (std::uint32_t i = 0; i < 10; ++i) EXPECT_EQ(Runs(tenant, i), 1U) << i;
    tenant = {};
    device_.reset();
  }
}

TEST_F(Claims, KillEndsLaunchAfterRunningBlockAndReportsIt) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  const LaunchWork work = Gated(tenant, 10, 2);
  gpu().Submit(work);
  WaitForBlock(tenant, 2);
  gpu().RequestStop(work.id);
  gpu().RequestKill(work.id);
  WaitForStops(tenant);
  Open(tenant);
  const Completion killed = Await(work.id);
  EXPECT_EQ(killed.status.code(), StatusCode::kCancelled);
  EXPECT_FALSE(killed.stopped);
  EXPECT_EQ(Runs(tenant, 3), 0U);
}

// A stop also stops the later launches of the stream, because otherwise the second launch would run
// between the two halves of the first one.
TEST_F(Claims, StopOfLaunchAlsoStopsLaterLaunchesOfItsStream) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  const LaunchWork first = Gated(tenant, 3, 1);
  LaunchWork whole = Gated(tenant, 3, 9);
  whole.may_be_stopped = false;
  const std::array<LaunchWork, 3> behind = {Gated(tenant, 3, 9), whole, Gated(tenant, 3, 9)};
  gpu().Submit(first);
  gpu().Submit(behind[0]);
  gpu().Submit(behind[1]);
  WaitForBlock(tenant, 1);
  gpu().RequestStop(first.id);
  gpu().Submit(behind[2]);
  WaitForStops(tenant);
  Open(tenant);
  EXPECT_EQ(Await(first.id).units_done, 2U);
  for (const LaunchWork& each : behind) {
    const Completion ended = Await(each.id);
    EXPECT_TRUE(ended.status.ok());
    EXPECT_TRUE(ended.stopped);
    EXPECT_EQ(ended.units_done, 0U);
  }
  EXPECT_EQ(Runs(tenant, 0), 1U);
  // Later launches with the same words are unaffected.
  for (int i = 0; i < 20; ++i) {
    const LaunchWork later = Gated(tenant, 3, 9);
    gpu().Submit(later);
    EXPECT_FALSE(Await(later.id).stopped);
  }
}

TEST_F(Claims, LateStopStillStopsLaterLaunches) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  const LaunchWork first = Gated(tenant, 2, 1);
  const LaunchWork second = Gated(tenant, 2, 9);
  gpu().Submit(first);
  gpu().Submit(second);
  WaitForBlock(tenant, 1);
  gpu().RequestStop(first.id);
  WaitForStops(tenant);
  Open(tenant);
  const Completion ended = Await(first.id);
  EXPECT_FALSE(ended.stopped);
  EXPECT_EQ(ended.units_done, 2U);
  EXPECT_EQ(Await(second.id).units_done, 0U);
}

TEST_F(Claims, NonPreemptibleLaunchWaitsForPreemptibleOneBeforeIt) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  const LaunchWork first = Gated(tenant, 3, 1);
  LaunchWork second = Gated(tenant, 3, 9);
  second.may_be_stopped = false;
  fake_cuda_forget_calls();
  gpu().Submit(first);
  gpu().Submit(second);
  WaitForBlock(tenant, 1);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 1U);
  Open(tenant);
  EXPECT_EQ(Await(first.id).units_done, 3U);
  EXPECT_FALSE(Await(second.id).stopped);
  EXPECT_EQ(Runs(tenant, 2), 2U);
}

TEST_F(Claims, LaunchesWaitWhenAllStopWordsAreInUse) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  Script("hold");
  std::vector<WorkId> ids;
  for (std::size_t i = 0; i < 3 * ClaimWords::kSlotsPerChannel; ++i) {
    const LaunchWork work = Gated(tenant, 7, 9);
    gpu().Submit(work);
    ids.push_back(work.id);
  }
  EXPECT_FALSE(IsDone(ids[0]));
  Script("go");
  for (const WorkId id : ids) EXPECT_TRUE(Await(id).status.ok());
  EXPECT_EQ(Runs(tenant, 6), ids.size());
}

TEST_F(Claims, NonPreemptibleLaunchKeepsOriginalForm) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  LaunchWork work = Gated(tenant, 10, 2);
  work.may_be_stopped = false;
  fake_cuda_forget_calls();
  gpu().Submit(work);
  WaitForBlock(tenant, 2);
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 1U);
  gpu().RequestStop(work.id);
  WaitForStops(tenant);
  Open(tenant);
  const Completion whole = Await(work.id);
  EXPECT_FALSE(whole.stopped);
  EXPECT_EQ(whole.units_done, 10U);
}

TEST_F(Claims, LaunchesUnsuitableForFormKeepOriginalForm) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  LaunchWork work = Gated(tenant, 10, 99);
  EXPECT_TRUE(CanStop(work));
  work.dynamic_shared_bytes = 227 * 1024;
  EXPECT_FALSE(CanStop(work)) << "no shared memory is left";
  gpu().Submit(work);
  const Completion whole = Await(work.id);
  EXPECT_TRUE(whole.status.ok()) << whole.status.ToString();
  work.dynamic_shared_bytes = 0;
  work.is_cooperative = true;
  EXPECT_FALSE(CanStop(work));
  work.is_cooperative = false;
  work.cluster = {2, 1, 1};
  EXPECT_FALSE(CanStop(work));
}

TEST_F(Claims, ShortBlocksKeepOriginalForm) {
  CudaDeviceOptions options = WithCompiler();
  options.limits.claim_time = microseconds(1);
  Start(options);
  const Tenant tenant = NewTenantWith(kGatedPtx);
  LaunchWork work = Gated(tenant, 10, 2);
  // Two waves of blocks, each as long as one block.
  work.grid = {2 * kBlocksAtOnce, 1, 1};
  EXPECT_TRUE(gpu().CanStop(work, microseconds(40)));
  EXPECT_FALSE(gpu().CanStop(work, microseconds(39)));
  work.grid = {100'000'000, 1, 1};
  EXPECT_FALSE(gpu().CanStop(work, milliseconds(1)));
  EXPECT_TRUE(gpu().CanStop(work, std::chrono::hours(1)));
}

// A launch of fewer than two waves need not be stoppable, because all of its blocks begin before a
// stop could take effect.
TEST_F(Claims, LaunchBelowTwoWavesKeepsOriginalForm) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  LaunchWork work = Gated(tenant, 10, 2);
  EXPECT_FALSE(gpu().CanStop(work, std::chrono::hours(1)));
  work.grid = {2 * kBlocksAtOnce - 1, 1, 1};
  EXPECT_FALSE(gpu().CanStop(work, std::chrono::hours(1)));
  work.grid = {2 * kBlocksAtOnce, 1, 1};
  EXPECT_TRUE(gpu().CanStop(work, std::chrono::hours(1)));
}

// The query is slow and runs on the thread that submits all work.
TEST_F(Claims, QueriesOccupancyOncePerLaunchShape) {
  const char* const kAsk = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  LaunchWork work = Gated(tenant, 2 * kBlocksAtOnce, 2);
  fake_cuda_forget_calls();
  Script(std::string("fail ") + kAsk + " 1 1");
  EXPECT_FALSE(CanStop(work));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(CanStop(work));
  EXPECT_EQ(fake_cuda_calls(kAsk), 2U) << "a failure is not an answer";
  Open(tenant);
  gpu().Submit(work);
  EXPECT_TRUE(Await(work.id).status.ok());
  EXPECT_EQ(fake_cuda_calls(kAsk), 2U);
  // Clients choose the shapes. Each shape has its own cached answer, and only the latest ones are
  // kept.
  work.grid = {2 * kBlocksAtOnce - 1, 1, 1};
  const auto has_two_waves = [&] { return gpu().CanStop(work, std::chrono::hours(1)); };
  EXPECT_FALSE(has_two_waves());
  work.block = {1024, 1, 1};
  EXPECT_TRUE(has_two_waves()) << "fewer of the large blocks fit";
  EXPECT_EQ(fake_cuda_calls(kAsk), 3U);
  work.block = {1, 1, 1};
  EXPECT_FALSE(has_two_waves());
  EXPECT_EQ(fake_cuda_calls(kAsk), 3U);
  for (std::uint32_t shape = 2; shape <= RecentOccupancy::kShapes; ++shape) {
    work.dynamic_shared_bytes = shape * 16;
    EXPECT_FALSE(has_two_waves());
  }
  EXPECT_EQ(fake_cuda_calls(kAsk), 2U + RecentOccupancy::kShapes);
  work.dynamic_shared_bytes = 0;
  EXPECT_FALSE(has_two_waves());
  EXPECT_EQ(fake_cuda_calls(kAsk), 3U + RecentOccupancy::kShapes) << "its place was taken";
}

TEST_F(Claims, OriginalRunsWhileFormCompilesInBackground) {
  shop_.keeps_all = false;
  shop_.is_shut = true;
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  LaunchWork work = Gated(tenant, 10, 2);
  EXPECT_FALSE(CanStop(work));
  gpu().Submit(work);
  WaitForBlock(tenant, 2);
  gpu().RequestStop(work.id);
  Open(tenant);
  EXPECT_EQ(Await(work.id).units_done, 10U);
  LaunchWork resumed = Gated(tenant, 10, 99);
  resumed.first_unit = 5;
  gpu().Submit(resumed);
  EXPECT_THAT(std::string(Await(resumed.id).status.message()), HasSubstr("runs this launch whole"));

  shop_.Change([this] { shop_.is_shut = false; });
  while (!CanStop(work)) std::this_thread::sleep_for(microseconds(100));
  Shut(tenant);
  work = Gated(tenant, 10, 2);
  gpu().Submit(work);
  while (Runs(tenant, 2) < 2) std::this_thread::sleep_for(microseconds(50));
  gpu().RequestStop(work.id);
  WaitForStops(tenant);
  Open(tenant);
  EXPECT_EQ(Await(work.id).units_done, 3U);
}

// Forms are loaded in idle windows, because loading can block the launches of all clients.
TEST_F(Claims, LoadsFormsInIdleWindows) {
  shop_.keeps_all = false;
  CudaDeviceOptions options = WithCompiler();
  bool is_asked = false, is_good = false;
  options.await_quiet = [&] {
    shop_.Change([&] { is_asked = true; });
    shop_.WaitUntil([&] { return is_good; });
  };
  Start(std::move(options));
  const Tenant tenant = NewTenantWith(kGatedPtx);
  shop_.WaitUntil([&] { return is_asked; });
  const LaunchWork work = Gated(tenant, 10, 99);
  EXPECT_FALSE(CanStop(work));
  shop_.Change([&] { is_good = true; });
  while (!CanStop(work)) std::this_thread::sleep_for(microseconds(100));
}

TEST_F(Claims, UncompilableFormIsReportedAndOriginalRuns) {
  shop_.keeps_all = false;
  shop_.failure = Status(StatusCode::kInvalidArgument, "the PTX compiler rejects it: line 30");
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  shop_.WaitUntil([this] { return shop_.notes.size() == 2; });
  EXPECT_THAT(shop_.Notes(),
              Contains(AllOf(HasSubstr("the driver compiles"), HasSubstr("line 30"))));
  EXPECT_THAT(shop_.Notes(), Contains(AllOf(HasSubstr("cannot be stopped"), HasSubstr("line 30"))));
  EXPECT_EQ(fake_cuda_compiled_texts(), 1U) << "it may understand what the compiler does not";
  const LaunchWork work = Gated(tenant, 10, 99);
  EXPECT_FALSE(CanStop(work));
  gpu().Submit(work);
  EXPECT_EQ(Await(work.id).units_done, 10U);
}

TEST_F(Claims, FormRejectedByDriverIsReportedAndReleased) {
  shop_.keeps_all = false;
  Start(WithCompiler());
  for (const char* call :
       {"cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute"}) {
    shop_.Change([this] { shop_.is_shut = true; });
    const Tenant tenant = NewTenantWith(kGatedPtx);
    shop_.WaitUntil([this] { return shop_.waiting == 1; });
    Script(std::string("fail ") + call + " 1 2");
    shop_.Change([this] {
      shop_.is_shut = false;
      shop_.notes.clear();
    });
    shop_.WaitUntil([this] { return !shop_.notes.empty(); });
    EXPECT_THAT(shop_.Notes(), Contains(HasSubstr("cannot be stopped"))) << call;
    EXPECT_FALSE(CanStop(Gated(tenant, 10, 99)));
  }
}

TEST_F(Claims, NamesKernelsWithoutFormWithReason) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(
      ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry whole()\n{\n"
      ".reg .u64 %rd<2>;\nmov.u64 %rd1, %gridid;\nret;\n}\n");
  EXPECT_THAT(shop_.Notes(), Contains(AllOf(HasSubstr("'whole'"), HasSubstr("line "))));
  EXPECT_FALSE(CanStop(Launch(tenant, {}, 10)));
}

// The forms are in the same driver module, because two modules would have two instances of each
// variable.
TEST_F(Claims, ModuleWithVariablesIsLoadedTogetherWithItsForms) {
  shop_.keeps_all = false;
  Start(WithCompiler());
  {
    const Tenant tenant = NewTenantWith(kCountPtx);
    shop_.WaitUntil([this] { return !shop_.notes.empty(); });
    EXPECT_THAT(shop_.Notes(), Contains(HasSubstr("from its next load on")));
    EXPECT_FALSE(CanStop(Count(tenant)));
  }
  shop_.Change([this] { shop_.keeps_all = true; });
  const Tenant tenant = NewTenantWith(kCountPtx);
  EXPECT_TRUE(CanStop(Count(tenant)));
  for (std::uint32_t i = 0; i < 6; ++i) {
    LaunchWork work = Count(tenant);
    work.may_be_stopped = i % 2 == 0;
    gpu().Submit(work);
    EXPECT_TRUE(Await(work.id).status.ok());
    EXPECT_EQ(Word(tenant.At(0)).load(), i) << "both forms count in one variable";
  }
}

// The driver uses the container's machine code, and a form that is made from older text may be
// slower.
TEST_F(Claims, ContainerWithCodeNewerThanItsTextGetsNoForms) {
  const auto fatbin_with = [](std::uint32_t code_architecture) {
    std::string bytes("\x50\xed\x55\xba\x01\x00\x10\x00", 8);
    const auto put = [&](auto value) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    const std::string text(kGatedPtx);
    put(std::uint64_t{64 + 8 + 64} + text.size());
    for (const auto& [kind, architecture, payload] :
         {std::tuple(std::uint32_t{2}, code_architecture, std::string(8, 'c')),
          std::tuple(std::uint32_t{1}, std::uint32_t{75}, text)}) {
      put(kind);
      put(std::uint32_t{64});
      put(std::uint64_t{payload.size()});
      for (int i = 0; i < 3; ++i) put(std::uint32_t{0});
      put(architecture);
      for (int i = 0; i < 4; ++i) put(std::uint64_t{0});
      bytes += payload;
    }
    return bytes;
  };
  Start(WithCompiler());
  const Tenant newer = NewTenantWith(fatbin_with(90));
  EXPECT_THAT(shop_.Notes(), Contains(HasSubstr("of a newer architecture than its PTX")));
  EXPECT_FALSE(CanStop(Gated(newer, 10, 2)));
  const Tenant equal = NewTenantWith(fatbin_with(75));
  while (!CanStop(Gated(equal, 10, 2))) std::this_thread::sleep_for(microseconds(100));
  const Tenant fenced = NewTenantWith(fatbin_with(90), Isolation::kFence);
  while (!CanStop(Gated(fenced, 10, 2))) std::this_thread::sleep_for(microseconds(100));
  // Which memory such code accesses is unknown, too.
  const auto why_unknown = [](const Tenant& of) {
    return of.module->kernels().front().why_reach_unknown;
  };
  EXPECT_THAT(why_unknown(newer), HasSubstr("machine code"));
  EXPECT_THAT(why_unknown(equal), HasSubstr("machine code"));
  EXPECT_THAT(why_unknown(fenced), ::testing::Not(HasSubstr("machine code")));
}

TEST_F(Claims, FencedModuleSharesVariablesWithFormsLoadedLater) {
  shop_.keeps_all = false;
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kCountPtx, Isolation::kFence);
  while (!CanStop(Count(tenant))) std::this_thread::sleep_for(microseconds(100));
  for (std::uint32_t i = 0; i < 6; ++i) {
    LaunchWork work = Count(tenant);
    work.may_be_stopped = i % 2 == 0;
    gpu().Submit(work);
    EXPECT_TRUE(Await(work.id).status.ok());
    EXPECT_EQ(Word(tenant.At(0)).load(), i);
  }
}

// If the driver compiled the text, it would do so during the load, and the work of all clients
// would wait.
TEST_F(Claims, UnfencedTextIsCompiledOutsideDriver) {
  shop_.keeps_all = false;
  Start(WithCompiler());
  const std::string with_zero(kGatedPtx.data(), kGatedPtx.size() + 1);
  for (const std::string& text : {std::string(kGatedPtx), with_zero}) {
    const Tenant tenant = NewTenantWith(text);
    while (!CanStop(Gated(tenant, 10, 99))) std::this_thread::sleep_for(microseconds(100));
    const LaunchWork work = Gated(tenant, 10, 99);
    gpu().Submit(work);
    EXPECT_EQ(Await(work.id).units_done, 10U);
    EXPECT_EQ(fake_cuda_compiled_texts(), 0U);
  }
  Start({});
  const Tenant without = NewTenantWith(kGatedPtx);
  EXPECT_EQ(fake_cuda_compiled_texts(), 1U) << "there is no compiler";
}

// The driver would compile such text without a time limit, and all work would wait.
TEST_F(Claims, DoesNotGiveDriverTextBeyondCompilersLimits) {
  shop_.keeps_all = false;
  shop_.failure = Status(StatusCode::kLimitExceeded, "compiler ended: it ran 90 s");
  Start(WithCompiler());
  auto space = gpu().CreateSpace({.quota_bytes = 64 * kMebibyte});
  ASSERT_TRUE(space.ok());
  const Status rejected = Load(**space, kGatedPtx).status();
  EXPECT_EQ(rejected.code(), StatusCode::kLimitExceeded);
  EXPECT_THAT(std::string(rejected.message()), HasSubstr("module rejected: compiler ended"));
  EXPECT_EQ(fake_cuda_compiled_texts(), 0U);
}

TEST_F(Claims, FencedModuleIsCompiledOutsideDriverOrRejected) {
  shop_.keeps_all = false;
  shop_.failure = Status(StatusCode::kInvalidArgument, "the PTX compiler rejects it: no");
  Start(WithCompiler());
  auto space = gpu().CreateSpace({.quota_bytes = 64 * kMebibyte, .isolation = Isolation::kFence});
  ASSERT_TRUE(space.ok());
  const Status rejected = Load(**space, kGatedPtx).status();
  EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(rejected.message()), HasSubstr("module rejected: the PTX compiler"));
}

TEST_F(Claims, ModuleCanBeUnloadedWhileItsFormsCompile) {
  shop_.keeps_all = false;
  shop_.is_shut = true;
  Start(WithCompiler());
  const std::uint64_t before = fake_cuda_memory_used();
  {
    const Tenant first = NewTenantWith(kGatedPtx);
    shop_.WaitUntil([this] { return shop_.waiting == 1; });
    const Tenant second = NewTenantWith(kGatedPtx);
  }
  EXPECT_EQ(fake_cuda_memory_used(), before);
  shop_.Change([this] { shop_.is_shut = false; });
  const Tenant third = NewTenantWith(kGatedPtx);
  while (!CanStop(Gated(third, 10, 1))) std::this_thread::sleep_for(microseconds(100));
  const std::lock_guard lock(shop_.mutex);
  EXPECT_EQ(shop_.compiled, 2U) << "nobody waits for the second one's";
}

TEST_F(Claims, DeviceDoesNotWaitForItsCompiler) {
  shop_.keeps_all = false;
  shop_.is_shut = true;
  Start(WithCompiler());
  { const Tenant tenant = NewTenantWith(kGatedPtx); }
  device_.reset();
  EXPECT_TRUE(shop_.is_abandoned);
}

TEST_F(Claims, LimitsModulesThatWaitForCompiler) {
  shop_.keeps_all = false;
  shop_.is_shut = true;
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  std::vector<std::shared_ptr<const device::Module>> modules;
  for (std::size_t i = 0; i < CodeMaker::kJobsMax + 2; ++i) {
    modules.push_back(*Load(*tenant.space, kGatedPtx));
  }
  EXPECT_THAT(shop_.Notes(), Contains(HasSubstr("64 modules wait")));
  const std::size_t notes = shop_.Notes().size();
  modules.clear();
  modules.push_back(*Load(*tenant.space, kGatedPtx));
  EXPECT_EQ(shop_.Notes().size(), notes) << "those that are gone take no place";
}

TEST_F(Claims, DriverFailureFailsOnlyItsLaunch) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  const auto run = [&] {
    const LaunchWork work = Gated(tenant, 10, 99);
    gpu().Submit(work);
    return Await(work.id).status;
  };
  // Makes the first or the second group fail. The counter's value is unknown afterwards, so it must
  // be set again.
  for (const char* which : {"1", "2"}) {
    Script(std::string("fail cuLaunchKernel ") + which + " 1");
    EXPECT_FALSE(run().ok()) << which;
    // The next launch gets the same slot, because slots rotate only while they are in use.
    Script("fail cuMemsetD32Async 1 1");
    EXPECT_FALSE(run().ok()) << which;
    EXPECT_TRUE(run().ok()) << which;
  }
  Shut(tenant);
  const LaunchWork stopped = Gated(tenant, 10, 2);
  Script("fail cuMemcpyDtoHAsync 1 1");
  gpu().Submit(stopped);
  WaitForBlock(tenant, 2);
  gpu().RequestStop(stopped.id);
  Open(tenant);
  EXPECT_FALSE(Await(stopped.id).status.ok()) << "nobody knows how far it came";
  EXPECT_TRUE(run().ok());
}

// Setting and reading a counter make the GPU wait, which must not slow down launches that are never
// stopped.
TEST_F(Claims, CountersContinueAcrossLaunchesAndAreReadOnlyAfterStop) {
  Start(WithCompiler());
  const Tenant tenant = NewTenantWith(kGatedPtx);
  fake_cuda_forget_calls();
  const auto extra = [] {
    return fake_cuda_calls("cuMemsetD32Async") + fake_cuda_calls("cuMemcpyDtoHAsync");
  };
  for (int i = 1; i <= 5; ++i) {
    const LaunchWork work = Gated(tenant, 10, 99);
    gpu().Submit(work);
    EXPECT_EQ(Await(work.id).units_done, 10U);
    for (std::uint32_t block = 0; block < 10; ++block) {
      EXPECT_EQ(Runs(tenant, block), static_cast<std::uint32_t>(i)) << block;
    }
  }
  EXPECT_EQ(extra(), 0U);
  Shut(tenant);
  const LaunchWork stopped = Gated(tenant, 10, 2);
  gpu().Submit(stopped);
  while (Runs(tenant, 2) < 6) std::this_thread::sleep_for(microseconds(50));
  gpu().RequestStop(stopped.id);
  WaitForStops(tenant);
  Open(tenant);
  EXPECT_EQ(Await(stopped.id).units_done, 3U);
  EXPECT_EQ(extra(), 1U);
  const LaunchWork next = Gated(tenant, 10, 99);
  gpu().Submit(next);
  EXPECT_EQ(Await(next.id).units_done, 10U);
  EXPECT_EQ(extra(), 2U) << "after a stop nobody knows where the counter stands";
}

TEST_F(Claims, KeepsWordsOfRejectedLaunchUntilGpuIsDone) {
  Start(WithCompiler());
  Tenant tenant = NewTenantWith(kGatedPtx);
  Script("hold; fail cuLaunchKernel 1 1");
  const LaunchWork rejected = Gated(tenant, 10, 99);
  gpu().Submit(rejected);
  EXPECT_FALSE(Await(rejected.id).status.ok()) << "its counter is still to be set";
  tenant = {};
  std::thread later([] {
    std::this_thread::sleep_for(milliseconds(20));
    Script("go");
  });
  device_.reset();
  later.join();
}

TEST_F(Claims, DoesNotUseCompilerWhoseCodeDriverRejects) {
  Script("fail cuModuleLoadDataEx 1 209");
  Start(WithCompiler());
  ASSERT_EQ(shop_.warnings.size(), 1U);
  EXPECT_THAT(shop_.warnings[0], AllOf(HasSubstr("no kernel of a GPU can be stopped"),
                                       HasSubstr("loading what the compiler")));
  EXPECT_EQ(gpu().info().preemption, Preemption::kBetweenCommands);
  const Tenant tenant = NewTenantWith(kGatedPtx);
  EXPECT_FALSE(CanStop(Gated(tenant, 10, 99)));
}

TEST_F(Claims, CompilesArchitectureSpecificTextForThatArchitecture) {
  Start(WithCompiler());
  const auto compiled_for = [this](const std::string& target) {
    shop_.Change([this] { shop_.keeps_all = false; });
    std::string text(kGatedPtx);
    text.replace(text.find("sm_75"), 5, target);
    const Tenant tenant = NewTenantWith(text, Isolation::kFence);
    std::string last;
    shop_.Change([&] { last = shop_.architectures.back(); });
    return last;
  };
  EXPECT_EQ(compiled_for("sm_75"), "sm_90");
  EXPECT_EQ(compiled_for("sm_90a"), "sm_90a");
  EXPECT_EQ(compiled_for("sm_90"), "sm_90");
}

TEST_F(Claims, EpochWrapAroundStopsNoOtherLaunch) {
  auto driver = Driver::Load();
  ASSERT_TRUE(driver.ok());
  auto context = CudaContext::Open(*driver, 0, nullptr);
  ASSERT_TRUE(context.ok());
  Stream stream = nullptr;
  ASSERT_TRUE((*context)
                  ->Try("", (*driver)->StreamCreateWithPriority, &stream, kStreamNonBlocking, 0)
                  .ok());
  {
    constexpr std::uint32_t kFirst = 0xffff0000;
    auto stops = UrgentWrites::Create(*context);
    ASSERT_TRUE(stops.ok()) << stops.status().ToString();
    auto words = ClaimWords::Create(*context, *stops, 1, kFirst);
    ASSERT_TRUE(words.ok()) << words.status().ToString();
    std::optional<ClaimWords::Slot> slot;
    for (std::uint32_t i = 1; i <= 0x10001; ++i) {
      slot = (*words)->Take(0);
      ASSERT_TRUE(slot);
      EXPECT_EQ(slot->epoch, kFirst + i);
      if (slot->epoch % 0x8000 < 2) {
        ASSERT_TRUE((*words)->Begin(*slot, i, stream).ok());
      }
      (*words)->Return(*slot);
    }
    ASSERT_TRUE((*context)->Try("", (*driver)->CtxSynchronize).ok());
    const auto ahead =
        static_cast<std::int32_t>(Word((*words)->GetStop(*slot)).load() - slot->epoch);
    EXPECT_LT(ahead, 0) << "it would be taken for stopped";
    EXPECT_GT(ahead, -3) << "it is renewed now and then";
    EXPECT_EQ(Word((*words)->GetCounter(*slot)).load(), 0x10001U);
    (*words)->Stop(*slot);
    ASSERT_TRUE((*context)->Try("", (*driver)->CtxSynchronize).ok());
    EXPECT_EQ(Word((*words)->GetStop(*slot)).load(), slot->epoch);
  }
  ASSERT_TRUE((*context)->Try("", (*driver)->StreamDestroy, stream).ok());
}

}  // namespace
}  // namespace gpushared::device::cuda
