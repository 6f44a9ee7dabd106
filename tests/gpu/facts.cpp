// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/facts.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>

#include "samples/kernels/kernel_image.h"
#include "tests/support/fake_cuda/costs.h"

namespace gpushared::testing {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.

namespace {

void OpenToAppend(std::ofstream& file, const std::string& path) {
  if (path.empty()) return;
  file.open(path, std::ios::app);
  if (!file) throw std::runtime_error("cannot write '" + path + "'");
}

}  // namespace

Facts::Facts(const FactsOptions& options) : limit_(std::chrono::milliseconds(options.ms)) {
  const auto begin = FactsClock::now();
  auto driver = Driver::Load();
  if (!driver.ok()) throw std::runtime_error(driver.status().ToString());
  driver_ = *std::move(driver);
  load_took_ = FactsClock::now() - begin;
  OpenToAppend(rows_, options.rows);
  OpenToAppend(costs_, options.costs);
}

bool Facts::Ask(const std::string& name, const std::function<void()>& question) {
  std::string why;
  try {
    Open();
    question();
    if (!is_dead_) Close();
  } catch (const std::exception& error) {
    why = error.what();
    std::fprintf(stderr, "gpu_facts: %s: %s\n", name.c_str(), why.c_str());
  }
  Rule(name + ": answered", why.empty(), why);
  return why.empty();
}

void Facts::HoldContext() {
  Open();
  ::raise(SIGSTOP);
}

void Facts::Open() {
  Do(driver_->DeviceGet, &number_, 0);
  context_took_ = GetTime([&] { Do(driver_->DevicePrimaryCtxRetain, &context_, number_); });
  Do(driver_->CtxSetCurrent, context_);
  used_bare_ = UsedBytes();
  Do(driver_->DeviceGetAttribute, &multiprocessors_, DeviceAttribute::kMultiprocessors, number_);
  Do(driver_->ModuleLoadDataEx, &module_, KernelImage(), 0u, nullptr, nullptr);
  Do(driver_->ModuleGetFunction, &step_, module_, "step");
  Do(driver_->ModuleGetFunction, &occupy_, module_, "occupy");
  Do(driver_->ModuleGetFunction, &watch_, module_, "watch");
  Do(driver_->ModuleGetFunction, &wide_, module_, "wide");
  Do(driver_->CtxGetStreamPriorityRange, &least_, &greatest_);
  Do(driver_->StreamCreateWithPriority, &low_, kStreamNonBlocking, least_);
  Do(driver_->StreamCreateWithPriority, &high_, kStreamNonBlocking, greatest_);
  Do(driver_->MemAlloc, &out_, kSharedBytes);
}

void Facts::Close() {
  Do(driver_->MemFree, out_);
  Do(driver_->StreamDestroy, low_);
  Do(driver_->StreamDestroy, high_);
  Do(driver_->ModuleUnload, module_);
  if (fact_module_ != nullptr) Do(driver_->ModuleUnload, fact_module_);
  Do(driver_->CtxSetCurrent, nullptr);
  Do(driver_->DevicePrimaryCtxRelease, number_);
}

void Facts::Row(const std::string& what, double value, const std::string& unit,
                const std::string& note, const std::string& kind, const std::string& must) {
  std::printf("%-64s %12.6g %s %s\n", what.c_str(), value, unit.c_str(), note.c_str());
  if (!rows_.is_open()) return;
  rows_ << "facts\t" << what << '\t' << value << '\t' << unit << '\t' << kind << '\t' << must
        << '\t' << note << '\n'
        << std::flush;
}

void Facts::Row(const std::string& what, const Samples& samples) {
  char note[96];
  std::snprintf(note, sizeof note, "p99 %.2f, %zu samples", samples.Percentile(0.99) / 1e3,
                samples.count());
  Row(what + ", p50", samples.Percentile(0.5) / 1e3, "us", note);
}

void Facts::NoRow(const std::string& what, const std::string& unit, const std::string& why) {
  std::printf("%-64s %12s %s %s\n", what.c_str(), "none", unit.c_str(), why.c_str());
  if (!rows_.is_open()) return;
  rows_ << "facts\t" << what << "\tnone\t" << unit << "\tfact\t-\t" << why << '\n' << std::flush;
}

void Facts::CodeRow(const std::string& what, const char* call, Code code) {
  Row(what, static_cast<int>(code), "code", driver_->Explain(call, code));
  if (EndsContext(code)) SetDead();
}

void Facts::Cost(const std::string& name, double value, const std::string& what) {
  // Checks the name here, because the fake driver would reject the whole file.
  if (fake_cuda::Costs().Named(name) == nullptr)
    throw std::logic_error("the fake driver has no cost '" + name + "'");
  if (!costs_.is_open()) return;
  // The difference of two measurements may be negative if the cost is close to zero.
  costs_ << name << ' ' << std::llround(std::max(value, 0.0)) << "  # " << what << '\n'
         << std::flush;
}

const char* Facts::KernelImage() { return kernel_image_begin; }

void Facts::Launch(Function kernel, unsigned blocks, unsigned threads, unsigned iterations,
                   Stream stream) {
  std::array<void*, 2> parameters = {&out_, &iterations};
  Do(driver_->LaunchKernel, kernel, blocks, 1u, 1u, threads, 1u, 1u, 0u, stream, parameters.data(),
     nullptr);
}

Function Facts::FactKernel(const char* name) {
  if (fact_module_ == nullptr)
    Do(driver_->ModuleLoadDataEx, &fact_module_, FactFatbin(), 0u, nullptr, nullptr);
  Function kernel = nullptr;
  Do(driver_->ModuleGetFunction, &kernel, fact_module_, name);
  return kernel;
}

void* Facts::FindSymbol(const char* name, int version) {
  using Get = Code (*)(const char*, void**, int, std::uint64_t, ProcAddressResult*);
  void* const library = ::dlopen(Driver::kLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  const auto get = reinterpret_cast<Get>(::dlsym(library, "cuGetProcAddress_v2"));
  void* found = nullptr;
  ProcAddressResult how = ProcAddressResult::kNotFound;
  if (get == nullptr || get(name, &found, version, 0, &how) != Code::kSuccess) return nullptr;
  return how == ProcAddressResult::kFound ? found : nullptr;
}

Facts::Spin Facts::CalibratedSpin(unsigned blocks, std::chrono::nanoseconds length,
                                  const Words& words) {
  constexpr unsigned kRoundsMost = 1u << 24;
  std::array<Event, 2> events{};
  for (Event& event : events) Do(driver_->EventCreate, &event, 0u);
  Spin spin{.blocks = blocks, .ns = static_cast<unsigned>(length.count()), .rounds = 32};
  const auto is_long = [&] {
    float milliseconds = 0;
    Do(driver_->EventRecord, events[0], low_);
    LaunchSpin(spin, words, 0, low_);
    Do(driver_->EventRecord, events[1], low_);
    Do(driver_->StreamSynchronize, low_);
    Do(driver_->EventElapsedTime, &milliseconds, events[0], events[1]);
    return double{milliseconds} * 1e6 >= Ns(length);
  };
  do {
    spin.rounds *= 2;
  } while (spin.rounds < kRoundsMost && !(is_long() && is_long()));
  for (const Event event : events) Do(driver_->EventDestroy, event);
  // With more rounds than needed, the timer ends the kernel even after the GPU's clock has risen.
  spin.rounds *= 2;
  return spin;
}

void Facts::LaunchSpin(const Spin& spin, const Words& words, std::size_t number, Stream stream) {
  if (spin_ == nullptr) spin_ = FactKernel("spin");
  Spin parameters = spin;
  // Each number has its own 64 bytes after the word to which kernels write their results.
  DeviceAddress first = out_ + 64 * (number + 1), begun = words.GetAddress(number);
  Do(driver_->MemsetD32Async, first, 0u, std::size_t{2}, stream);
  std::array<void*, 5> pointers = {&first, &begun, &parameters.ns, &parameters.rounds, &out_};
  Do(driver_->LaunchKernel, spin_, spin.blocks, 1u, 1u, 1u, 1u, 1u, 0u, stream, pointers.data(),
     nullptr);
}

Samples Facts::Repeat(const std::function<void()>& action, FactsClock::duration limit) {
  Samples samples;
  const auto end = FactsClock::now() + limit;
  do {
    samples.Add(GetTime(action));
  } while (FactsClock::now() < end);
  return samples;
}

double Facts::UsedBytes() const {
  std::size_t free = 0, total = 0;
  Do(driver_->MemGetInfo, &free, &total);
  return static_cast<double>(total - free);
}

int Facts::Attribute(DeviceAttribute which) const {
  int value = 0;
  Do(driver_->DeviceGetAttribute, &value, which, number_);
  return value;
}

std::size_t Facts::ThreadsAtOnce() const {
  return static_cast<std::size_t>(multiprocessors_) *
         static_cast<std::size_t>(Attribute(DeviceAttribute::kThreadsPerMultiprocessorMax));
}

std::size_t Facts::ServersStackBytes() const {
  std::size_t total = 0;
  Do(driver_->DeviceTotalMem, &total, number_);
  return std::clamp(std::bit_floor(total / 64 / ThreadsAtOnce()), std::size_t{4096},
                    std::size_t{16384});
}

Facts::Mapping Facts::Map(std::size_t bytes) const {
  AllocationProperties properties;
  properties.location.id = number_;
  AccessDescription access;
  access.location.id = number_;
  Mapping made{.bytes = bytes};
  Do(driver_->MemAddressReserve, &made.address, bytes, std::size_t{0}, DeviceAddress{0}, 0ULL);
  Do(driver_->MemCreate, &made.handle, bytes, &properties, 0ULL);
  Do(driver_->MemMap, made.address, bytes, std::size_t{0}, made.handle, 0ULL);
  Do(driver_->MemSetAccess, made.address, bytes, &access, std::size_t{1});
  return made;
}

void Facts::Unmap(const Mapping& mapping) const {
  Do(driver_->MemUnmap, mapping.address, mapping.bytes);
  Do(driver_->MemRelease, mapping.handle);
  Do(driver_->MemAddressFree, mapping.address, mapping.bytes);
}

unsigned Facts::LongIterations() {
  if (long_iterations_ > 0) return long_iterations_;
  unsigned iterations = 100;
  const auto time = [&] {
    return GetTime([&] {
      Launch(occupy_, LongBlocks(), 32, iterations, low_);
      Do(driver_->StreamSynchronize, low_);
    });
  };
  (void)time();
  auto took = time();
  for (; took < Wanted() && iterations < 1'000'000; took = time()) iterations *= 2;
  long_ns_ = Ns(took);
  return long_iterations_ = iterations;
}

// ---- host memory, and other processes

Facts::Words::Words(const Facts& facts) : facts_(facts) {
  constexpr std::size_t kBytes = 4096;
  void* bytes = nullptr;
  facts_.Do(facts_.driver_->MemHostAlloc, &bytes, kBytes, kHostPortable | kHostDeviceMap);
  std::memset(bytes, 0, kBytes);
  bytes_ = static_cast<std::uint32_t*>(bytes);
  facts_.Do(facts_.driver_->MemHostGetDevicePointer, &address_, bytes, 0u);
}

Facts::Words::~Words() { (void)facts_.driver_->MemFreeHost(bytes_); }

Facts::Memfd::Memfd(std::size_t bytes, bool is_closed)
    : size_(bytes), fd_(::memfd_create("gpu_facts", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | (is_closed ? F_SEAL_SEAL : 0);
  if (fd_ < 0 || ::ftruncate(fd_, static_cast<off_t>(size_)) != 0 ||
      ::fcntl(fd_, F_ADD_SEALS, seals) != 0) {
    throw std::runtime_error(std::string("no sealed memfd: ") + std::strerror(errno));
  }
  void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error(std::strerror(errno));
  bytes_ = static_cast<std::byte*>(mapped);
}

Facts::Memfd::~Memfd() {
  ::munmap(bytes_, size_);
  ::close(fd_);
}

Facts::OtherContext::OtherContext() : pid_(::fork()) {
  if (pid_ < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
  // Executes the program again, because a forked child must not use this process's driver state.
  if (pid_ == 0) {
    // The child is suspended, so it would never exit on its own.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execl("/proc/self/exe", "gpu_facts", "--hold-context", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);
  if (WIFSTOPPED(status)) return;
  pid_ = -1;
  throw std::runtime_error("another process got no context");
}

Facts::OtherContext::~OtherContext() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace gpushared::testing
