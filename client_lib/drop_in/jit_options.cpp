// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/jit_options.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "client_lib/drop_in/log.h"

namespace gpushared::drop_in {
namespace {

// CUjit_option values that are checked.
constexpr int kThreadsPerBlock = 1;
constexpr int kOptimizationLevel = 7;
constexpr int kTarget = 9;
constexpr int kFallbackStrategy = 10;
constexpr int kCacheMode = 14;
constexpr int kLastOption = 34;

constexpr std::uintptr_t kOptimizationLevelMax = 4;
constexpr std::uintptr_t kFallbackMax = 1;   // CUjit_fallback.
constexpr std::uintptr_t kCacheModeMax = 2;  // CUjit_cacheMode.

// CUjit_target. Architecture-specific and family targets add a base to some of them.
constexpr auto kTargets =
    std::to_array<std::uintptr_t>({30, 32, 35, 37, 50, 52, 53,  60,  61,  62,  70, 72,
                                   75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121});
constexpr std::uintptr_t kAcceleratedBase = 0x10000;
constexpr std::uintptr_t kFamilyBase = 0x20000;

bool IsTarget(std::uintptr_t value) {
  const std::uintptr_t base = value & ~std::uintptr_t{0xffff};
  const std::uintptr_t number = value - base;
  if (!std::ranges::binary_search(kTargets, number)) return false;
  return base == 0 || (base == kAcceleratedBase && number >= 90) ||
         (base == kFamilyBase && number >= 100);
}

bool IsInRange(int option, std::uintptr_t value) {
  switch (option) {
    case kOptimizationLevel:
      return value <= kOptimizationLevelMax;
    case kTarget:
      return IsTarget(value);
    case kFallbackStrategy:
      return value <= kFallbackMax;
    case kCacheMode:
      return value <= kCacheModeMax;
    default:
      return true;
  }
}

}  // namespace

Code CheckJitOptions(JitUse use, unsigned count, const JitOption* options, void* const* values) {
  bool has_threads = false, has_target = false;
  for (unsigned i = 0; i < count; ++i) {
    const auto option = static_cast<int>(options[i]);
    if (option < 0 || option > kLastOption) {
      return Reject(Code::kInvalidValue, "JIT option " + std::to_string(option) +
                                             " does not exist: valid options are 0 to " +
                                             std::to_string(kLastOption) + " (CUjit_option)");
    }
    // A 32-bit option leaves the upper half of its slot unspecified.
    const auto value = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(values[i]));
    if (!IsInRange(option, value)) {
      return Reject(Code::kInvalidValue, "JIT option " + std::to_string(option) + " has no value " +
                                             std::to_string(value));
    }
    if (use == JitUse::kLink && option == kFallbackStrategy) {
      return Reject(Code::kInvalidValue, "CU_JIT_FALLBACK_STRATEGY is not an option of links");
    }
    has_threads = has_threads || option == kThreadsPerBlock;
    has_target = has_target || option == kTarget;
  }
  if (!has_threads || !has_target) return Code::kSuccess;
  return Reject(Code::kInvalidValue,
                "CU_JIT_TARGET cannot be combined with CU_JIT_THREADS_PER_BLOCK");
}

}  // namespace gpushared::drop_in
