// SPDX-License-Identifier: Apache-2.0
// Memory that both the program and kernels can access, while other threads launch, wait and run
// host functions. GPUSHARED_MIRROR_STEPS=N runs N random steps in total; GPUSHARED_MIRROR_SEED=N
// runs that seed.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <cuda.h>
#include <gtest/gtest.h>

#include "tests/drop_in/server_case.h"

namespace gpushared {
namespace {

constexpr char kMirrorKernels[] = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 to, .param .u32 value) {
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [to]; ld.param.u32 %r1, [value]; st.global.u32 [%rd1], %r1; ret;
}
// to[i * to_step] = from[i * from_step] * 3 + add, a byte for each thread.
.visible .entry mix(.param .u64 to, .param .u32 to_step, .param .u64 from, .param .u32 from_step,
                    .param .u32 add) {
  .reg .b32 %r<6>; .reg .b64 %rd<5>; .reg .b16 %h<2>;
  ld.param.u64 %rd1, [to]; ld.param.u32 %r1, [to_step];
  ld.param.u64 %rd2, [from]; ld.param.u32 %r2, [from_step]; ld.param.u32 %r3, [add];
  mov.u32 %r4, %tid.x;
  mad.wide.u32 %rd3, %r4, %r1, %rd1; mad.wide.u32 %rd4, %r4, %r2, %rd2;
  ld.global.u8 %r5, [%rd4]; mad.lo.u32 %r5, %r5, 3, %r3; st.global.u8 [%rd3], %r5; ret;
}
)";

CUfunction FunctionFor(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
  return function;
}

std::uint64_t GetNumber(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class MirroredMemoryTest : public testing::DropInServerCase {
 protected:
  // Runs `rounds` launches that each store a number, and returns how many of the numbers were not
  // in the program's memory after the wait.
  int Stale(CUdeviceptr to, CUstream stream, bool has_function_in_front, int rounds) {
    auto* const seen = reinterpret_cast<volatile unsigned*>(to);
    int stale = 0;
    for (int i = 0; i < rounds; ++i) {
      unsigned value = static_cast<unsigned>(i) * 7 + 1;
      *seen = 0;
      void* parameters[] = {&to, &value};
      if (has_function_in_front) {
        EXPECT_EQ(cuLaunchHostFunc(
                      stream, [](void*) {}, nullptr),
                  CUDA_SUCCESS);
      }
      EXPECT_EQ(cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
                CUDA_SUCCESS);
      EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
      if (*seen != value) ++stale;
    }
    return stale;
  }
  void Load() {
    UsePrimary();
    ASSERT_EQ(cuModuleLoadData(&module_, kMirrorKernels), CUDA_SUCCESS);
    store_ = FunctionFor(module_, "store");
  }
  // Returns one address of each kind of memory.
  std::vector<std::pair<std::string, CUdeviceptr>> OneOfEach() {
    void* locked = nullptr;
    void* mapped = nullptr;
    CUdeviceptr managed = 0;
    EXPECT_EQ(cuMemAllocHost(&locked, 64), CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostAlloc(&mapped, 64, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    return {{"page-locked", reinterpret_cast<CUdeviceptr>(locked)},
            {"mapped", reinterpret_cast<CUdeviceptr>(mapped)},
            {"managed", managed}};
  }

  CUfunction store_ = nullptr;
};

TEST_F(MirroredMemoryTest, IsUpToDateAfterKernelsBehindHostFunctions) {
  Load();
  const CUstream stream = NewStream();
  for (const auto& [kind, address] : OneOfEach()) {
    EXPECT_EQ(Stale(address, stream, true, 100), 0) << kind;
  }
}

TEST_F(MirroredMemoryTest, IsUpToDateWhileAnotherThreadWaits) {
  Load();
  const CUstream stream = NewStream(), idle = NewStream();
  std::atomic<bool> stops{false};
  std::thread other([&] {
    EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
    while (!stops) EXPECT_EQ(cuStreamSynchronize(idle), CUDA_SUCCESS);
  });
  for (const auto& [kind, address] : OneOfEach()) {
    EXPECT_EQ(Stale(address, stream, false, 300), 0) << kind;
  }
  stops = true;
  other.join();
}

// Commands and waits of one thread must not overwrite data that another thread writes at the same
// time.
TEST_F(MirroredMemoryTest, KeepsProgramsWritesWhileOtherWorkRuns) {
  Load();
  void* memory = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  auto* const bytes = static_cast<volatile unsigned*>(memory);
  const auto launch = [&](int at, unsigned value) {
    CUdeviceptr to = reinterpret_cast<CUdeviceptr>(bytes + at);
    void* parameters[] = {&to, &value};
    return cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr);
  };
  ASSERT_EQ(launch(0, 1), CUDA_SUCCESS);
  bytes[1] = 2;
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(bytes[0], 1u);
  EXPECT_EQ(bytes[1], 2u) << "a wait overwrote the program's byte";
  // A copy without a wait after a launch reads what the program wrote between launch and copy.
  ASSERT_EQ(launch(0, 3), CUDA_SUCCESS);
  bytes[2] = 4;
  const CUdeviceptr from = reinterpret_cast<CUdeviceptr>(bytes + 2);
  CUdeviceptr other = 0;
  unsigned read = 0;
  ASSERT_EQ(cuMemAlloc(&other, 4), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoDAsync(other, from, 4, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoH(&read, other, 4), CUDA_SUCCESS);
  EXPECT_EQ(read, 4u);
}

// A copy to page-locked memory must have arrived before a later kernel reads that memory.
TEST_F(MirroredMemoryTest, KernelsSeeCopiesBeforeThemInTheStream) {
  Load();
  const CUfunction mix = FunctionFor(module_, "mix");
  constexpr std::size_t kMany = 8 << 20;
  void* memory = nullptr;
  CUdeviceptr device = 0;
  ASSERT_EQ(cuMemAllocHost(&memory, kMany), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&device, kMany), CUDA_SUCCESS);
  auto* const bytes = static_cast<std::uint8_t*>(memory);
  for (unsigned round = 1; round <= 5; ++round) {
    ASSERT_EQ(cuMemsetD8(device, static_cast<unsigned char>(round), kMany), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoHAsync(memory, device, kMany, nullptr), CUDA_SUCCESS);
    CUdeviceptr last = reinterpret_cast<CUdeviceptr>(bytes + kMany - 64);
    unsigned step = 1, add = 100;
    void* parameters[] = {&last, &step, &last, &step, &add};
    ASSERT_EQ(cuLaunchKernel(mix, 1, 1, 1, 64, 1, 1, 0, nullptr, parameters, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(bytes[kMany - 1], round * 3 + 100);
    EXPECT_EQ(bytes[kMany - 65], round);
  }
}

// A copy from page-locked memory must use what an earlier kernel of the stream has written there.
TEST_F(MirroredMemoryTest, CopiesSeeKernelsBeforeThemInTheStream) {
  Load();
  void* locked = nullptr;
  alignas(4096) static std::array<std::byte, 4096> registered;
  CUdeviceptr device = 0;
  ASSERT_EQ(cuMemAllocHost(&locked, 64), CUDA_SUCCESS);
  ASSERT_EQ(cuMemHostRegister(registered.data(), registered.size(), 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&device, 4), CUDA_SUCCESS);
  for (void* const host : {locked, static_cast<void*>(registered.data())}) {
    CUdeviceptr to = reinterpret_cast<CUdeviceptr>(host);
    unsigned value = 7, read = 0;
    void* parameters[] = {&to, &value};
    ASSERT_EQ(cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyHtoDAsync(device, host, sizeof value, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(cuMemcpyDtoH(&read, device, sizeof read), CUDA_SUCCESS);
    EXPECT_EQ(read, value) << (host == locked ? "allocated" : "registered");
  }
  EXPECT_EQ(cuMemHostUnregister(registered.data()), CUDA_SUCCESS);
}

// ---- random programs

constexpr unsigned kThreads = 8;
constexpr unsigned kSlots = 64;  // Bytes of one thread in each memory.

// Memory in which each thread has kSlots bytes, interleaved with those of other threads.
struct Memory {
  enum class Kind { kMapped, kLocked, kRegistered, kManaged, kAttached };
  Kind kind;
  std::uint8_t* host;
  CUdeviceptr device;
};

// A thread's program, and a model: the memory contents that result if each step is executed before
// the next one begins.
class RandomProgram {
 public:
  RandomProgram(std::uint64_t seed, unsigned thread, CUfunction mix, std::vector<Memory> memories)
      : random_(seed * kThreads + thread),
        thread_(thread),
        mix_(mix),
        memories_(std::move(memories)),
        model_(memories_.size()) {}

  void Run(CUcontext context, unsigned steps) {
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    for (CUstream& stream : streams_) {
      ASSERT_EQ(cuStreamCreate(&stream, Draw(2) == 0 ? 0 : CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    }
    ASSERT_EQ(cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    for (unsigned i = 0; i < steps && !::testing::Test::HasFailure(); ++i) Step();
    ASSERT_EQ(cuStreamSynchronize(stream()), CUDA_SUCCESS);
    Check();
    for (CUstream stream : streams_) EXPECT_EQ(cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(cuEventDestroy(event_), CUDA_SUCCESS);
  }
  unsigned checks() const { return checks_; }
  bool functions_saw_right() const { return functions_saw_right_; }

 private:
  // Data for a host function: the bytes that the function expects, and the byte that it then
  // writes.
  struct Call {
    RandomProgram* program;
    std::size_t memory;
    std::array<std::uint8_t, kSlots> expected;
    std::uint8_t written;
  };

  unsigned Draw(unsigned end) { return static_cast<unsigned>(random_() % end); }
  CUstream stream() const { return streams_[current_]; }
  std::uint8_t& At(std::size_t memory, unsigned slot) const {
    return memories_[memory].host[slot * kThreads + thread_];
  }

  void Step() {
    switch (Draw(10)) {
      case 0:
      case 1:
        return Write();
      case 2:
      case 3:
      case 4:
        return Launch();
      case 5:
        return CallHost();
      case 6:
        return ChangeStream();
      case 7:
        return Poll();
      default:
        return Wait();
    }
  }

  // The program writes managed memory only while this thread has no work in flight.
  void Write() {
    const std::size_t memory = Draw(static_cast<unsigned>(memories_.size()));
    const bool is_in_turns = memories_[memory].kind == Memory::Kind::kManaged;
    if (is_used_[memory] || (is_in_turns && has_work_)) return;
    for (unsigned i = 0; i < kSlots; ++i) {
      if (Draw(3) == 0) continue;
      At(memory, i) = model_[memory][i] = static_cast<std::uint8_t>(Draw(256));
    }
  }

  void Launch() {
    const std::size_t to = Draw(static_cast<unsigned>(memories_.size()));
    const std::size_t from = Draw(static_cast<unsigned>(memories_.size()));
    CUdeviceptr target = memories_[to].device + thread_, source = memories_[from].device + thread_;
    unsigned step = kThreads, add = Draw(256), same_step = kThreads;
    void* parameters[] = {&target, &step, &source, &same_step, &add};
    ASSERT_EQ(cuLaunchKernel(mix_, 1, 1, 1, kSlots, 1, 1, 0, stream(), parameters, nullptr),
              CUDA_SUCCESS);
    for (unsigned i = 0; i < kSlots; ++i) {
      model_[to][i] = static_cast<std::uint8_t>(model_[from][i] * 3 + add);
    }
    has_work_ = is_used_[to] = is_used_[from] = true;
  }

  void CallHost() {
    const std::size_t memory = Draw(static_cast<unsigned>(memories_.size()));
    const auto written = static_cast<std::uint8_t>(Draw(256));
    calls_.push_back(std::make_unique<Call>(Call{this, memory, model_[memory], written}));
    ASSERT_EQ(cuLaunchHostFunc(stream(), &RunCall, calls_.back().get()), CUDA_SUCCESS);
    model_[memory][0] = written;
    has_work_ = is_used_[memory] = true;
  }
  static void RunCall(void* data) {
    const Call& call = *static_cast<Call*>(data);
    for (unsigned i = 0; i < kSlots; ++i) {
      if (call.program->At(call.memory, i) != call.expected[i]) {
        call.program->functions_saw_right_ = false;
      }
    }
    call.program->At(call.memory, 0) = call.written;
  }

  void ChangeStream() {
    ASSERT_EQ(cuEventRecord(event_, stream()), CUDA_SUCCESS);
    current_ = 1 - current_;
    ASSERT_EQ(cuStreamWaitEvent(stream(), event_, 0), CUDA_SUCCESS);
  }

  void Poll() {
    const CUresult code = cuStreamQuery(stream());
    ASSERT_TRUE(code == CUDA_SUCCESS || code == CUDA_ERROR_NOT_READY) << code;
    if (code == CUDA_SUCCESS) Check();
  }

  void Wait() {
    switch (Draw(3)) {
      case 0:
        ASSERT_EQ(cuStreamSynchronize(stream()), CUDA_SUCCESS);
        break;
      case 1:
        ASSERT_EQ(cuEventRecord(event_, stream()), CUDA_SUCCESS);
        ASSERT_EQ(cuEventSynchronize(event_), CUDA_SUCCESS);
        break;
      default:
        ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    }
    Check();
  }

  // Called when no work of this thread is in flight.
  void Check() {
    for (std::size_t memory = 0; memory < memories_.size(); ++memory) {
      for (unsigned i = 0; i < kSlots; ++i) {
        ASSERT_EQ(At(memory, i), model_[memory][i])
            << "thread " << thread_ << ", memory " << memory << ", byte " << i;
      }
    }
    ASSERT_TRUE(functions_saw_right_) << "thread " << thread_;
    calls_.clear();
    is_used_ = {};
    has_work_ = false;
    ++checks_;
  }

  std::mt19937_64 random_;
  const unsigned thread_;
  const CUfunction mix_;
  const std::vector<Memory> memories_;
  std::vector<std::array<std::uint8_t, kSlots>> model_;
  std::array<bool, 8> is_used_{};  // Memories used by commands whose end this thread has not seen.
  bool has_work_ = false;
  std::array<CUstream, 2> streams_{};
  std::size_t current_ = 0;
  CUevent event_ = nullptr;
  std::vector<std::unique_ptr<Call>> calls_;
  std::atomic<bool> functions_saw_right_{true};
  unsigned checks_ = 0;
};

class RandomMirrorTest : public MirroredMemoryTest {
 protected:
  static constexpr std::size_t kSharedBytes = std::size_t{kSlots} * kThreads;

  static Memory Own(Memory::Kind kind, void* host) {
    return {kind, static_cast<std::uint8_t*>(host), reinterpret_cast<CUdeviceptr>(host)};
  }
  // Returns a memory of each kind, filled with zeros like the model.
  std::vector<Memory> MakeMemories() {
    void* mapped = nullptr;
    void* locked = nullptr;
    CUdeviceptr managed = 0, attached = 0, registered = 0;
    EXPECT_EQ(cuMemHostAlloc(&mapped, kSharedBytes, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAllocHost(&locked, kSharedBytes), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAllocManaged(&managed, kSharedBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAllocManaged(&attached, kSharedBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamAttachMemAsync(nullptr, attached, 0, CU_MEM_ATTACH_HOST), CUDA_SUCCESS);
    own_.assign(kSharedBytes + 100, 0);
    std::uint8_t* const part = own_.data() + 4;  // Not at the start of a page.
    EXPECT_EQ(cuMemHostRegister(part, kSharedBytes, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
    EXPECT_EQ(cuMemHostGetDevicePointer(&registered, part, 0), CUDA_SUCCESS);
    const std::vector<Memory> all = {
        Own(Memory::Kind::kMapped, mapped),
        Own(Memory::Kind::kLocked, locked),
        {Memory::Kind::kRegistered, part, registered},
        Own(Memory::Kind::kManaged, reinterpret_cast<void*>(managed)),
        Own(Memory::Kind::kAttached, reinterpret_cast<void*>(attached))};
    for (const Memory& memory : all) std::fill_n(memory.host, kSharedBytes, std::uint8_t{0});
    return all;
  }

  std::vector<std::uint8_t> own_;
};

TEST_F(RandomMirrorTest, EightThreadsSeeTheModelsState) {
  Load();
  const CUfunction mix = FunctionFor(module_, "mix");
  const std::uint64_t seed = GetNumber("GPUSHARED_MIRROR_SEED", 1);
  const auto steps = static_cast<unsigned>(GetNumber("GPUSHARED_MIRROR_STEPS", 12'000) / kThreads);
  const std::vector<Memory> memories = MakeMemories();
  std::vector<std::unique_ptr<RandomProgram>> programs;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    programs.push_back(std::make_unique<RandomProgram>(seed, i, mix, memories));
  }
  for (const auto& program : programs) {
    threads.emplace_back([&] { program->Run(context_, steps); });
  }
  for (std::thread& thread : threads) thread.join();
  unsigned checks = 0;
  for (const auto& program : programs) {
    checks += program->checks();
    EXPECT_TRUE(program->functions_saw_right());
  }
  std::printf("seed %llu: %u steps, %u times all bytes compared\n",
              static_cast<unsigned long long>(seed), steps * kThreads, checks);
  EXPECT_FALSE(HasFailure()) << "replay: GPUSHARED_MIRROR_SEED=" << seed;
  EXPECT_GT(checks, steps) << "nothing was compared";
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(own_.data() + 4), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpushared
