// SPDX-License-Identifier: Apache-2.0
// Serialization of a decoded kernel. Contains no pointers, so that one process may decode and
// another may run it: operations are numbers, and addresses of module variables are relative
// (AddressRow).

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_FLAT_CODE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_FLAT_CODE_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "gpushared/result.h"

#include "server/device/cpu/executor/program.h"
#include "server/device/flat.h"

namespace gpushared::device::executor {

void PutKernelInfo(const KernelInfo& info, FlatWriter& to);
// Fails for names with control characters and for parameters outside of the argument buffer. The
// reader's ok() then remains true.
Result<KernelInfo> TakeKernelInfo(FlatReader& from);

// Returns whether the text contains no control characters, as required for messages and logs.
bool IsPlainText(std::string_view text);
// Returns the program's size in host memory.
std::uint64_t MemoryBytes(const Program& program);

// For a program that cannot run, only its KernelInfo is written.
void PutProgram(const Program& program, Flavour flavour, FlatWriter& to);
// Validates arbitrary bytes (verify.h). Fails with kInvalidArgument.
Result<std::unique_ptr<const Program>> TakeProgram(FlatReader& from, Flavour flavour);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_FLAT_CODE_H_
