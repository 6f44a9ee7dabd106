// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/facts.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include "samples/kernels/kernel_image.h"

namespace gpushared::testing {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.

Facts::Facts(const std::string& rows, long ms) : limit_(std::chrono::milliseconds(ms)) {
  const auto begin = FactsClock::now();
  auto driver = Driver::Load();
  if (!driver.ok()) throw std::runtime_error(driver.status().ToString());
  driver_ = *std::move(driver);
  load_took_ = FactsClock::now() - begin;
  if (rows.empty()) return;
  rows_.open(rows, std::ios::app);
  if (!rows_) throw std::runtime_error("cannot write '" + rows + "'");
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
  context_took_ = TimeOf([&] { Do(driver_->DevicePrimaryCtxRetain, &context_, number_); });
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

const char* Facts::KernelImage() { return kernel_image_begin; }

void Facts::Launch(Function kernel, unsigned blocks, unsigned threads, unsigned iterations,
                   Stream stream) {
  std::array<void*, 2> parameters = {&out_, &iterations};
  Do(driver_->LaunchKernel, kernel, blocks, 1u, 1u, threads, 1u, 1u, 0u, stream, parameters.data(),
     nullptr);
}

Samples Facts::Repeat(const std::function<void()>& action, FactsClock::duration limit) {
  Samples samples;
  const auto end = FactsClock::now() + limit;
  do {
    samples.Add(TimeOf(action));
  } while (FactsClock::now() < end);
  return samples;
}

double Facts::UsedBytes() const {
  std::size_t free = 0, total = 0;
  Do(driver_->MemGetInfo, &free, &total);
  return static_cast<double>(total - free);
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
    return TimeOf([&] {
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

// ---- memfds and other processes

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
  // Nothing of this process's driver may be used there: the program begins anew.
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // It is stopped, and nobody else would end it.
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
