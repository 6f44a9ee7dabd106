// SPDX-License-Identifier: Apache-2.0
// Configuration and injected failures of the fake driver (fake_cuda.h lists the statements).

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_SCRIPT_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_SCRIPT_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/cuda_driver/driver_types.h"
#include "tests/support/fake_cuda/costs.h"

namespace gpushared::testing::fake_cuda {

struct FailRule {
  std::string call;
  // Number of the call, counted from now, that fails; 1 is the next one. Empty: all calls.
  std::optional<std::size_t> after;
  device::cuda::Code code = device::cuda::Code::kUnknown;
  bool late = false;
};

// When a GPU allocates the memory for all threads' local memory.
enum class LocalMemory : std::uint8_t { kNever, kAtOnce, kLazily };

struct Settings {
  int version = 13000;
  int devices = 1;
  std::map<int, std::string> uuids;
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;
  LocalMemory local_memory = LocalMemory::kNever;
  std::map<int, int> attributes;
  std::map<int, device::cuda::Code> attribute_fails;
  std::set<std::string, std::less<>> missing;
  std::list<FailRule> fails;
  std::list<FailRule> faults;                             // For kernels, with an empty `call`.
  std::map<std::string, long long, std::less<>> slow_ms;  // By the call's name.
  std::optional<device::cuda::Code> sticky;
  bool held = false;
  long long clock_ahead_ms = 0;  // Offset of the GPUs' clock from the host's.
  long long clock_faster_ppm = 0;
  long long kernel_ms = 0;  // Minimum duration of a kernel.
  std::optional<Costs> costs;
  bool has_lock = false;
  std::optional<std::uint64_t> wrong_copy_bytes;  // Copies of at least this size arrive wrong.
  bool words_lost = false;
  bool green_strict = false;
  std::uint8_t leftover = 0;
  std::string log_path;
  std::string control_path;
  bool leaks_ignored = false;

  Settings();
  // Applies the statements up to the first invalid one; returns a message about that one, or "".
  std::string Apply(std::string_view statements);

 private:
  bool ApplyOne(std::string_view statement);
};

// Counts the rules for the call down and returns the one that applies now, if any. Removes a rule
// after its last use.
std::optional<FailRule> Strike(std::list<FailRule>& rules, std::string_view call);

}  // namespace gpushared::testing::fake_cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_SCRIPT_H_
