// SPDX-License-Identifier: Apache-2.0
// What a kernel says in words: printf and failed assertions.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRINT_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRINT_H_

#include <cstdint>

#include "server/device/cpu/executor/warp.h"

namespace gpushared::device::executor {

// Formats one lane's printf (generic addresses of the format and of the packed
// arguments) and hands the text to the launch's print function. False after raising a
// fault because an address was bad.
bool PrintFormatted(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t format,
                    std::uint64_t arguments, std::int32_t* conversions);

// Ends the run with kAssert. The addresses are of zero-terminated strings.
void RaiseAssert(Warp& warp, const MicroOp* op, std::uint32_t lane, std::uint64_t message,
                 std::uint64_t file, std::uint32_t line, std::uint64_t function);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_PRINT_H_
