// SPDX-License-Identifier: Apache-2.0
#include "server/device/prepare.h"

#include "server/device/cpu/cpu_prepared.h"
#include "server/device/cuda/cuda_prepared.h"

namespace gpushared::device {

namespace {

using Form = ModuleRecipe::Form;

template <typename Prepared>
Result<std::shared_ptr<const PreparedModule>> Taken(
    Result<std::shared_ptr<const Prepared>> prepared) {
  if (!prepared.ok()) return prepared.status();
  return std::shared_ptr<const PreparedModule>(*std::move(prepared));
}

}  // namespace

Status PrepareModule(const ModuleRecipe& recipe, std::span<const std::byte> image, FlatWriter& to) {
  if (recipe.form == Form::kForDriver) return cuda::PrepareCudaModule(recipe, image, to);
  return PrepareCpuModule(image, to);
}

Result<std::shared_ptr<const PreparedModule>> TakePrepared(const ModuleRecipe& recipe,
                                                           std::span<const std::byte> flat) {
  if (recipe.form == Form::kForDriver) return Taken(cuda::CudaPrepared::Take(recipe, flat));
  return Taken(CpuPrepared::Take(flat));
}

}  // namespace gpushared::device
