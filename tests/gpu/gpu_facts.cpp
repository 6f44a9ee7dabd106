// SPDX-License-Identifier: Apache-2.0
// The assumptions of the design about a GPU and its driver, asked of the driver itself:
//   * Can the GPU read sealed shared memory?
//   * How soon is the end of work seen?
//   * Where does a word that stops kernels belong?
//   * What do slow calls do to the launches of another thread?
//   * What does stream priority give beside a long low kernel?
//   * How many multiprocessors do green contexts hand out?
//
// gpu_facts [--rows FILE] [--ms N] [--limit N]
//   --ms N      time per measurement (200).
//   --limit N   seconds that one question may take (10).
//
// Each question has a process and a context of its own. So one that hangs costs its limit, and one
// that ends its context leaves the others theirs.

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "samples/kernels/kernel_image.h"
#include "server/device/cuda/driver.h"
#include "tests/bench/report.h"

namespace gpushared::testing {
namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSharedBytes = std::size_t{16} << 20;
constexpr std::size_t kMappedBytes = std::size_t{64} << 20;

class Facts {
 public:
  Facts(const std::string& rows, long ms) : limit_(std::chrono::milliseconds(ms)) {
    const auto begin = Clock::now();
    auto driver = Driver::Load();
    if (!driver.ok()) throw std::runtime_error(driver.status().ToString());
    driver_ = *std::move(driver);
    load_took_ = Clock::now() - begin;
    if (rows.empty()) return;
    rows_.open(rows, std::ios::app);
    if (!rows_) throw std::runtime_error("cannot write '" + rows + "'");
  }

  struct Question {
    const char* name;
    void (Facts::*ask)();
  };
  static constexpr std::array<Question, 11> Questions() {
    return {{{"a context", &Facts::AContext},
             {"sealed shared memory", &Facts::SharedMemory},
             {"end of work", &Facts::EndOfWork},
             {"chains of kernels", &Facts::Chains},
             {"calls", &Facts::Calls},
             {"stream priority", &Facts::StreamPriority},
             {"a word that stops", &Facts::StopWord},
             {"slow calls", &Facts::SlowCalls},
             {"pending launches", &Facts::PendingLaunches},
             {"address windows", &Facts::AddressWindows},
             {"green contexts", &Facts::GreenContexts}}};
  }

  // Says why a question was not answered.
  static void NoteNoAnswer(const std::string& rows, const Question& question,
                           const std::string& why) {
    std::fprintf(stderr, "gpu_facts: %s: %s\n", question.name, why.c_str());
    if (rows.empty()) return;
    std::ofstream(rows, std::ios::app)
        << "facts\t" << question.name << ": answered\t0\t-\trule\t== 1\t" << why << '\n';
  }

  // Stops this process as soon as it has a context, for as long as another one looks at that.
  int HoldContext() {
    Open();
    ::raise(SIGSTOP);
    return 0;
  }

  // False where there is no answer, and why is a row.
  bool Ask(const Question& question) {
    std::string why;
    try {
      Open();
      (this->*question.ask)();
      Close();
    } catch (const std::exception& error) {
      why = error.what();
      std::fprintf(stderr, "gpu_facts: %s: %s\n", question.name, why.c_str());
    }
    Row(std::string(question.name) + ": answered", why.empty() ? 1 : 0, "-", why, true);
    return why.empty();
  }

 private:
  // Calls, and throws what the driver says.
  template <typename... Parameters, typename... Arguments>
  void Do(const DriverCall<Code(Parameters...)>& call, Arguments... arguments) const {
    const Status status = driver_->Try(call, arguments...);
    if (!status.ok()) throw std::runtime_error(status.message());
  }

  void Row(const std::string& what, double value, const std::string& unit, const std::string& note,
           bool must_be_one = false) {
    std::printf("%-64s %12.6g %s %s\n", what.c_str(), value, unit.c_str(), note.c_str());
    if (!rows_.is_open()) return;
    rows_ << "facts\t" << what << '\t' << value << '\t' << unit << '\t'
          << (must_be_one ? "rule\t== 1" : "fact\t-") << '\t' << note << '\n'
          << std::flush;
  }
  void Row(const std::string& what, const Samples& samples) {
    char note[96];
    std::snprintf(note, sizeof note, "p99 %.2f, %zu samples", samples.Percentile(0.99) / 1e3,
                  samples.count());
    Row(what + ", p50", samples.Percentile(0.5) / 1e3, "us", note);
  }

  void Open() {
    Do(driver_->DeviceGet, &number_, 0);
    const auto begin = Clock::now();
    Do(driver_->DevicePrimaryCtxRetain, &context_, number_);
    context_took_ = Clock::now() - begin;
    Do(driver_->CtxSetCurrent, context_);
    used_bare_ = UsedBytes();
    Do(driver_->DeviceGetAttribute, &multiprocessors_, DeviceAttribute::kMultiprocessors, number_);
    // The image ends with a byte of 0 (kernel_image.h), as the driver wants it.
    Do(driver_->ModuleLoadDataEx, &module_, kernel_image_begin, 0u, nullptr, nullptr);
    Do(driver_->ModuleGetFunction, &step_, module_, "step");
    Do(driver_->ModuleGetFunction, &occupy_, module_, "occupy");
    Do(driver_->ModuleGetFunction, &watch_, module_, "watch");
    Do(driver_->CtxGetStreamPriorityRange, &least_, &greatest_);
    Do(driver_->StreamCreateWithPriority, &low_, kStreamNonBlocking, least_);
    Do(driver_->StreamCreateWithPriority, &high_, kStreamNonBlocking, greatest_);
    Do(driver_->MemAlloc, &out_, kSharedBytes);
  }
  void Close() {
    Do(driver_->MemFree, out_);
    Do(driver_->StreamDestroy, low_);
    Do(driver_->StreamDestroy, high_);
    Do(driver_->ModuleUnload, module_);
    Do(driver_->CtxSetCurrent, nullptr);
    Do(driver_->DevicePrimaryCtxRelease, number_);
  }

  // All processes count.
  double UsedBytes() const {
    std::size_t free = 0, total = 0;
    Do(driver_->MemGetInfo, &free, &total);
    return static_cast<double>(total - free);
  }

  void AContext() {
    Row("loading the driver", Ns(load_took_) / 1e6, "ms", "once");
    Row("making a context", Ns(context_took_) / 1e6, "ms", "once");
    Row("memory in use beside a bare context, of all processes", used_bare_ / (1 << 20), "MiB", "");
    Row("multiprocessors", multiprocessors_, "-",
        "driver of CUDA " + VersionText(driver_->version()));
    for (const MissingFeature& missing : driver_->missing_features())
      Row(std::string(FeatureName(missing.feature)), 0, "-", missing.why);
    Row("stream priorities", least_ - greatest_ + 1, "-", "");
    const double before = UsedBytes();
    const pid_t other = ::fork();
    if (other < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
    // Nothing of this process's driver may be used there: the program begins anew.
    if (other == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // It is stopped, and nobody else would end it.
      ::execl("/proc/self/exe", "gpu_facts", "--hold-context", nullptr);
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(other, &status, WUNTRACED);
    if (!WIFSTOPPED(status)) throw std::runtime_error("another process got no context");
    Row("memory of a context, in another process", (UsedBytes() - before) / (1 << 20), "MiB",
        "with a module and local memory as the driver makes it");
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
  }

  void Launch(Function kernel, unsigned blocks, unsigned threads, unsigned iterations,
              Stream stream) {
    std::array<void*, 2> parameters = {&out_, &iterations};
    Do(driver_->LaunchKernel, kernel, blocks, 1u, 1u, threads, 1u, 1u, 0u, stream,
       parameters.data(), nullptr);
  }

  Samples Repeat(const std::function<void()>& action) const {
    Samples samples;
    const auto end = Clock::now() + limit_;
    do {
      const auto begin = Clock::now();
      action();
      samples.Add(Clock::now() - begin);
    } while (Clock::now() < end);
    return samples;
  }

  // A memfd sealed as the server seals its staging arenas, in the GPU's hands.
  class Memfd {
   public:
    Memfd() : fd_(::memfd_create("gpu_facts", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
      if (fd_ < 0 || ::ftruncate(fd_, kSharedBytes) != 0 ||
          ::fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        throw std::runtime_error(std::string("no sealed memfd: ") + std::strerror(errno));
      }
      void* mapped = ::mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
      if (mapped == MAP_FAILED) throw std::runtime_error(std::strerror(errno));
      bytes_ = static_cast<std::byte*>(mapped);
    }
    ~Memfd() {
      ::munmap(bytes_, kSharedBytes);
      ::close(fd_);
    }
    Memfd(const Memfd&) = delete;
    Memfd& operator=(const Memfd&) = delete;
    std::byte* bytes() const { return bytes_; }
    int fd() const { return fd_; }

   private:
    const int fd_;
    std::byte* bytes_ = nullptr;
  };

  void SharedMemory() {
    const Memfd memory;
    for (std::size_t i = 0; i < kSharedBytes; ++i)
      memory.bytes()[i] = static_cast<std::byte>(i * 7 + i / 4096);
    const auto begin = Clock::now();
    Do(driver_->MemHostRegister, memory.bytes(), kSharedBytes, kHostPortable);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    Row("registering 16 MiB of a sealed memfd", took.count(), "us", "once");
    const auto copy = [&] {
      Do(driver_->MemcpyHtoDAsync, out_, memory.bytes(), kSharedBytes, high_);
      Do(driver_->StreamSynchronize, high_);
    };
    copy();
    const Samples copies = Repeat(copy);
    std::vector<std::byte> back(kSharedBytes);
    Do(driver_->MemcpyDtoHAsync, back.data(), out_, kSharedBytes, high_);
    Do(driver_->StreamSynchronize, high_);
    const bool is_right = std::memcmp(back.data(), memory.bytes(), kSharedBytes) == 0;
    Row("bytes that another process wrote meanwhile arrive", SeesOtherProcess(memory) ? 1 : 0, "-",
        "");
    Do(driver_->MemHostUnregister, memory.bytes());
    RegisterReadOnly(memory);
    Row("copying it to the GPU", static_cast<double>(kSharedBytes) / copies.Percentile(0.5), "GB/s",
        "");
    if (!is_right) throw std::runtime_error("what arrived is not what was there");
  }

  bool SeesOtherProcess(const Memfd& memory) {
    constexpr std::uint32_t kWritten = 0x5eed5eed;
    const pid_t other = ::fork();
    if (other < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
    if (other == 0) {
      // Nothing of the driver's may be touched here.
      void* mapped = ::mmap(nullptr, sizeof kWritten, PROT_WRITE, MAP_SHARED, memory.fd(), 0);
      if (mapped != MAP_FAILED) std::memcpy(mapped, &kWritten, sizeof kWritten);
      ::_exit(0);
    }
    ::waitpid(other, nullptr, 0);
    std::uint32_t arrived = 0;
    Do(driver_->MemcpyHtoDAsync, out_, memory.bytes(), sizeof arrived, high_);
    Do(driver_->MemcpyDtoHAsync, &arrived, out_, sizeof arrived, high_);
    Do(driver_->StreamSynchronize, high_);
    return arrived == kWritten;
  }
  void RegisterReadOnly(const Memfd& memory) {
    void* mapped = ::mmap(nullptr, kSharedBytes, PROT_READ, MAP_SHARED, memory.fd(), 0);
    if (mapped == MAP_FAILED) throw std::runtime_error(std::strerror(errno));
    const Code code =
        driver_->MemHostRegister(mapped, kSharedBytes, kHostPortable | kHostRegisterReadOnly);
    if (code == Code::kSuccess) Do(driver_->MemHostUnregister, mapped);
    ::munmap(mapped, kSharedBytes);
    Row("registering a mapping that may only be read", code == Code::kSuccess ? 1 : 0, "-",
        driver_->Explain("cuMemHostRegister", code));
  }

  void EndOfWork() {
    Event event = nullptr;
    Do(driver_->EventCreate, &event, kEventDisableTiming);
    const auto poll = [&] {
      for (;;) {
        const Code code = driver_->EventQuery(event);
        if (code == Code::kSuccess) return;
        if (code != Code::kNotReady) Do(driver_->EventQuery, event);
      }
    };
    Row("null kernel, end seen by polling an event", Repeat([&] {
          Launch(step_, 1, 1, 0, high_);
          Do(driver_->EventRecord, event, high_);
          poll();
        }));
    Row("null kernel, end seen by waiting for the stream", Repeat([&] {
          Launch(step_, 1, 1, 0, high_);
          Do(driver_->StreamSynchronize, high_);
        }));
    Do(driver_->EventDestroy, event);
    std::atomic<std::uint32_t> ends{0};
    std::uint32_t expected = 0;
    const HostFunction count = [](void* data) {
      static_cast<std::atomic<std::uint32_t>*>(data)->fetch_add(1, std::memory_order_release);
    };
    Row("null kernel, end seen by a host function", Repeat([&] {
          Launch(step_, 1, 1, 0, high_);
          Do(driver_->LaunchHostFunc, high_, count, static_cast<void*>(&ends));
          ++expected;
          // Acquire pairs with the function's release.
          while (ends.load(std::memory_order_acquire) != expected) {
          }
        }));
    if (driver_->Has(Feature::kStreamMemoryOperations)) WrittenWord();
  }

  void WrittenWord() {
    const Memfd memory;
    Do(driver_->MemHostRegister, memory.bytes(), kSharedBytes, kHostPortable | kHostDeviceMap);
    DeviceAddress address = 0;
    Do(driver_->MemHostGetDevicePointer, &address, memory.bytes(), 0u);
    const std::atomic_ref<std::uint32_t> word(*reinterpret_cast<std::uint32_t*>(memory.bytes()));
    std::uint32_t number = 0;
    Row("null kernel, end seen in a word of a memfd that the stream writes", Repeat([&] {
          Launch(step_, 1, 1, 0, high_);
          Do(driver_->StreamWriteValue32, high_, address, ++number, kWriteValueDefault);
          // Acquire pairs with the stream's write, which is ordered after the kernel.
          while (word.load(std::memory_order_acquire) != number) {
          }
        }));
    Do(driver_->StreamSynchronize, high_);
    Do(driver_->MemHostUnregister, memory.bytes());
  }

  // A kernel of one thread in the middle of a kernel that has 32 blocks per multiprocessor slot.
  // From the first launch of a chain until its end is known; the fastest of some tries.
  double ChainNs(unsigned iterations, int kernels, const std::function<void()>& between) {
    constexpr int kTries = 7;
    double fastest = 0;
    for (int i = 0; i < kTries; ++i) {
      const auto begin = Clock::now();
      for (int k = 0; k < kernels; ++k) {
        Launch(step_, 1, 1, iterations, low_);
        between();
      }
      Do(driver_->StreamSynchronize, low_);
      const double took = Ns(Clock::now() - begin);
      fastest = i == 0 ? took : std::min(fastest, took);
    }
    return fastest;
  }

  // How long the GPU idles between two kernels of a stream, and for how much longer with something
  // between them: to replace what tests/support/fake_cuda/costs.h assumes.
  void Chains() {
    constexpr int kLinks = 64;
    constexpr double kKernelNs =
        30'000;  // Longer than the calls for it, or the chain would starve.
    const auto nothing = [] {};
    unsigned iterations = 1000;
    while (iterations < (1u << 24) && ChainNs(iterations, kLinks, nothing) < kLinks * kKernelNs) {
      iterations *= 2;
    }
    const double bare = ChainNs(iterations, kLinks, nothing);
    // Half as many that are twice as long.
    Row("between kernels of a stream: idle",
        (bare - ChainNs(2 * iterations, kLinks / 2, nothing)) / (kLinks / 2) / 1e3, "us", "");
    const auto more = [&](const std::string& with, const std::function<void()>& between) {
      Row("between kernels of a stream: more with " + with,
          (ChainNs(iterations, kLinks, between) - bare) / kLinks / 1e3, "us", "");
    };
    Event timed = nullptr, untimed = nullptr;
    void* host = nullptr;
    Do(driver_->EventCreate, &timed, 0u);
    Do(driver_->EventCreate, &untimed, kEventDisableTiming);
    Do(driver_->MemHostAlloc, &host, std::size_t{4096}, kHostPortable);
    more("an untimed event", [&] { Do(driver_->EventRecord, untimed, low_); });
    more("a timed event", [&] { Do(driver_->EventRecord, timed, low_); });
    if (driver_->Has(Feature::kStreamMemoryOperations)) {
      more("a written word",
           [&] { Do(driver_->StreamWriteValue32, low_, out_ + 64, 1u, kWriteValueDefault); });
    }
    more("a memset of 4 bytes",
         [&] { Do(driver_->MemsetD32Async, out_ + 64, 1u, std::size_t{1}, low_); });
    more("a copy of 32 bytes to the host",
         [&] { Do(driver_->MemcpyDtoHAsync, host, out_, std::size_t{32}, low_); });
    Do(driver_->MemFreeHost, host);
    Do(driver_->EventDestroy, timed);
    Do(driver_->EventDestroy, untimed);
  }

  // Time of its thread that a call takes, in bursts that the driver takes without waiting.
  void Calls() {
    constexpr int kBurst = 64;
    const auto row = [&](const std::string& call, const std::function<void()>& make) {
      Samples samples;
      const auto end = Clock::now() + limit_ / 4;
      do {
        const auto begin = Clock::now();
        for (int i = 0; i < kBurst; ++i) make();
        samples.Add(Ns(Clock::now() - begin) / kBurst);
        Do(driver_->StreamSynchronize, low_);
      } while (Clock::now() < end);
      Row("call: " + call, samples.Percentile(0.5) / 1e3, "us", "mean of bursts, p50");
    };
    Event timed = nullptr;
    Do(driver_->EventCreate, &timed, 0u);
    Do(driver_->EventRecord, timed, low_);
    row("launch", [&] { Launch(step_, 1, 1, 1, low_); });
    row("record a timed event", [&] { Do(driver_->EventRecord, timed, low_); });
    row("query an event", [&] { Do(driver_->EventQuery, timed); });
    row("query a stream", [&] { Do(driver_->StreamQuery, low_); });
    row("memset of 4 bytes",
        [&] { Do(driver_->MemsetD32Async, out_ + 64, 1u, std::size_t{1}, low_); });
    Do(driver_->EventDestroy, timed);
  }

  void StreamPriority() {
    const unsigned blocks = LongBlocks();
    const unsigned iterations = LongIterations();
    Row("long low kernel", long_ns_ / 1e3, "us", std::to_string(blocks) + " blocks of 32 threads");
    Stream equal = nullptr;
    Do(driver_->StreamCreateWithPriority, &equal, kStreamNonBlocking, least_);
    for (const Stream stream : {equal, high_}) {
      const Samples samples = Beside(stream, iterations, blocks, Wanted() / 4);
      Row(stream == equal ? "null kernel beside it, equal stream priority"
                          : "null kernel beside it, highest stream priority",
          samples);
    }
    Do(driver_->StreamDestroy, equal);
  }
  unsigned LongBlocks() const { return static_cast<unsigned>(multiprocessors_) * 32 * 32; }
  Clock::duration Wanted() const {
    return std::min<Clock::duration>(limit_ / 10, std::chrono::milliseconds(10));
  }
  // Iterations of a kernel of LongBlocks() that takes as long as is Wanted(), or a little longer.
  unsigned LongIterations() {
    if (long_iterations_ > 0) return long_iterations_;
    unsigned iterations = 100;
    const auto long_kernel = [&] {
      Launch(occupy_, LongBlocks(), 32, iterations, low_);
      Do(driver_->StreamSynchronize, low_);
    };
    long_kernel();
    Samples whole;
    for (whole = Repeat1(long_kernel); whole.Percentile(0) < Ns(Wanted()) && iterations < 1'000'000;
         whole = Repeat1(long_kernel)) {
      iterations *= 2;
    }
    long_ns_ = whole.Percentile(0);
    return long_iterations_ = iterations;
  }
  static double Ns(Clock::duration duration) {
    return static_cast<double>(std::chrono::nanoseconds(duration).count());
  }
  static Samples Repeat1(const std::function<void()>& action) {
    Samples samples;
    const auto begin = Clock::now();
    action();
    samples.Add(Clock::now() - begin);
    return samples;
  }
  Samples Beside(Stream stream, unsigned iterations, unsigned blocks, Clock::duration head_start) {
    Samples samples;
    const auto end = Clock::now() + 2 * limit_;
    do {
      Launch(occupy_, blocks, 32, iterations, low_);
      const auto begin = Clock::now() + head_start;
      while (Clock::now() < begin) {
      }
      Launch(step_, 1, 1, 0, stream);
      Do(driver_->StreamSynchronize, stream);
      samples.Add(Clock::now() - begin);
      Do(driver_->StreamSynchronize, low_);
    } while (Clock::now() < end);
    return samples;
  }

  // A kernel whose blocks each look at a word first. Measures the cost of the look, and how soon
  // the kernel ends once the word is set, in device memory and in pinned host memory.
  void StopWord() {
    void* host = nullptr;
    DeviceAddress host_word = 0, device_word = 0;
    Do(driver_->MemHostAlloc, &host, std::size_t{4096}, kHostPortable | kHostDeviceMap);
    Do(driver_->MemHostGetDevicePointer, &host_word, host, 0u);
    Do(driver_->MemAlloc, &device_word, std::size_t{4096});
    const std::atomic_ref<std::uint32_t> word(*static_cast<std::uint32_t*>(host));
    const auto set_host = [&](std::uint32_t value) {
      word.store(value, std::memory_order_release);
    };
    // On the stream that is not the kernel's.
    const auto set_device = [&](std::uint32_t value) {
      if (driver_->Has(Feature::kStreamMemoryOperations)) {
        Do(driver_->StreamWriteValue32, high_, device_word, value, kWriteValueDefault);
      } else {
        Do(driver_->MemcpyHtoDAsync, device_word, &value, sizeof value, high_);
      }
      Do(driver_->StreamSynchronize, high_);
    };
    set_host(0);
    set_device(0);
    const double plain = Repeat([&] {
                           Launch(occupy_, LongBlocks(), 32, LongIterations(), low_);
                           Do(driver_->StreamSynchronize, low_);
                         }).Percentile(0.5);
    WatchedWord("device memory", device_word, set_device, plain);
    WatchedWord("pinned memory of the host", host_word, set_host, plain);
    Do(driver_->MemFree, device_word);
    Do(driver_->MemFreeHost, host);
  }
  void WatchedWord(const std::string& where, DeviceAddress word,
                   const std::function<void(std::uint32_t)>& set, double plain_ns) {
    unsigned iterations = LongIterations();
    std::array<void*, 3> parameters = {&out_, &iterations, &word};
    const auto launch = [&] {
      Do(driver_->LaunchKernel, watch_, LongBlocks(), 1u, 1u, 32u, 1u, 1u, 0u, low_,
         parameters.data(), nullptr);
    };
    const double watched = Repeat([&] {
                             launch();
                             Do(driver_->StreamSynchronize, low_);
                           }).Percentile(0.5);
    Row("blocks that look at a word in " + where + ", time / without", watched / plain_ns, "-", "");
    Samples stops;
    const auto end = Clock::now() + limit_;
    do {
      launch();
      const auto begin = Clock::now() + Wanted() / 4;
      while (Clock::now() < begin) {
      }
      set(1);
      Do(driver_->StreamSynchronize, low_);
      stops.Add(Clock::now() - begin);
      set(0);
    } while (Clock::now() < end);
    Row("the end of such a kernel after the word was set", stops);
  }

  // A null kernel of this thread while another makes calls that take long.
  void SlowCalls() {
    const Memfd memory;
    struct Call {
      std::string what;
      std::function<void()> make;
    };
    const std::array<Call, 5> calls = {
        Call{"nothing", [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }},
        Call{"a thread that loads modules",
             [this] {
               Module module = nullptr;
               Do(driver_->ModuleLoadDataEx, &module, kernel_image_begin, 0u, nullptr, nullptr);
               Do(driver_->ModuleUnload, module);
             }},
        Call{"a thread that maps 64 MiB", [this] { MapAndUnmap(); }},
        Call{"a thread that allocates 64 MiB",
             [this] {
               DeviceAddress address = 0;
               Do(driver_->MemAlloc, &address, kMappedBytes);
               Do(driver_->MemFree, address);
             }},
        Call{"a thread that registers 16 MiB", [this, &memory] {
               Do(driver_->MemHostRegister, memory.bytes(), kSharedBytes, kHostPortable);
               Do(driver_->MemHostUnregister, memory.bytes());
             }}};
    for (const Call& call : calls) {
      const Samples samples = BesideCalls(call.make);
      char note[96];
      std::snprintf(note, sizeof note, "p50 %.2f, worst %.2f", samples.Percentile(0.5) / 1e3,
                    samples.Percentile(1) / 1e3);
      Row("null kernel beside " + call.what + ", p99", samples.Percentile(0.99) / 1e3, "us", note);
    }
  }
  Samples BesideCalls(const std::function<void()>& call) {
    std::atomic<bool> is_over{false};
    std::string why;
    std::thread other([&] {
      try {
        Do(driver_->CtxSetCurrent, context_);
        while (!is_over.load(std::memory_order_relaxed)) call();
      } catch (const std::exception& error) {
        why = error.what();
      }
    });
    Samples samples;
    std::exception_ptr thrown;
    try {
      samples = Repeat([&] {
        Launch(step_, 1, 1, 0, high_);
        Do(driver_->StreamSynchronize, high_);
      });
    } catch (...) {
      thrown = std::current_exception();
    }
    is_over.store(true, std::memory_order_relaxed);
    other.join();
    if (thrown) std::rethrow_exception(thrown);
    if (!why.empty()) throw std::runtime_error(why);
    return samples;
  }
  void MapAndUnmap() const {
    AllocationProperties properties;
    properties.location.id = number_;
    AccessDescription access;
    access.location.id = number_;
    DeviceAddress address = 0;
    MemoryHandle handle = 0;
    Do(driver_->MemAddressReserve, &address, kMappedBytes, std::size_t{0}, DeviceAddress{0}, 0ULL);
    Do(driver_->MemCreate, &handle, kMappedBytes, &properties, 0ULL);
    Do(driver_->MemMap, address, kMappedBytes, std::size_t{0}, handle, 0ULL);
    Do(driver_->MemSetAccess, address, kMappedBytes, &access, std::size_t{1});
    Do(driver_->MemUnmap, address, kMappedBytes);
    Do(driver_->MemRelease, handle);
    Do(driver_->MemAddressFree, address, kMappedBytes);
  }

  void PendingLaunches() {
    constexpr int kMost = 4096;
    for (int i = 0; i < 5; ++i) Launch(occupy_, LongBlocks(), 32, LongIterations(), low_);
    int pending = 0;
    for (auto begin = Clock::now(); pending < kMost; ++pending, begin = Clock::now()) {
      Launch(step_, 1, 1, 0, low_);
      if (Clock::now() - begin > std::chrono::milliseconds(1)) break;
    }
    Do(driver_->StreamSynchronize, low_);
    Row("launches that a stream takes behind a long kernel before a call blocks", pending, "-",
        "at most " + std::to_string(kMost) + " were tried");
  }

  void AddressWindows() {
    constexpr std::size_t kWindow = std::size_t{128} << 30;
    std::vector<DeviceAddress> windows(64);
    std::size_t got = 0;
    while (got < windows.size() &&
           driver_->MemAddressReserve(&windows[got], kWindow, kWindow, 0, 0) == Code::kSuccess) {
      ++got;
    }
    for (std::size_t i = 0; i < got; ++i) Do(driver_->MemAddressFree, windows[i], kWindow);
    Row("windows of 128 GiB, aligned to their size", static_cast<double>(got), "-", "of 64");
  }

  void GreenContexts() {
    if (!driver_->Has(Feature::kGreenContexts)) return;
    Resource whole;
    Do(driver_->DeviceGetDevResource, number_, &whole, ResourceType::kMultiprocessors);
    for (const unsigned least : {8U, 16U, 32U, 64U}) {
      if (least > static_cast<unsigned>(multiprocessors_)) break;
      unsigned count = 0;
      Resource rest;
      Do(driver_->DevSmResourceSplitByCount, nullptr, &count, &whole, &rest, 0u, least);
      if (count == 0) continue;
      std::vector<Resource> groups(count);
      Do(driver_->DevSmResourceSplitByCount, groups.data(), &count, &whole, &rest, 0u, least);
      Row("groups of at least " + std::to_string(least) + " multiprocessors", count, "-",
          std::to_string(groups[0].sm.multiprocessors) + " each, " +
              std::to_string(rest.type == ResourceType::kMultiprocessors ? rest.sm.multiprocessors
                                                                         : 0) +
              " left");
      if (least == 8) MakeGreen(groups[0]);
    }
  }
  void MakeGreen(Resource group) {
    ResourceDescription description = nullptr;
    GreenContext green = nullptr;
    Do(driver_->DevResourceGenerateDesc, &description, &group, 1u);
    const auto begin = Clock::now();
    Do(driver_->GreenCtxCreate, &green, description, number_, kGreenContextDefaultStream);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    Row("making a green context", took.count(), "us", "once");
    try {
      UseGreen(green, group.sm.multiprocessors);
    } catch (...) {
      (void)driver_->GreenCtxDestroy(green);
      throw;
    }
    Do(driver_->GreenCtxDestroy, green);
  }
  // As --sm-limit uses it: kernels, memory and events of the primary context on its streams.
  void UseGreen(GreenContext green, unsigned multiprocessors) {
    Stream stream = nullptr;
    Do(driver_->GreenCtxStreamCreate, &stream, green, kStreamNonBlocking, least_);
    std::array<Event, 2> events = {};
    for (Event& event : events) Do(driver_->EventCreate, &event, 0u);
    const unsigned blocks = static_cast<unsigned>(multiprocessors_) * 32;
    std::array<float, 2> milliseconds = {};
    const std::array<Stream, 2> streams = {low_, stream};
    for (std::size_t i = 0; i < streams.size(); ++i) {
      Launch(occupy_, blocks, 32, 1000, streams.at(i));
      Do(driver_->EventRecord, events[0], streams.at(i));
      Launch(occupy_, blocks, 32, 1000, streams.at(i));
      Do(driver_->EventRecord, events[1], streams.at(i));
      Do(driver_->StreamSynchronize, streams.at(i));
      Do(driver_->EventElapsedTime, &milliseconds.at(i), events[0], events[1]);
    }
    Row("a kernel in a green context, of its time on the whole GPU",
        static_cast<double>(milliseconds[1] / std::max(milliseconds[0], 1e-6F)), "-",
        std::to_string(multiprocessors) + " of " + std::to_string(multiprocessors_) +
            " multiprocessors");
    for (const Event event : events) Do(driver_->EventDestroy, event);
    Do(driver_->StreamDestroy, stream);
  }

  const Clock::duration limit_;
  std::shared_ptr<const Driver> driver_;
  Clock::duration load_took_{};
  std::ofstream rows_;
  Clock::duration context_took_{};
  double used_bare_ = 0;
  DeviceNumber number_ = 0;
  Context context_ = nullptr;
  int multiprocessors_ = 0, least_ = 0, greatest_ = 0;
  Module module_ = nullptr;
  Function step_ = nullptr, occupy_ = nullptr, watch_ = nullptr;
  Stream low_ = nullptr, high_ = nullptr;
  DeviceAddress out_ = 0;
  unsigned long_iterations_ = 0;  // 0: not yet known, as the next.
  double long_ns_ = 0;
};

enum class Answer : std::uint8_t { kYes, kNo, kNever };

Answer AskInChild(const Facts::Question& question, const std::string& rows, long ms,
                  std::chrono::seconds limit) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
  if (child == 0) {
    int status = 1;
    try {
      status = Facts(rows, ms).Ask(question) ? 0 : 1;
    } catch (const std::exception& error) {
      Facts::NoteNoAnswer(rows, question, error.what());
    }
    std::exit(status);
  }
  const auto end = Clock::now() + limit;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      // One that hangs inside of the driver may outlive even this: it is not waited for.
      ::kill(child, SIGKILL);
      Facts::NoteNoAnswer(rows, question, "none after " + std::to_string(limit.count()) + " s");
      return Answer::kNever;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Answer::kYes;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 1) return Answer::kNo;  // It has said why.
  Facts::NoteNoAnswer(rows, question,
                      WIFEXITED(status) ? "exit status " + std::to_string(WEXITSTATUS(status))
                                        : "signal " + std::to_string(WTERMSIG(status)));
  return Answer::kNo;
}

bool AskAll(const std::string& rows, long ms, std::chrono::seconds limit) {
  // A GPU that does not answer twice in a row is taken to be gone.
  constexpr int kSilentMax = 2;
  bool all = true;
  int silent = 0;
  for (const Facts::Question& question : Facts::Questions()) {
    if (silent == kSilentMax) {
      Facts::NoteNoAnswer(rows, question, "not asked: the GPU no longer answers");
      continue;
    }
    const Answer answer = AskInChild(question, rows, ms, limit);
    silent = answer == Answer::kNever ? silent + 1 : 0;
    all &= answer == Answer::kYes;
  }
  return all;
}

}  // namespace
}  // namespace gpushared::testing

int main(int argc, char** argv) {
  std::string rows;
  long ms = 200;
  long limit = 10;
  if (argc == 2 && std::strcmp(argv[1], "--hold-context") == 0) {
    return gpushared::testing::Facts({}, 1).HoldContext();
  }
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--rows") == 0) rows = argv[i + 1];
    if (std::strcmp(argv[i], "--ms") == 0) ms = std::strtol(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--limit") == 0) limit = std::strtol(argv[i + 1], nullptr, 10);
  }
  if (argc % 2 == 0 || ms < 1 || limit < 1) {
    std::fprintf(stderr, "usage: gpu_facts [--rows FILE] [--ms N] [--limit N], N at least 1\n");
    return 2;
  }
  try {
    return gpushared::testing::AskAll(rows, ms, std::chrono::seconds(limit)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_facts: %s\n", error.what());
    return 1;
  }
}
