// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_INVENTORY_READ_INVENTORY_H_
#define GPUSHARED_SERVER_DEVICE_INVENTORY_READ_INVENTORY_H_

#include <string>

#include "server/device/cuda/driver.h"
#include "server/device/inventory/inventory.h"
#include "server/device/inventory/nvml.h"

namespace gpushared::device {

struct InventoryOptions {
  std::string library = nvml::Nvml::kLibrary;
  std::string cuda_library = cuda::Driver::kLibrary;
  // Directory of an MPS daemon's pipes; if empty, $CUDA_MPS_PIPE_DIRECTORY or the usual
  // directories.
  std::string mps_directory = {};
};

// Reads the current state of the machine. Each call reads everything again, because instances may
// be created and destroyed while a server runs. Never fails: errors are stored in
// Inventory::unavailable and Gpu::trouble.
Inventory ReadInventory(const InventoryOptions& options = {});

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_INVENTORY_READ_INVENTORY_H_
