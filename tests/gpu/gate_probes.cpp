// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/gate_probes.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include "samples/kernels/kernel_image.h"
#include "server/device/cuda/driver.h"
#include "tests/bench/report.h"

namespace gpushared::testing {
namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.
using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::seconds;

constexpr int kBatch = 500;  // Number of launches that a stream accepts without waiting.
constexpr int kBurst = 64;   // Number of other calls that a stream accepts without waiting.
constexpr std::size_t kLaunchesMax = 100'000;
constexpr microseconds kKernelTime{20};
constexpr std::size_t kPageBytes = 4096;
constexpr seconds kWaitMax{10};  // Limit for waiting for another process or the GPU.

using LaunchFunction = Code(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, Stream, void**, void**);

// A context of the first GPU with the kernels of gpu_kernels.cu and one stream.
class Gpu {
 public:
  Gpu() {
    auto loaded = Driver::Load();
    if (!loaded.ok()) throw std::runtime_error(loaded.status().ToString());
    driver_ = *std::move(loaded);
    Context context = nullptr;
    Do(driver_->DeviceGet, &number_, 0);
    Do(driver_->DevicePrimaryCtxRetain, &context, number_);
    Do(driver_->CtxSetCurrent, context);
    Do(driver_->ModuleLoadDataEx, &module_, kernel_image_begin, 0u, nullptr, nullptr);
    Do(driver_->ModuleGetFunction, &step_, module_, "step");
    Do(driver_->ModuleGetFunction, &occupy_, module_, "occupy");
    Do(driver_->StreamCreateWithPriority, &stream_, kStreamNonBlocking, 0);
    Do(driver_->MemAlloc, &out_, kPageBytes);
    LaunchNull();
    Synchronize();
  }
  // Errors are ignored, because the driver is not called again.
  ~Gpu() {
    (void)driver_->MemFree(out_);
    (void)driver_->StreamDestroy(stream_);
    (void)driver_->ModuleUnload(module_);
    (void)driver_->DevicePrimaryCtxRelease(number_);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  template <typename... Parameters, typename... Arguments>
  void Do(const DriverCall<Code(Parameters...)>& call, Arguments... arguments) const {
    const Status status = driver_->Try(call, arguments...);
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  }
  const Driver& driver() const { return *driver_; }
  Stream stream() const { return stream_; }

  void LaunchNull() { Launch(step_, 1, 1, 0); }
  // Launches the empty kernel through the function of a certain driver.
  void LaunchNull(LaunchFunction* launch) {
    unsigned iterations = 0;
    std::array<void*, 2> parameters = {&out_, &iterations};
    const Code code = launch(step_, 1, 1, 1, 1, 1, 1, 0, stream_, parameters.data(), nullptr);
    if (code != Code{}) throw std::runtime_error("a launch failed: " + std::to_string(int(code)));
  }
  // Launches a kernel of one thread for about 20 us.
  void LaunchShort() { Launch(step_, 1, 1, Iterations()); }
  // Launches a kernel that fills the GPU for about 20 us.
  void LaunchFull() { Launch(occupy_, FullBlocks(), 32, Iterations()); }
  void Synchronize() { Do(driver_->StreamSynchronize, stream_); }

  int Attribute(int which) const {
    int value = 0;
    Do(driver_->DeviceGetAttribute, &value, static_cast<DeviceAttribute>(which), number_);
    return value;
  }

 private:
  void Launch(Function kernel, unsigned blocks, unsigned threads, unsigned iterations) {
    std::array<void*, 2> parameters = {&out_, &iterations};
    Do(driver_->LaunchKernel, kernel, blocks, 1u, 1u, threads, 1u, 1u, 0u, stream_,
       parameters.data(), nullptr);
  }
  // Returns the number of blocks of one warp that fill the GPU: current GPUs run 32 on each
  // multiprocessor.
  unsigned FullBlocks() const {
    return static_cast<unsigned>(Attribute(static_cast<int>(DeviceAttribute::kMultiprocessors))) *
           32;
  }
  // Returns the iterations that take kKernelTime, from the difference of two lengths.
  unsigned Iterations() {
    if (iterations_ != 0) return iterations_;
    constexpr unsigned kMany = 20'000;
    const auto fastest = [&](unsigned iterations) {
      auto best = Clock::duration::max();
      for (int i = 0; i < 5; ++i) {
        const auto begin = Clock::now();
        Launch(step_, 1, 1, iterations);
        Synchronize();
        best = std::min(best, Clock::now() - begin);
      }
      return best;
    };
    (void)fastest(kMany);  // Gives the GPU's clock time to rise.
    const double each =
        std::max(0.01, static_cast<double>((fastest(kMany) - fastest(0)).count()) / kMany);
    iterations_ = static_cast<unsigned>(
        static_cast<double>(std::chrono::nanoseconds(kKernelTime).count()) / each);
    return iterations_ = std::max(1u, iterations_);
  }

  std::shared_ptr<const Driver> driver_;
  DeviceNumber number_ = 0;
  Module module_ = nullptr;
  Function step_ = nullptr, occupy_ = nullptr;
  Stream stream_ = nullptr;
  DeviceAddress out_ = 0;
  unsigned iterations_ = 0;
};

// A page of a memfd that is registered with the GPU.
class RegisteredPage {
 public:
  explicit RegisteredPage(Gpu& gpu) : gpu_(gpu) {
    const int file = ::memfd_create("gate_bench", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, kPageBytes) != 0) {
      throw std::runtime_error(std::string("no memfd: ") + std::strerror(errno));
    }
    page_ = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (page_ == MAP_FAILED) throw std::runtime_error(std::strerror(errno));
    gpu_.Do(gpu_.driver().MemHostRegister, page_, kPageBytes, kHostPortable | kHostDeviceMap);
    gpu_.Do(gpu_.driver().MemHostGetDevicePointer, &address_, page_, 0u);
  }
  ~RegisteredPage() {
    (void)gpu_.driver().MemHostUnregister(page_);
    ::munmap(page_, kPageBytes);
  }
  RegisteredPage(const RegisteredPage&) = delete;
  RegisteredPage& operator=(const RegisteredPage&) = delete;

  DeviceAddress address() const { return address_; }
  // Acquire pairs with the GPU's write.
  std::uint32_t Read() const {
    return std::atomic_ref(*static_cast<std::uint32_t*>(page_)).load(std::memory_order_acquire);
  }

 private:
  Gpu& gpu_;
  void* page_ = nullptr;
  DeviceAddress address_ = 0;
};

// Spins until `is_true`. Yields the processor now and then, because the other process may need it.
void SpinUntil(const std::function<bool()>& is_true, const char* what) {
  const auto end = Clock::now() + kWaitMax;
  for (unsigned polls = 1; !is_true(); ++polls) {
    if (polls % 256 != 0) continue;
    if (Clock::now() > end) {
      throw std::runtime_error(std::string(what) + " was not seen within " +
                               std::to_string(kWaitMax.count()) + " s");
    }
    std::this_thread::yield();
  }
}

Samples Repeat(Clock::duration time, const std::function<void()>& action) {
  Samples samples;
  const auto end = Clock::now() + time;
  do {
    const auto begin = Clock::now();
    action();
    samples.Add(Clock::now() - begin);
  } while (Clock::now() < end);
  return samples;
}

// Returns samples of the time per call, each the mean of `count` calls.
Samples TimePerCall(Gpu& gpu, Clock::duration time, int count, const std::function<void()>& call) {
  Samples samples;
  const auto end = Clock::now() + time;
  do {
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) call();
    samples.Add(static_cast<double>((Clock::now() - begin).count()) / count);
    gpu.Synchronize();
  } while (Clock::now() < end && samples.count() * static_cast<std::size_t>(count) < kLaunchesMax);
  return samples;
}

std::string Text(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", number);
  return text.data();
}

std::string P50(const Samples& samples) { return Text(samples.Percentile(0.5)); }
std::string P99(const Samples& samples) { return Text(samples.Percentile(0.99)); }

// Returns the loaded library that serves this process's driver calls.
void* LoadedDriver() { return ::dlopen(Driver::kLibrary, RTLD_NOW | RTLD_NOLOAD); }

std::string FileOfLaunches() {
  void* const launch = ::dlsym(LoadedDriver(), "cuLaunchKernel");
  Dl_info facts{};
  return launch != nullptr && ::dladdr(launch, &facts) != 0 ? facts.dli_fname : "";
}

// Returns the driver that the library in front forwards to, or the library itself if it is the
// driver.
void* NativeDriver() {
  struct Search {
    std::string ours, found;
  } search{.ours = FileOfLaunches(), .found = {}};
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* of) {
        auto& known = *static_cast<Search*>(of);
        const std::string_view path = library->dlpi_name;
        if (path.find("/libcuda.so") != path.npos && path != known.ours) known.found = path;
        return 0;
      },
      &search);
  return search.found.empty() ? LoadedDriver()
                              : ::dlopen(search.found.c_str(), RTLD_NOW | RTLD_NOLOAD);
}

LaunchFunction* GetLaunch(void* library) {
  auto* const launch = reinterpret_cast<LaunchFunction*>(::dlsym(library, "cuLaunchKernel"));
  if (launch == nullptr) throw std::runtime_error("no cuLaunchKernel");
  return launch;
}

// Waits for the other side, so that neither measures before both are ready.
void Meet(Pair& pair) {
  pair.ready.fetch_add(1, std::memory_order_acq_rel);
  // Acquire pairs with the other side's release.
  SpinUntil([&] { return pair.ready.load(std::memory_order_acquire) == 2; }, "the other process");
}

bool IsOver(const Pair& pair) { return pair.is_over.load(std::memory_order_acquire) != 0; }

}  // namespace

Measured ProbeLaunches(ProbeTime time) {
  Gpu gpu;
  LaunchFunction* const ours = GetLaunch(LoadedDriver());
  LaunchFunction* const native = GetLaunch(NativeDriver());
  // Both ways alternate in one process, because the times of the same launches differ more between
  // two processes than with and without a gate.
  Samples through, beside;
  const auto end = Clock::now() + time;
  do {
    for (const auto& [launch, samples] : {std::pair(ours, &through), std::pair(native, &beside)}) {
      const auto begin = Clock::now();
      for (int i = 0; i < kBatch; ++i) gpu.LaunchNull(launch);
      samples->Add(static_cast<double>((Clock::now() - begin).count()) / kBatch);
      gpu.Synchronize();
    }
  } while (Clock::now() < end && through.count() * kBatch < kLaunchesMax);
  return {{"p50", P50(through)}, {"native p50", P50(beside)}, {"library", FileOfLaunches()}};
}

Measured ProbeMarks(ProbeTime time) {
  Gpu gpu;
  Measured measured;
  const Driver& driver = gpu.driver();
  if (driver.Has(Feature::kStreamMemoryOperations)) {
    const RegisteredPage page(gpu);
    std::uint32_t number = 0;
    const auto write = [&] {
      gpu.Do(driver.StreamWriteValue32, gpu.stream(), page.address(), ++number, kWriteValueDefault);
    };
    measured["write"] = P50(TimePerCall(gpu, time / 5, kBurst, write));
    measured["seen"] = P50(Repeat(time / 5, [&] {
      write();
      SpinUntil([&] { return page.Read() == number; }, "a word that the GPU writes");
    }));
    gpu.Synchronize();
  }
  Event event = nullptr;
  gpu.Do(driver.EventCreate, &event, kEventDisableTiming);
  const auto record = [&] { gpu.Do(driver.EventRecord, event, gpu.stream()); };
  measured["record"] = P50(TimePerCall(gpu, time / 5, kBurst, record));
  const auto query = [&] { gpu.Do(driver.EventQuery, event); };
  measured["query"] = P50(TimePerCall(gpu, time / 5, kBurst, query));
  const auto is_capturing =
      reinterpret_cast<Code (*)(Stream, int*)>(::dlsym(LoadedDriver(), "cuStreamIsCapturing"));
  int status = 0;
  if (is_capturing != nullptr && is_capturing(gpu.stream(), &status) == Code::kSuccess) {
    const auto ask = [&] { (void)is_capturing(gpu.stream(), &status); };
    measured["is capturing"] = P50(TimePerCall(gpu, time / 5, kBurst, ask));
  }
  gpu.Do(driver.EventDestroy, event);
  return measured;
}

Measured ProbeAlone(ProbeTime time) {
  constexpr int kIsMpsClient = 133;  // CU_DEVICE_ATTRIBUTE_MPS_ENABLED
  Gpu gpu;
  const auto measure = [&](void (Gpu::*launch)()) {
    return P50(Repeat(time / 2, [&] {
      (gpu.*launch)();
      gpu.Synchronize();
    }));
  };
  int mps = 0;
  if (gpu.driver().version() >= 12040) mps = gpu.Attribute(kIsMpsClient);
  return {{"kernel", measure(&Gpu::LaunchShort)},
          {"null", measure(&Gpu::LaunchNull)},
          {"mps", std::to_string(mps)}};
}

Measured ProbeTurns(ProbeTime time, Pair& pair, unsigned side) {
  Gpu gpu;
  gpu.LaunchShort();
  gpu.Synchronize();
  Meet(pair);
  Samples samples;
  for (const auto end = Clock::now() + time; !IsOver(pair) && (side == 1 || Clock::now() < end);) {
    SpinUntil([&] { return pair.turn.load(std::memory_order_acquire) == side || IsOver(pair); },
              "the other process's turn");
    const auto begin = Clock::now();
    gpu.LaunchShort();
    gpu.Synchronize();
    samples.Add(Clock::now() - begin);
    pair.turn.store(1 - side, std::memory_order_release);
  }
  pair.is_over.store(1, std::memory_order_release);
  return {{"p50", P50(samples)}, {"p99", P99(samples)}};
}

Measured ProbeBeside(ProbeTime time, Pair& pair, unsigned side) {
  Gpu gpu;
  gpu.LaunchFull();
  gpu.Synchronize();
  Meet(pair);
  if (side == 0) {
    const Samples samples = Repeat(time, [&] {
      gpu.LaunchNull();
      gpu.Synchronize();
    });
    pair.is_over.store(1, std::memory_order_release);
    return {{"p50", P50(samples)}, {"p99", P99(samples)}};
  }
  // Two groups of launches, of which one is always in flight.
  std::array<Event, 2> ends{};
  for (Event& end : ends) gpu.Do(gpu.driver().EventCreate, &end, kEventDisableTiming);
  for (std::size_t group = 0; !IsOver(pair); group = 1 - group) {
    for (int i = 0; i < 4; ++i) gpu.LaunchFull();
    gpu.Do(gpu.driver().EventRecord, ends[group], gpu.stream());
    gpu.Do(gpu.driver().EventSynchronize, ends[1 - group]);
  }
  gpu.Synchronize();
  for (const Event end : ends) gpu.Do(gpu.driver().EventDestroy, end);
  return {};
}

}  // namespace gpushared::testing
