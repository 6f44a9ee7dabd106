// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DECODE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DECODE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "gpushared/status.h"

#include "server/device/cpu/executor/program.h"

namespace gpushared::device::executor {

// Like DecodeModule, but passes one kernel after the other to `take`, in source order, so that
// `take` decides how many of them are in memory at the same time.
Status DecodeKernels(const ptx::Module& module, const ModuleLayout& layout,
                     std::uint64_t variables_base, Flavour flavour,
                     const std::function<void(std::unique_ptr<const Program>)>& take);

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DECODE_H_
