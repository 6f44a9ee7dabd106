// SPDX-License-Identifier: Apache-2.0
// Reads and changes the GPUs of this machine and their instances.

#ifndef GPUSHARED_SERVER_TOOLS_MIG_GPU_H_
#define GPUSHARED_SERVER_TOOLS_MIG_GPU_H_

#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/inventory/nvml.h"
#include "server/tools/mig/live_gpu.h"

namespace gpushared::mig {

// Access to the GPUs of this machine. Queries NVML at each call and caches nothing.
//
// Thread-compatible; borrows `nvml`, which must be open.
class GpuControl {
 public:
  explicit GpuControl(const device::nvml::Nvml& nvml) : nvml_(nvml) {}

  Result<std::vector<MigGpu>> Read() const;
  // Reads a GPU. kNotFound if there is no such GPU, kUnavailable if it could not be read.
  Result<MigGpu> Find(std::string_view uuid) const;

  // Changes the MIG mode. kNotReady if the GPU is in use; kUnsupported if the driver cannot reset
  // it here, so the mode changes at the next reset.
  Status SetMode(const MigGpu& gpu, bool enable) const;
  // Creates the instance with its compute instances. May leave a partial instance on failure.
  Status Create(const MigGpu& gpu, const Instance& instance) const;
  // Destroys the instance. kNotReady if a process uses it; some of its compute instances may have
  // been destroyed.
  Status Destroy(const MigGpu& gpu, const LiveInstance& instance) const;

 private:
  Status CreateCompute(device::nvml::GpuInstanceHandle made, const std::string& what,
                       const std::vector<std::uint32_t>& compute) const;
  Status Failed(const std::string& what, const char* call, device::nvml::Code code) const;

  const device::nvml::Nvml& nvml_;
};

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_GPU_H_
