// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/gpu/facts.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace gpushared::testing {
namespace {

using namespace device::cuda;  // NOLINT(google-build-using-namespace): this file is about it.

class MemoryFacts : public Facts {
 public:
  using Facts::Facts;

  void SharedMemory() {
    const Memfd memory(kSharedBytes);
    for (std::size_t i = 0; i < kSharedBytes; ++i)
      memory.bytes()[i] = static_cast<std::byte>(i * 7 + i / 4096);
    const auto registering =
        GetTime([&] { Do(driver_->MemHostRegister, memory.bytes(), kSharedBytes, kHostPortable); });
    Row("registering 16 MiB of a sealed memfd", Ns(registering) / 1e3, "us", "once");
    const double registered = CopyRate(memory.bytes());
    std::vector<std::byte> back(kSharedBytes);
    Do(driver_->MemcpyDtoHAsync, back.data(), out_, kSharedBytes, high_);
    Do(driver_->StreamSynchronize, high_);
    const bool is_right = std::memcmp(back.data(), memory.bytes(), kSharedBytes) == 0;
    Rule("bytes that another process wrote meanwhile arrive", SeesOtherProcess(memory));
    const auto returning = GetTime([&] { Do(driver_->MemHostUnregister, memory.bytes()); });
    Row("taking the registration back", Ns(returning) / 1e3, "us", "once");
    RegisterReadOnly(memory);
    void* pinned = nullptr;
    Do(driver_->MemHostAlloc, &pinned, kSharedBytes, kHostPortable);
    const double of_driver = CopyRate(pinned);
    Do(driver_->MemFreeHost, pinned);
    Row("copying it to the GPU", registered, "GB/s", "");
    Row("copying as much of the driver's pinned memory to the GPU", of_driver, "GB/s", "");
    Cost("host_bytes_per_us", of_driver * 1e3, "16 MiB of the driver's pinned memory to the GPU");
    for (const unsigned mebibytes : {1U, 256U}) RegisterCosts(mebibytes);
    Rule("a registered memfd that nobody else may map for writing any more is still written",
         IsWrittenWhenSealed());
    if (!is_right) throw std::runtime_error("what arrived is not what was there");
  }

  void MappedMemory() {
    std::size_t granule = 0;
    AllocationProperties properties;
    properties.location.id = number_;
    Do(driver_->MemGetAllocationGranularity, &granule, &properties, Granularity::kMinimum);
    Row("granularity of mappings", static_cast<double>(granule) / (1 << 20), "MiB", "");
    CallsOfAPiece(granule);
    for (const unsigned mebibytes : {2U, 64U, 256U}) Costs(mebibytes);
    BesideAKernel();
    Zeroing();
  }

 private:
  double CopyRate(const void* from) {
    const auto copy = [&] {
      Do(driver_->MemcpyHtoDAsync, out_, from, kSharedBytes, high_);
      Do(driver_->StreamSynchronize, high_);
    };
    copy();
    return static_cast<double>(kSharedBytes) / Repeat(copy, limit_ / 2).Percentile(0.5);
  }

  bool SeesOtherProcess(const Memfd& memory) {
    constexpr std::uint32_t kWritten = 0x5eed5eed;
    const pid_t other = ::fork();
    if (other < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
    if (other == 0) {
      // The child must not use any object of the driver.
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

  // Returns whether the GPU can still write registered memory after F_SEAL_FUTURE_WRITE, the seal
  // of the rings that clients may only read.
  bool IsWrittenWhenSealed() {
    constexpr std::size_t kBytes = 4096;
    const Memfd memory(kBytes, false);
    Do(driver_->MemHostRegister, memory.bytes(), kBytes, kHostPortable);
    if (::fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0)
      throw std::runtime_error(std::string("no seal: ") + std::strerror(errno));
    Do(driver_->MemsetD32Async, out_, 0x5ea1edU, kBytes / 4, high_);
    Do(driver_->MemcpyDtoHAsync, memory.bytes(), out_, kBytes, high_);
    Do(driver_->StreamSynchronize, high_);
    std::uint32_t word = 0;
    std::memcpy(&word, memory.bytes() + kBytes - sizeof word, sizeof word);
    Do(driver_->MemHostUnregister, memory.bytes());
    return word == 0x5ea1ed;
  }

  // The server maps pieces of this size.
  void CallsOfAPiece(std::size_t bytes) {
    AllocationProperties properties;
    properties.location.id = number_;
    AccessDescription access;
    access.location.id = number_;
    DeviceAddress at = 0;
    MemoryHandle handle = 0;
    Do(driver_->MemAddressReserve, &at, bytes, std::size_t{0}, DeviceAddress{0}, 0ULL);
    Samples create, map, open, unmap, release;
    const auto timed = [](Samples& samples, const auto& call) { samples.Add(GetTime(call)); };
    const auto end = FactsClock::now() + limit_ / 4;
    do {
      timed(create, [&] { Do(driver_->MemCreate, &handle, bytes, &properties, 0ULL); });
      timed(map, [&] { Do(driver_->MemMap, at, bytes, std::size_t{0}, handle, 0ULL); });
      timed(open, [&] { Do(driver_->MemSetAccess, at, bytes, &access, std::size_t{1}); });
      timed(unmap, [&] { Do(driver_->MemUnmap, at, bytes); });
      timed(release, [&] { Do(driver_->MemRelease, handle); });
    } while (FactsClock::now() < end);
    Do(driver_->MemAddressFree, at, bytes);
    const auto tell = [&](const char* call, const Samples& samples, const char* cost) {
      Row("call: " + std::string(call) + " of the smallest piece", samples);
      Cost(cost, samples.Percentile(0.5), call);
    };
    tell("cuMemCreate", create, "call_create");
    tell("cuMemMap", map, "call_map");
    tell("cuMemSetAccess", open, "call_access");
    tell("cuMemUnmap", unmap, "call_unmap");
    tell("cuMemRelease", release, "call_release");
  }

  void RegisterCosts(unsigned mebibytes) {
    const Memfd memory(std::size_t{mebibytes} << 20U);
    std::fill_n(memory.bytes(), memory.size(), std::byte{1});  // Makes its pages resident.
    const auto registering = GetTime(
        [&] { Do(driver_->MemHostRegister, memory.bytes(), memory.size(), kHostPortable); });
    const auto returning = GetTime([&] { Do(driver_->MemHostUnregister, memory.bytes()); });
    const std::string of = std::to_string(mebibytes) + " MiB of a sealed memfd";
    Row("registering " + of, Ns(registering) / 1e3, "us", "once; its pages are there");
    Row("taking the registration back, " + of, Ns(returning) / 1e3, "us", "once");
  }

  void Zeroing() {
    constexpr std::size_t kMore = 4 * kMappedBytes;
    DeviceAddress memory = 0;
    Do(driver_->MemAlloc, &memory, kMore);
    const auto fill = [&](std::size_t bytes) {
      return Repeat(
                 [&] {
                   Do(driver_->MemsetD32Async, memory, 0u, bytes / 4, high_);
                   Do(driver_->StreamSynchronize, high_);
                 },
                 limit_ / 4)
          .Percentile(0.5);
    };
    const double some = fill(kMappedBytes), more = fill(kMore);
    Do(driver_->MemFree, memory);
    Row("zeroing 64 MiB", static_cast<double>(kMappedBytes) / some, "GB/s", "");
    // Subtracts the fixed cost of a call and its completion.
    if (more <= some) return NoRow("zeroing 192 MiB more", "GB/s", "it takes no longer");
    const double rate = static_cast<double>(kMore - kMappedBytes) / (more - some);
    Row("zeroing 192 MiB more", rate, "GB/s", "");
    Cost("device_bytes_per_us", rate * 1e3, "zeroing 256 MiB against 64 MiB");
  }

  void Costs(unsigned mebibytes) {
    Samples maps, unmaps;
    const auto end = FactsClock::now() + limit_ / 4;
    do {
      Mapping made;
      maps.Add(GetTime([&] { made = Map(std::size_t{mebibytes} << 20); }));
      unmaps.Add(GetTime([&] { Unmap(made); }));
    } while (FactsClock::now() < end);
    const std::string size = std::to_string(mebibytes) + " MiB";
    Row("mapping " + size, maps);
    Row("unmapping " + size, unmaps);
  }

  // Calls that wait for running work would block every thread that submits work in the meantime.
  void BesideAKernel() {
    Samples maps, unmaps;
    const unsigned iterations = LongIterations();
    const auto end = FactsClock::now() + limit_ / 2;
    do {
      Mapping made;
      Launch(occupy_, LongBlocks(), 32, iterations, low_);
      maps.Add(GetTime([&] { made = Map(kMappedBytes); }));
      Do(driver_->StreamSynchronize, low_);
      Launch(occupy_, LongBlocks(), 32, iterations, low_);
      unmaps.Add(GetTime([&] { Unmap(made); }));
      Do(driver_->StreamSynchronize, low_);
    } while (FactsClock::now() < end);
    const std::string beside =
        " 64 MiB beside a kernel of " + std::to_string(std::lround(long_ns() / 1e3)) + " us";
    Row("mapping" + beside, maps);
    Row("unmapping" + beside, unmaps);
  }
};

}  // namespace

std::vector<Question> MemoryQuestions() {
  return {GetQuestion("sealed shared memory", &MemoryFacts::SharedMemory),
          GetQuestion("mapping memory", &MemoryFacts::MappedMemory)};
}

}  // namespace gpushared::testing
