// SPDX-License-Identifier: Apache-2.0
// Text output of kernels: printf and failed assertions.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRINT_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRINT_H_

#include <cstdint>

#include "server/device/cpu/executor/warp.h"

namespace gpushared::device::executor {

// Formats one lane's printf and passes the text to the launch's print function. `format` and
// `arguments` are the generic addresses of the format and of the packed arguments. Returns false
// after raising a fault because of an invalid address.
bool PrintFormatted(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t format,
                    std::uint64_t arguments, std::int32_t* conversions);

// Raises kAssert, which ends the run. The addresses refer to zero-terminated strings.
void RaiseAssert(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t message,
                 std::uint64_t file, std::uint32_t line, std::uint64_t function);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRINT_H_
