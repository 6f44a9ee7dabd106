// SPDX-License-Identifier: Apache-2.0
// Lists the available device kinds and creates devices. A device is named KIND:NUMBER ("cpu:0",
// "cuda:1"), or by the UUID of a MIG instance ("MIG-...").

#ifndef GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_
#define GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "gpushared/result.h"

#include "server/device/code_compiler.h"
#include "server/device/cpu/executor_priority.h"
#include "server/device/cuda/completion_kind.h"
#include "server/device/device.h"
#include "server/device/isolation.h"

namespace gpushared::device {

// Settings of an operator for all devices; each kind ignores those that do not apply to it.
struct DeviceOptions {
  // For cpu: number of executor threads; 0 means one less than the number of cores, at least 1.
  std::uint32_t executor_threads = 0;
  // For cpu: memory shared by all clients; 0 means half of the usable memory.
  std::uint64_t memory_bytes = 0;
  OutputFunction output = {};          // If empty, the output of kernels is dropped.
  PrioritizeFunction prioritize = {};  // For cpu: prioritizes the executor threads; may be empty.
  cuda::CompletionKind cuda_completion = cuda::CompletionKind::kEvents;
  SmLimits sm_limits = {};                 // For cuda; a cpu device rejects them.
  MakeCodeCompiler make_compiler = {};     // For cuda; required for preemptible launches.
  std::function<void()> await_quiet = {};  // For cuda; see CudaDeviceOptions.
  // Messages for operators; may be empty. `note` receives messages about modules, from any thread.
  std::function<void(const std::string&)> warn = {};
  std::function<void(const std::string&)> note = {};
};

// Creates the device named `id`. If no kind recognizes the name, fails with kNotFound and lists the
// existing names.
Result<std::unique_ptr<Device>> CreateDevice(std::string_view id, const DeviceOptions& options,
                                             WakeFunction wake);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_
