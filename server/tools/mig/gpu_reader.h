// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_MIG_GPU_READER_H_
#define GPUSHARED_SERVER_TOOLS_MIG_GPU_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/device/inventory/nvml.h"
#include "server/tools/mig/live_gpu.h"

namespace gpushared::mig {

// A size of compute instance that a GPU instance offers.
struct ComputeProfile {
  std::uint32_t id = 0;
  std::uint32_t slices = 0;
  std::uint32_t count_max = 0;
};

// Reads the state of one GPU. The first failed call is reported in `trouble`.
//
// Thread-compatible; borrows `nvml`.
class GpuReader {
 public:
  GpuReader(const device::nvml::Nvml& nvml, std::uint32_t index) : nvml_(nvml) {
    gpu_.index = index;
  }

  MigGpu Read();
  // Lists the profiles that NVML offers for a GPU instance, in its order.
  static device::nvml::Code ComputeProfiles(const device::nvml::Nvml& nvml,
                                            device::nvml::GpuInstanceHandle instance,
                                            std::vector<ComputeProfile>& profiles);

 private:
  bool Ok(const char* call, device::nvml::Code code);
  void ReadIdentity();
  void ReadMode();
  void ReadProfiles();
  bool ReadProfile(unsigned number, Profile& profile);
  bool ReadPlaces(Profile& profile);
  void ReadInstances();
  void ReadInstance(device::nvml::GpuInstanceHandle handle);
  // Reads the UUIDs of compute instances and the processes on them.
  void ReadDevices();
  std::vector<std::uint32_t> GetProcesses(device::nvml::DeviceHandle device);

  const device::nvml::Nvml& nvml_;
  device::nvml::DeviceHandle device_ = nullptr;
  std::uint64_t memory_mib_ = 0;
  MigGpu gpu_;
};

}  // namespace gpushared::mig

#endif  // GPUSHARED_SERVER_TOOLS_MIG_GPU_READER_H_
