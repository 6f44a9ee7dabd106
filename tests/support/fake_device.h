// SPDX-License-Identifier: Apache-2.0
// A device whose durations are numbers: for tests of everything above device.h.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_DEVICE_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_DEVICE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gpushared/result.h"

#include "server/device/device.h"

namespace gpushared::testing {

// A simulated kernel's view of its launch when one of its blocks runs.
struct FakeBlock {
  device::Dim3 grid, block;
  std::uint64_t index = 0;  // 0 .. grid.Count() - 1; x runs fastest.
  std::span<const std::byte> parameters;
  std::span<std::byte> shared;  // Static and dynamic shared memory, zeroed.
  std::function<void(std::string_view)> print;
  // Host pointer to [address, address + bytes) of the launching space; null when that
  // is not mapped, upon which the kernel returns FakeFault().
  std::function<std::byte*(std::uint64_t address, std::uint64_t bytes)> at;
  // Same, of a module variable by name; null when the module has none of that name.
  std::function<std::byte*(std::string_view name)> variable;

  template <typename T>
  T Parameter(std::size_t offset) const;
};

inline constexpr std::chrono::nanoseconds kForEver = std::chrono::nanoseconds::max();

struct FakeKernel {
  // Runs one block; an error ends the launch. Empty: the kernel does nothing.
  std::function<Status(const FakeBlock&)> run;
  std::chrono::nanoseconds block_time = std::chrono::microseconds(1);  // kForEver: until killed.
  // When set, the duration of this block instead of `block_time`.
  std::function<std::chrono::nanoseconds(const FakeBlock&)> block_time_of;
  std::string unsupported;  // KernelInfo::unsupported.
};

struct FakeDeviceOptions {
  enum class Clock {
    kManual,   // Time stands still until AdvanceBy(); the calling thread runs the blocks.
    kVirtual,  // A thread of the device jumps to the next event while there is work.
  };
  Clock clock = Clock::kManual;
  std::string id = "fake:0";
  std::uint32_t multiprocessors = 1;  // Units that run at the same time.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  device::Preemption preemption = device::Preemption::kWithinCommand;
  std::chrono::nanoseconds copy_piece_time = std::chrono::microseconds(10);
  // By entry name. An entry of a module that is not named here does nothing and
  // takes 1 µs per block.
  std::map<std::string, FakeKernel, std::less<>> kernels;
  device::OutputFunction output;
};

// Implements all of device.h: real memory, real copies and fills, and modules parsed from
// real PTX (names, parameters, variables). Kernels are C++ functions, and time passes only
// as the clock says. Completions carry virtual times.
//
// Calls may come from any thread, also AdvanceBy.
class FakeDevice : public device::Device {
 public:
  static std::unique_ptr<FakeDevice> Create(FakeDeviceOptions options, device::WakeFunction wake);

  // Clock::kManual only. Runs what ends until then, in order of time.
  virtual void AdvanceBy(std::chrono::nanoseconds span) = 0;
  // Clock::kManual only. Advances to the end of the next unit; false when nothing
  // would ever end.
  virtual bool AdvanceToNextEvent() = 0;
  // Virtual time; starts at 0 of the device clock.
  virtual device::DeviceClock::time_point now() const = 0;
  // Submitted and not yet ended.
  virtual std::size_t work_count() const = 0;
};

template <typename T>
T FakeBlock::Parameter(std::size_t offset) const {
  T value{};
  if (offset + sizeof(T) <= parameters.size()) {
    __builtin_memcpy(&value, parameters.data() + offset, sizeof(T));
  }
  return value;
}

// A kernel's return value when `at` answered null.
Status FakeFault(std::string_view kernel, const FakeBlock& block, std::uint64_t address);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_DEVICE_H_
