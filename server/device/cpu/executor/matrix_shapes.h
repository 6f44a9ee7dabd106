// SPDX-License-Identifier: Apache-2.0
// Shapes of matrix instructions, and the registers of their fragments.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MATRIX_SHAPES_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MATRIX_SHAPES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "server/device/cpu/executor/code.h"

namespace gpushared::device::executor {

// In this file, types are in PTX spelling: "f16", "tf32", "s8".

// Returns the number of elements of a type in one register.
std::uint32_t PackedIn(const std::string& type);
bool IsByte(const std::string& type);
// Returns whether m, n and k of the call are a supported shape of mma.sync (HasMma) or wmma
// (HasWmma) for factors of this type.
bool HasMma(const MatrixCall& call, const std::string& type);
bool HasWmma(const MatrixCall& call, const std::string& type);
// Returns whether products of type `product` may be added to accumulators of type `type`.
bool IsAccumulator(const std::string& product, const std::string& type);

// Numbers of registers of the fragments of mma.
struct FragmentCounts {
  std::size_t a = 0, b = 0, c = 0, d = 0;
};
FragmentCounts MmaRegisters(const MatrixCall& call, const std::string& product,
                            const std::string& accumulator);
// Returns the number of registers of the wmma fragment `which`: 'a', 'b', 'c' or 'd'. As on
// hardware, fragments 'a' and 'b' of f16 have 8 registers for every shape, so that most of these
// fragments hold each element more than once.
std::size_t WmmaRegisters(const MatrixCall& call, char which, const std::string& type);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_MATRIX_SHAPES_H_
