// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_CPU_DEVICE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "gpushared/result.h"

#include "server/device/cpu/executor_priority.h"
#include "server/device/device.h"

namespace gpushared::device {

struct CpuDeviceOptions {
  std::uint32_t number = 0;  // The N in "cpu:N".
  // At most kExecutorThreadsMax. 0 means one less than the number of cores, but at least 1.
  std::uint32_t executor_threads = 0;
  PrioritizeFunction prioritize = {};  // Sets an executor thread's priority; may be empty.
  // Memory of the device, shared by all clients; 0 means half of the usable memory.
  std::uint64_t memory_bytes = 0;
  OutputFunction output = {};  // May be empty.
};

inline constexpr std::uint32_t kExecutorThreadsMax = 256;

// Device for machines without a GPU. `executor_threads` threads execute PTX on memory of this
// process; each of them represents one multiprocessor.
//
// Work of the highest priority runs first, and the oldest first within a priority. Several threads
// share one launch, and work of other streams uses the threads that it leaves idle. Threads without
// work sleep. Spaces must be destroyed before their device.
Result<std::unique_ptr<Device>> CreateCpuDevice(CpuDeviceOptions options, WakeFunction wake);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_CPU_DEVICE_H_
