// SPDX-License-Identifier: Apache-2.0
// Which kinds of devices there are, and how to make one. A device is named KIND:NUMBER ("cpu:0",
// "cuda:1"), a MIG instance by its UUID ("MIG-...").

#ifndef GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_
#define GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "gpushared/result.h"

#include "server/device/code_compiler.h"
#include "server/device/cpu/standing.h"
#include "server/device/cuda/completion_kind.h"
#include "server/device/device.h"
#include "server/device/isolation.h"

namespace gpushared::device {

// What an operator may choose for every device; a kind ignores what does not concern it.
struct DeviceOptions {
  std::uint32_t executor_threads = 0;  // cpu: threads that execute; 0 = cores - 1, at least 1.
  std::uint64_t memory_bytes = 0;      // cpu: for all its clients; 0 = half of what is usable.
  OutputFunction output = {};          // May be empty: what kernels print is then dropped.
  StandFunction stand = {};            // cpu: of threads that execute; may be empty.
  cuda::CompletionKind cuda_completion = cuda::CompletionKind::kEvents;
  SmLimits sm_limits = {};                 // cuda; a cpu device rejects them.
  MakeCodeCompiler make_compiler = {};     // cuda; without one no launch of it can be stopped.
  std::function<void()> await_quiet = {};  // cuda; see CudaDeviceOptions.
  // For operators; may be empty. `note`: of modules, from any thread.
  std::function<void(const std::string&)> warn = {};
  std::function<void(const std::string&)> note = {};
};

// Creates the device named `id`. kNotFound for a name that no kind answers to, with
// the names that exist.
Result<std::unique_ptr<Device>> CreateDevice(std::string_view id, const DeviceOptions& options,
                                             WakeFunction wake);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_DEVICE_CATALOG_H_
