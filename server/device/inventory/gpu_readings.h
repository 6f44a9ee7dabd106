// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_INVENTORY_GPU_READINGS_H_
#define GPUSHARED_SERVER_DEVICE_INVENTORY_GPU_READINGS_H_

#include <cstdint>
#include <optional>

namespace gpushared::device {

// State of a GPU as its driver reports it. Values that the board or the driver does not
// report are empty.
struct GpuReadings {
  std::optional<double> utilization;  // Part of the driver's last sample in which a kernel ran.
  std::optional<double> memory_used_bytes;
  std::optional<double> power_w;
  std::optional<double> temperature_c;
  std::optional<double> sm_clock_hz, memory_clock_hz;
  // Numbers of ECC errors since the driver was loaded.
  std::optional<double> ecc_corrected, ecc_uncorrected;
  std::optional<double> last_xid;          // Latest critical Xid since the first reading.
  std::uint64_t xids = 0;                  // Critical Xids since the last reading.
  std::optional<std::uint64_t> energy_mj;  // Energy used since the driver was loaded.
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_INVENTORY_GPU_READINGS_H_
