// SPDX-License-Identifier: Apache-2.0
// Modules are loaded in two stages. The first parses the client's image. It needs only memory and
// time, so it can run in an unprivileged process (server/modules/loader). The second stage
// validates the output of the first, because that process may have been compromised.

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

// Reads PTX text or a fatbin (or machine code, for devices that can execute it) and writes the
// prepared module. The image is untrusted. Fails with kInvalidArgument, line and column if it
// cannot be parsed; kernels that the device cannot run are included, with a reason in
// KernelInfo. The output is meaningless if the call fails.
Status PrepareModule(const ModuleRecipe& recipe, std::span<const std::byte> image, FlatWriter& to);

// Reads a prepared module from arbitrary bytes, which it validates. Fails with kInvalidArgument for
// anything that PrepareModule does not write.
Result<std::shared_ptr<const PreparedModule>> TakePrepared(const ModuleRecipe& recipe,
                                                           std::span<const std::byte> flat);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_PREPARE_H_
