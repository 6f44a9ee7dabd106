// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CUDA_DEVICE_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CUDA_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpushared/result.h"

#include "server/device/code_compiler.h"
#include "server/device/cuda/channel.h"
#include "server/device/cuda/completion_marks.h"
#include "server/device/cuda/driver.h"
#include "server/device/cuda/graph_store.h"
#include "server/device/device.h"

namespace gpushared::device::cuda {

struct CudaDeviceOptions {
  std::string id = "cuda:0";
  int ordinal = 0;                 // Among the GPUs that CUDA_VISIBLE_DEVICES leaves.
  std::uint64_t memory_bytes = 0;  // Of all clients together; 0 = what is free at the start.
  CompletionKind completion = CompletionKind::kEvents;
  ChannelLimits limits;
  GraphStoreLimits graph_limits;
  SmLimits sm_limits;
  // Null, or gives null: no launch can be stopped, the driver compiles, and isolated modules are
  // loaded only for those who may have it do so (SpaceOptions::driver_may_compile).
  MakeCodeCompiler make_compiler;
  // Called ahead of calls that may hold up launches and that nobody waits for, as the load of code
  // that was compiled in the background; returns when no request is urgent. May be empty.
  std::function<void()> await_quiet;
  // What an operator should know and nobody else is told; may be empty. `note` is of modules, from
  // any thread.
  std::function<void(const std::string&)> warn;
  std::function<void(const std::string&)> note;
};

// A GPU or MIG instance.
//
// With a compiler, launches that may be stopped run as their claimed forms
// (server/ptx/passes/claim.h), as soon as these have been compiled. That needs PTX. Launches that
// CanStop denies run to their end. Only isolated spaces keep kernels from other clients' memory;
// their modules need PTX. Only contained kernels can be ended inside a block (CanKill), and fail
// alone. A fault of any other kernel ends the context, and this device reports its loss(). Copies
// of lower priority stop between groups of kCopyPieceBytes. Output of kernels goes to the process's
// stdout.
//
// Loading the driver reads CUDA_MODULE_LOADING and CUDA_DEVICE_MAX_CONNECTIONS, which
// PrepareEnvironment sets for this process before.
Result<std::unique_ptr<Device>> CreateCudaDevice(std::shared_ptr<const Driver> driver,
                                                 CudaDeviceOptions options, WakeFunction wake);

// Where the operator has not chosen otherwise, the driver loads a module without its kernels, and
// gives every channel a queue of the GPU. The worker loads kernels ahead of their launches. Called
// before the driver is loaded and before there are threads.
void PrepareEnvironment();

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_DEVICE_H_
