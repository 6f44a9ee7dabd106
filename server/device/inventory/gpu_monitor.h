// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_INVENTORY_GPU_MONITOR_H_
#define GPUSHARED_SERVER_DEVICE_INVENTORY_GPU_MONITOR_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "server/device/inventory/gpu_readings.h"
#include "server/device/inventory/nvml.h"

namespace gpushared::device {

// Reads the sensors of one GPU. Only for processes that have the GPU open anyway, because NVML
// remains initialized from the first reading on (see Nvml).
//
// Thread-compatible.
class GpuMonitor {
 public:
  // `uuid` is that of a whole GPU, because the sensors do not measure parts of it.
  explicit GpuMonitor(std::string uuid, std::string library = nvml::Nvml::kLibrary)
      : uuid_(std::move(uuid)), library_(std::move(library)) {}
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Returns empty readings if the GPU does not answer. May take milliseconds.
  GpuReadings Read();

 private:
  void Open();
  void ReadXids(GpuReadings& readings);

  const std::string uuid_, library_;
  bool is_open_ = false;  // Whether Open was called.
  std::unique_ptr<const nvml::Nvml> nvml_;
  nvml::DeviceHandle device_ = nullptr;  // Null if there is no such GPU.
  nvml::EventSet events_ = nullptr;      // Null if the driver does not report events.
  std::optional<double> last_xid_;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_INVENTORY_GPU_MONITOR_H_
