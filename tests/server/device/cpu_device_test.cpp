// SPDX-License-Identifier: Apache-2.0
// Guarantees that only the cpu device gives; the conformance suite tests the rest.
#include "server/device/cpu/cpu_device.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "server/device/cpu/address_range.h"
#include "server/device/cpu/executor/block_executor.h"
#include "server/device/cpu/executor/device_heap.h"
#include "tests/server/device/cpu_device_case.h"
#include "tests/support/load_module.h"

namespace gpushared::device {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kText = R"(.version 8.0
.target sm_75
.address_size 64
.visible .entry endless() { $L: bra.uni $L; }
.visible .entry nothing(.param .u64 unused) { ret; }
.visible .entry small() .maxntid 32, 1, 1 { ret; }
.visible .entry late(.param .u64 begun, .param .u32 quick, .param .u32 turns) {
.reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %rd<2>;
ld.param.u64 %rd0, [begun];
ld.param.u32 %r0, [quick];
ld.param.u32 %r1, [turns];
atom.global.add.u32 %r2, [%rd0], 1;
mov.u32 %r3, %ctaid.x;
setp.lt.u32 %p0, %r3, %r0;
@%p0 bra $END;
mov.u32 %r4, 0;
$LOOP:
add.u32 %r4, %r4, 1;
setp.lt.u32 %p1, %r4, %r1;
@%p1 bra $LOOP;
$END: ret;
}
.visible .entry large() {
.local .align 4 .b8 own[65536]; .reg .b64 %rd0; .reg .b32 %r0;
mov.u64 %rd0, own;
mov.u32 %r0, 1;
st.local.u32 [%rd0], %r0;
ret;
}
)";
enum Kernel : std::uint32_t { kEndless, kNothing, kSmall, kLate, kLarge };

class CpuDeviceTest : public ::testing::Test, protected CpuDeviceCase {
 protected:
  void SetUp() override { Start({.executor_threads = 2, .memory_bytes = 1 << 26}, 1 << 24, kText); }
};

TEST_F(CpuDeviceTest, CompletionRejectsLaunchThatDoesNotFitKernel) {
  const std::array<std::byte, 8> eight{};
  std::vector<LaunchWork> wrong;
  wrong.push_back(Work(99));
  wrong.push_back(Work(kNothing));  // Lacks the kernel's parameters.
  wrong.push_back(Work(kEndless));
  wrong.back().parameters = eight;  // Has parameters that the kernel lacks.
  wrong.push_back(Work(kEndless));
  wrong.back().block = {1025, 1, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().block = {0, 1, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().block = {0xffffffff, 0xffffffff, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().grid = {1, 65536, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().grid = {1, 1, 0};
  wrong.push_back(Work(kEndless));
  wrong.back().dynamic_shared_bytes = 228 * 1024;
  wrong.push_back(Work(kEndless));
  wrong.back().first_unit = 2;
  wrong.push_back(Work(kSmall));
  wrong.back().block = {33, 1, 1};
  wrong.push_back(Work(kEndless));
  wrong.back().module = nullptr;
  for (const LaunchWork& work : wrong) {
    device_->Submit(work);
    const Completion completion = Await();
    EXPECT_EQ(completion.id, work.id);
    EXPECT_EQ(completion.status.code(), StatusCode::kInvalidArgument) << "work " << work.id;
    EXPECT_NE(completion.status.message().find("rejected"), std::string::npos);
  }
}

TEST_F(CpuDeviceTest, CompletionRejectsInvalidFill) {
  ASSERT_TRUE(space_->Resize(kMapPageBytes).ok());
  FillWork good;
  good.space = space_.get();
  good.stream = 1;
  good.destination = space_->base();
  good.element_bytes = 4;
  good.width_bytes = 64;
  good.height = 2;
  good.pitch_bytes = 128;
  std::vector<FillWork> wrong(7, good);
  wrong[0].element_bytes = 3;
  wrong[1].destination += 2;
  wrong[2].width_bytes = 63;
  wrong[3].pitch_bytes = 130;
  wrong[4].pitch_bytes = 60;
  wrong[5].height = std::uint64_t{1} << 60;
  wrong[6].pitch_bytes = std::uint64_t{1} << 63;
  for (FillWork work : wrong) {
    work.id = ++last_id_;
    device_->Submit(work);
    EXPECT_EQ(Await().status.code(), StatusCode::kInvalidArgument) << "work " << work.id;
  }
  good.id = ++last_id_;
  device_->Submit(good);
  EXPECT_TRUE(Await().status.ok());
}

// Urgent work waits for the running blocks only. Their time is not bounded by that of earlier
// blocks, because the blocks of a kernel may differ arbitrarily.
TEST_F(CpuDeviceTest, UrgentWorkWaitsOnlyForRunningBlocks) {
  constexpr std::uint32_t kQuick = 3000, kLong = 400, kThreads = 2;
  ASSERT_TRUE(space_->Resize(kMapPageBytes).ok());
  struct {
    std::uint64_t begun;
    std::uint32_t quick = kQuick, turns = 300'000;
  } const parameters{.begun = space_->base()};
  std::atomic_ref<std::uint32_t> begun(
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(space_->base())));
  LaunchWork late = Work(kLate);
  late.grid = {kQuick + kLong, 1, 1};
  late.parameters = std::as_bytes(std::span(&parameters, 1));
  device_->Submit(late);
  while (begun.load() < kQuick + 1) std::this_thread::yield();

  const std::array<std::byte, 8> nothing{};
  LaunchWork urgent = Work(kNothing);
  urgent.stream = 2;
  urgent.priority = 1;
  urgent.parameters = nothing;
  device_->Submit(urgent);
  const std::uint32_t before = begun.load();
  EXPECT_EQ(Await().id, urgent.id);
  // Some more blocks may begin before the test reads the counter.
  EXPECT_LE(begun.load() - before, 10 * kThreads);
  device_->RequestStop(late.id);
  const std::uint32_t at_stop = begun.load();
  const Completion stopped = Await();
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.units_done, begun.load());
  EXPECT_LE(begun.load() - at_stop, 10 * kThreads);
}

// Memory whose pages arrive one at a time, when the test supplies them. Behaves like a staging
// buffer that its client empties during a copy.
class SlowPages {
 public:
  static constexpr std::size_t kPageBytes = 4096;

  explicit SlowPages(std::size_t pages)
      : bytes_(pages * kPageBytes),
        fault_fd_(static_cast<int>(
            ::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY))) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
    uffdio_register pages_of{.range = {.start = address(), .len = bytes_},
                             .mode = UFFDIO_REGISTER_MODE_MISSING,
                             .ioctls = 0};
    is_there_ = fault_fd_ >= 0 && ::ioctl(fault_fd_, UFFDIO_API, &api) == 0 &&
                ::ioctl(fault_fd_, UFFDIO_REGISTER, &pages_of) == 0;
  }
  SlowPages(const SlowPages&) = delete;
  SlowPages& operator=(const SlowPages&) = delete;
  ~SlowPages() {
    ::munmap(memory_, bytes_);
    if (fault_fd_ >= 0) ::close(fault_fd_);
  }

  bool is_there() const { return is_there_; }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  // Supplies the page that a thread is waiting for. Returns false when no thread waits.
  bool GiveOne() const {
    uffd_msg message{};
    if (::read(fault_fd_, &message, sizeof message) != sizeof message) return false;
    uffdio_zeropage zero{};
    zero.range = {.start = message.arg.pagefault.address & ~std::uint64_t{kPageBytes - 1},
                  .len = kPageBytes};
    return ::ioctl(fault_fd_, UFFDIO_ZEROPAGE, &zero) == 0;
  }

 private:
  std::uint64_t address() const {
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory_));
  }

  const std::size_t bytes_;
  const int fault_fd_;
  void* memory_ = nullptr;
  bool is_there_ = false;
};

TEST_F(CpuDeviceTest, StoppedCopyWaitsOnlyForPagesInProgress) {
  constexpr std::size_t kPages = 64, kThreads = 2;
  const SlowPages pages(kPages);
  if (!pages.is_there()) GTEST_SKIP() << "this kernel lets no process answer its page faults";
  ASSERT_TRUE(space_->Resize(kMapPageBytes).ok());
  CopyWork copy;
  copy.id = ++last_id_;
  copy.space = space_.get();
  copy.stream = 1;
  copy.direction = CopyWork::Direction::kHostToDevice;
  copy.host = pages.data();
  copy.destination = space_->base();
  copy.width_bytes = kPages * SlowPages::kPageBytes;
  device_->Submit(copy);
  while (!pages.GiveOne()) std::this_thread::yield();
  device_->RequestStop(copy.id);

  std::size_t given = 1;
  std::array<Completion, 2> out;
  while (device_->TakeCompletions(out) == 0) {
    given += pages.GiveOne() ? 1 : 0;
    std::this_thread::yield();
  }
  EXPECT_TRUE(out[0].stopped);
  // Each thread may have waited for one page before the request, and may need one more after it.
  EXPECT_LE(given, 2 * kThreads);
}

TEST_F(CpuDeviceTest, CountsMemoryOfThreadsUntilTheySleep) {
  EXPECT_EQ(device_->executor_bytes(), 0u);
  LaunchWork work = Work(kLarge);
  work.grid = {1, 1, 1};
  work.block = {128, 1, 1};
  device_->Submit(work);
  EXPECT_TRUE(Await().status.ok());
  EXPECT_GE(device_->executor_bytes(), 128u * 65536);
  for (int i = 0; i < 1000 && device_->executor_bytes() > executor::kKeptBytesMax; ++i) {
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_LE(device_->executor_bytes(), executor::kKeptBytesMax);
}

TEST_F(CpuDeviceTest, DestructionEndsRunningAndWaitingWork) {
  for (int i = 0; i < 4; ++i) {
    LaunchWork work = Work(kEndless);
    work.grid = {8, 1, 1};
    device_->Submit(work);
  }
  device_.reset();
}

TEST_F(CpuDeviceTest, EndlessWorkLeavesOtherThreadToOtherClients) {
  const LaunchWork endless = Work(kEndless);
  device_->Submit(endless);
  const std::array<std::byte, 8> parameters{};
  for (int i = 0; i < 10; ++i) {
    LaunchWork work = Work(kNothing);
    work.stream = 2;
    work.grid = {100, 1, 1};
    work.parameters = parameters;
    device_->Submit(work);
    const Completion completion = Await();
    EXPECT_EQ(completion.id, work.id);
    EXPECT_TRUE(completion.status.ok()) << completion.status.ToString();
  }
  device_->RequestKill(endless.id);
  EXPECT_EQ(Await().status.code(), StatusCode::kCancelled);
}

// With more busy threads than cores, each thread is kept off the cores for a part of the time.
TEST_F(CpuDeviceTest, HostStealGrowsAndNeverExceedsElapsedTime) {
  const DeviceClock::time_point start = DeviceClock::now();
  const std::chrono::nanoseconds delay_at_start = device_->HostStealUntil(start);
  std::atomic<bool> is_over = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    others.emplace_back([&] {
      while (!is_over.load(std::memory_order_relaxed)) {
      }
    });
  }
  LaunchWork work = Work(kEndless);
  work.grid = {2, 1, 1};
  device_->Submit(work);
  std::chrono::nanoseconds delay{};
  while (delay < 20ms && DeviceClock::now() - start < 60s) {
    std::this_thread::sleep_for(1ms);
    const std::chrono::nanoseconds until_now = device_->HostStealUntil(DeviceClock::now());
    const std::chrono::nanoseconds before = std::exchange(delay, until_now - delay_at_start);
    EXPECT_GE(delay, before);
    EXPECT_LE(delay, DeviceClock::now() - start);
  }
  EXPECT_GE(delay, 20ms);
  is_over = true;
  for (std::thread& other : others) other.join();
  device_->RequestKill(work.id);
  Await();
}

constexpr std::string_view kTakes = R"(.version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b64 r) malloc(.param .b64 bytes);
.visible .entry take(.param .u64 out, .param .u64 bytes) {
  .reg .b64 %o, %n, %p; .reg .b32 %v; .reg .pred %none;
  ld.param.u64 %o, [out]; ld.param.u64 %n, [bytes];
  { .param .b64 b; .param .b64 r; st.param.b64 [b], %n; call (r), malloc, (b);
    ld.param.b64 %p, [r]; }
  st.global.u64 [%o], %p;
  setp.eq.u64 %none, %p, 0;
  mov.u32 %v, 77;
  @!%none st.u32 [%p], %v;
  ret;
}
.visible .entry nothing() { ret; }
)";
constexpr std::string_view kReads = R"(.version 8.0
.target sm_75
.address_size 64
.extern .func free(.param .b64 what);
.visible .entry read(.param .u64 out, .param .u64 from) {
  .reg .b64 %o, %p; .reg .b32 %v;
  ld.param.u64 %o, [out]; ld.param.u64 %p, [from];
  ld.u32 %v, [%p]; st.global.u32 [%o], %v; ret;
}
.visible .entry release(.param .u64 out, .param .u64 what) {
  .reg .b64 %p; ld.param.u64 %p, [what];
  { .param .b64 w; st.param.b64 [w], %p; call free, (w); }
  ret;
}
)";

// Two clients whose kernels allocate.
class DeviceHeapTest : public CpuDeviceTest {
 protected:
  struct Client {
    std::unique_ptr<Space> space;
    std::shared_ptr<const Module> reads, takes;  // Loaded in this order.
    std::uint64_t* out = nullptr;
  };
  Client MakeClient(std::uint64_t quota_bytes) {
    Client client;
    client.space = std::move(*device_->CreateSpace({.quota_bytes = quota_bytes}));
    EXPECT_TRUE(client.space->Resize(4096).ok());
    client.reads = *testing::LoadModule(*client.space, kReads);
    client.takes = *testing::LoadModule(*client.space, kTakes);
    client.out = reinterpret_cast<std::uint64_t*>(client.space->base());
    return client;
  }
  Status Run(const Client& client, const Module& module, std::uint32_t kernel,
             std::uint64_t operand) {
    LaunchWork work;
    work.id = ++last_id_;
    work.space = client.space.get();
    work.stream = 1;
    work.module = &module;
    work.kernel = kernel;
    const std::array<std::uint64_t, 2> parameters = {client.space->base(), operand};
    work.parameters = std::as_bytes(std::span(parameters));
    device_->Submit(work);
    return Await().status;
  }
  std::uint64_t Take(const Client& client, std::uint64_t bytes) {
    const Status status = Run(client, *client.takes, 0, bytes);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return *client.out;
  }
};

TEST_F(DeviceHeapTest, IsSharedByModulesAndKernelsOfClient) {
  const Client client = MakeClient(1 << 24);
  const std::uint64_t address = Take(client, 64);
  ASSERT_NE(address, 0u);
  EXPECT_TRUE(Run(client, *client.reads, 0, address).ok());
  EXPECT_EQ(static_cast<std::uint32_t>(*client.out), 77u);
  EXPECT_TRUE(Run(client, *client.reads, 1, address).ok());
  EXPECT_EQ(Take(client, 64), address);
  EXPECT_EQ(Take(client, executor::kDeviceHeapBytes), 0u);
}

TEST_F(DeviceHeapTest, IsSeparateForEachClient) {
  const Client one = MakeClient(1 << 24), other = MakeClient(1 << 24);
  const std::uint64_t address = Take(one, 64);
  Take(other, 64);
  for (const std::uint32_t kernel : {0u, 1u}) {
    EXPECT_EQ(Run(other, *other.reads, kernel, address).code(), StatusCode::kKernelFault);
  }
  EXPECT_TRUE(Run(one, *one.reads, 0, address).ok());
  EXPECT_EQ(static_cast<std::uint32_t>(*one.out), 77u);
}

TEST_F(DeviceHeapTest, CountsAgainstQuota) {
  // Includes one MiB for code.
  const Client client = MakeClient(executor::kDeviceHeapBytes + (5 << 20));
  EXPECT_NE(Take(client, 64), 0u);
  EXPECT_TRUE(client.space->Resize(4 << 20).ok());
  EXPECT_FALSE(client.space->Resize(6 << 20).ok());
}

TEST_F(DeviceHeapTest, SizeCanBeSetUntilKernelAllocates) {
  const Client client = MakeClient(std::uint64_t{64} << 20);
  const KernelMemory large = {.heap_bytes = std::uint64_t{16} << 20};
  ASSERT_TRUE(client.space->SetKernelMemory(large).ok());
  EXPECT_NE(Take(client, 12 << 20), 0u);
  EXPECT_EQ(client.space->SetKernelMemory({.heap_bytes = 20 << 20}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(client.space->SetKernelMemory(large).ok());
  EXPECT_FALSE(client.space->Resize(48 << 20).ok()) << "the heap and its books count";
  EXPECT_TRUE(client.space->Resize(32 << 20).ok());
}

TEST_F(DeviceHeapTest, FailedResizeKeepsOldHeap) {
  const Client client = MakeClient(1 << 24);
  EXPECT_EQ(client.space->SetKernelMemory({.heap_bytes = 64 << 20}).code(),
            StatusCode::kOutOfMemory);
  EXPECT_NE(Take(client, 64), 0u);
}

TEST_F(DeviceHeapTest, WithoutMemoryOnlyAllocatingKernelsAreRejected) {
  const Client client = MakeClient(4 << 20);
  const std::string& why = client.takes->kernels()[0].unsupported;
  EXPECT_NE(why.find("device heap of 8 MiB"), std::string::npos) << why;
  EXPECT_EQ(client.takes->kernels()[1].unsupported, "");
  EXPECT_EQ(client.reads->kernels()[1].unsupported, "");
}

}  // namespace
}  // namespace gpushared::device
