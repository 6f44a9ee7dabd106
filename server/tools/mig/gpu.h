// SPDX-License-Identifier: Apache-2.0
// Reads the GPUs of this machine and their instances, and changes them.

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

// The GPUs of this machine, asked anew at each call: nothing is remembered between them.
//
// Thread-compatible; borrows `nvml`, which must be open.
class GpuControl {
 public:
  explicit GpuControl(const device::nvml::Nvml& nvml) : nvml_(nvml) {}

  Result<std::vector<MigGpu>> Read() const;
  // kNotFound: it is not there. kUnavailable: it could not be read.
  Result<MigGpu> Find(std::string_view uuid) const;

  // kNotReady: somebody holds the GPU. kUnsupported: the driver cannot reset it here, and the mode
  // waits for a reset.
  Status SetMode(const MigGpu& gpu, bool enable) const;
  // With its compute instances. When it fails, a part may be there.
  Status Create(const MigGpu& gpu, const Instance& instance) const;
  // kNotReady: a process uses it, and nothing or some compute instances have gone.
  Status Destroy(const MigGpu& gpu, const LiveInstance& instance) const;

 private:
  Status CreateCompute(device::nvml::GpuInstanceHandle made, const std::string& what,
                       const std::vector<std::uint32_t>& compute) const;
  Status Failed(const std::string& what, const char* call, device::nvml::Code code) const;

  const device::nvml::Nvml& nvml_;
};

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_GPU_H_
