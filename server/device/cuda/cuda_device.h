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
  int ordinal = 0;                 // Among the GPUs that CUDA_VISIBLE_DEVICES makes visible.
  std::uint64_t memory_bytes = 0;  // Shared by all clients; 0 = free memory at the start.
  CompletionKind completion = CompletionKind::kEvents;
  ChannelLimits limits;
  GraphStoreLimits graph_limits;
  SmLimits sm_limits;
  // If null, or if it returns null, no launch is preemptible, the driver compiles, and isolated
  // modules are loaded only for clients that may use the driver's compiler
  // (SpaceOptions::driver_may_compile).
  MakeCodeCompiler make_compiler;
  // Called before driver calls that may delay launches and are not urgent, such as loading code
  // that was compiled in the background; returns when no request is urgent. May be empty.
  std::function<void()> await_quiet;
  // Receive messages for operators that are not reported in another way; may be empty. `note`
  // receives messages about modules, from any thread.
  std::function<void(const std::string&)> warn;
  std::function<void(const std::string&)> note;
};

// A GPU or MIG instance.
//
// With a compiler, preemptible launches use their preemptible forms (server/ptx/passes/claim.h) as
// soon as these are compiled; only modules with PTX have such forms. Launches for which CanStop is
// false run to their end. Only isolated spaces confine kernels to their client's memory, and all
// modules of such a space require PTX. Only contained kernels can be ended inside a block (CanKill)
// and can fault without affecting others. A fault of any other kernel ends the context, and the
// device reports its loss(). Copies of lower priority are preempted between groups of units. Output
// of kernels goes to the process's stdout.
//
// Loading the driver reads CUDA_MODULE_LOADING and CUDA_DEVICE_MAX_CONNECTIONS, so
// PrepareEnvironment must set them in this process before.
Result<std::unique_ptr<Device>> CreateCudaDevice(std::shared_ptr<const Driver> driver,
                                                 CudaDeviceOptions options, WakeFunction wake);

// Sets environment variables, unless the operator has set them, so that the driver loads modules
// without their kernels and gives every channel a hardware queue. The worker loads kernels before
// their launches. Called before the driver is loaded and before there are threads.
void PrepareEnvironment();

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_DEVICE_H_
