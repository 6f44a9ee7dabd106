// SPDX-License-Identifier: Apache-2.0
#include "server/device/prepare.h"

#include "server/device/cpu/cpu_prepared.h"

namespace gpushared::device {

// The cpu device is the one that has recipes.

Status PrepareModule(const ModuleRecipe& recipe, std::span<const std::byte> image, FlatWriter& to) {
  return PrepareCpuModule(recipe, image, to);
}

Result<std::shared_ptr<const PreparedModule>> TakePrepared(const ModuleRecipe& recipe,
                                                           std::span<const std::byte> flat) {
  Result<std::shared_ptr<const CpuPrepared>> taken = CpuPrepared::Take(recipe, flat);
  if (!taken) return taken.status();
  return std::shared_ptr<const PreparedModule>(*std::move(taken));
}

}  // namespace gpushared::device
