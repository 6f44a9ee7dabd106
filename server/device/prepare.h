// SPDX-License-Identifier: Apache-2.0
// Loading a module in two steps. The first reads what a client wrote. It needs nothing but memory
// and time, so a process that has nothing to lose may do it (server/modules/loader). The second
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

// Reads PTX text or a fatbin, for devices that can also machine code, and writes what came of it.
// The image is hostile until parsed. kInvalidArgument with line and column when it does not parse;
// kernels that the device cannot run are in, and say so in KernelInfo. What was written means
// nothing when it fails.
Status PrepareModule(const ModuleRecipe& recipe, std::span<const std::byte> image, FlatWriter& to);

// The bytes may be anything. kInvalidArgument when PrepareModule does not write such.
Result<std::shared_ptr<const PreparedModule>> TakePrepared(const ModuleRecipe& recipe,
                                                           std::span<const std::byte> flat);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_PREPARE_H_
