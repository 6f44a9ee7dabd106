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
  // Where an MPS daemon's pipes would be; empty: $CUDA_MPS_PIPE_DIRECTORY, else the usual places.
  std::string mps_directory = {};
};

// What the machine has now. Instances come and go while a server runs: each call looks anew.
// Never fails: what could not be read is in Inventory::unavailable and Gpu::trouble.
Inventory ReadInventory(const InventoryOptions& options = {});

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_INVENTORY_READ_INVENTORY_H_
