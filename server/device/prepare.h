// SPDX-License-Identifier: Apache-2.0
// Loading a module in two steps. The first reads what a client wrote. It needs nothing but memory
// and time, so a process that has nothing to lose may do it (server/loader). The second
// trusts nothing that the first one says.

#ifndef GPUSHARED_SERVER_DEVICE_PREPARE_H_
#define GPUSHARED_SERVER_DEVICE_PREPARE_H_

#include <cstddef>
#include <memory>
#include <span>

#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/device.h"
#include "server/device/flat.h"

namespace gpushared::device {

// As Space::LoadModule, as bytes: what was written means nothing when it fails.
Status PrepareModule(const ModuleRecipe& recipe, std::span<const std::byte> image, FlatWriter& to);

// The bytes may be anything. kInvalidArgument when PrepareModule does not write such.
Result<std::shared_ptr<const PreparedModule>> TakePrepared(const ModuleRecipe& recipe,
                                                           std::span<const std::byte> flat);

// Both, one after the other, in this process: for devices that are used without a worker.
Result<std::shared_ptr<const PreparedModule>> PrepareHere(const ModuleRecipe& recipe,
                                                          std::span<const std::byte> image);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_PREPARE_H_
