// SPDX-License-Identifier: Apache-2.0
// A decoded kernel as bytes: without a pointer, so that one process may decode it and another run
// it. Operations are numbers, addresses of module variables stay relative (AddressRow).

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
// Names have no control characters, and parameters lie in the argument buffer; else ok() of the
// reader is true and the result is not.
Result<KernelInfo> TakeKernelInfo(FlatReader& from);

// Whether it has no control characters: it gets into messages and logs.
bool IsPlainText(std::string_view text);
// Bytes of host memory.
std::uint64_t MemoryBytes(const Program& program);

// If a program cannot run, only its own account of itself is put.
void PutProgram(const Program& program, Flavour flavour, FlatWriter& to);
// The bytes may be anything: what comes back has been verified (verify.h). kInvalidArgument
// otherwise.
Result<std::unique_ptr<const Program>> TakeProgram(FlatReader& from, Flavour flavour);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_FLAT_CODE_H_
