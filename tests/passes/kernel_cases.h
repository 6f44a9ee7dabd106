// SPDX-License-Identifier: Apache-2.0
// Launches whose results must be the same after each pass. An additional kernel is one line in
// kernel_cases.cpp.

#ifndef GPUSHARED_TESTS_PASSES_KERNEL_CASES_H_
#define GPUSHARED_TESTS_PASSES_KERNEL_CASES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "server/device/device.h"

namespace gpushared::testing {

// An argument of a kernel: a value, or a buffer of random contents.
struct Argument {
  enum class Kind : std::uint8_t { kValue, kZeros, kBytes, kWords, kFloats };
  Kind kind = Kind::kValue;
  std::uint32_t count = 0;              // Elements of a buffer.
  std::uint32_t below = 256;            // Words and floats are whole numbers below this.
  std::array<std::byte, 4> value = {};  // Bytes of a value.
};

struct Case {
  const char* file;
  const char* kernel;
  device::Dim3 grid, block;
  std::vector<Argument> arguments;
  std::uint32_t dynamic_shared_bytes = 0;
};

const std::vector<Case>& Cases();

// Initialises each buffer of a case in `memory` after its used part, and returns the parameters.
std::vector<std::byte> FillBuffers(const Case& what, std::byte* memory, std::uint64_t& used_bytes);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_PASSES_KERNEL_CASES_H_
