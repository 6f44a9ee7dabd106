// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_CPU_DEVICE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "gpushared/result.h"

#include "server/device/cpu/standing.h"
#include "server/device/device.h"

namespace gpushared::device {

struct CpuDeviceOptions {
  std::uint32_t number = 0;            // N of "cpu:N".
  std::uint32_t executor_threads = 0;  // 0 = cores - 1, at least 1; at most kExecutorThreadsMax.
  StandFunction stand = {};            // Of these threads; may be empty.
  std::uint64_t memory_bytes = 0;      // Of all clients together; 0 = half of what is usable.
  OutputFunction output = {};          // May be empty.
};

inline constexpr std::uint32_t kExecutorThreadsMax = 256;

// The device of a machine without a GPU. `executor_threads` threads execute PTX on memory of
// this process; each stands for one multiprocessor.
//
// Work of the highest priority is served first and, inside one, the oldest. Several threads
// share one launch, and work of other streams fills the threads that it leaves. Threads
// without work sleep. Spaces must be destroyed before their device.
Result<std::unique_ptr<Device>> CreateCpuDevice(CpuDeviceOptions options, WakeFunction wake);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CPU_DEVICE_H_
