// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/gpu.h"

#include <algorithm>
#include <utility>

#include "server/tools/mig/gpu_reader.h"
#include "server/tools/mig/planner.h"

namespace gpushared::mig {
namespace {

using device::nvml::Code;
using device::nvml::ComputeInstanceHandle;
using device::nvml::DeviceHandle;
using device::nvml::GpuInstanceHandle;
using device::nvml::MigPlacement;

constexpr unsigned kGpusMax = 256;
constexpr const char* kComputeProfileCall = "nvmlGpuInstanceGetComputeInstanceProfileInfo";

StatusCode GetCode(Code code) {
  switch (code) {
    case Code::kNoPermission:
      return StatusCode::kPermissionDenied;
    case Code::kInUse:
      return StatusCode::kNotReady;
    case Code::kInsufficientResources:
      return StatusCode::kLimitExceeded;
    case Code::kResetRequired:
    case Code::kNotSupported:
    case Code::kFunctionNotFound:
      return StatusCode::kUnsupported;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

Status GpuControl::Failed(const std::string& what, const char* call, Code code) const {
  std::string why = what + ": " + nvml_.Explain(call, code);
  if (code == Code::kNoPermission) why += "; only root may do this";
  if (code == Code::kFunctionNotFound) why += "; the driver is too old for it";
  return {GetCode(code), std::move(why)};
}

Result<std::vector<MigGpu>> GpuControl::Read() const {
  unsigned count = 0;
  if (const Code code = nvml_.DeviceGetCount(&count); code != Code::kSuccess) {
    return Failed("the driver does not list its GPUs", "nvmlDeviceGetCount", code);
  }
  std::vector<MigGpu> gpus;
  for (unsigned i = 0; i < std::min(count, kGpusMax); ++i) {
    gpus.push_back(GpuReader(nvml_, i).Read());
  }
  return gpus;
}

Result<MigGpu> GpuControl::Find(std::string_view uuid) const {
  Result<std::vector<MigGpu>> gpus = Read();
  if (!gpus.ok()) return gpus.status();
  for (MigGpu& gpu : *gpus) {
    if (gpu.uuid != uuid) continue;
    if (gpu.trouble.empty()) return std::move(gpu);
    return Status(StatusCode::kUnavailable, gpu.Named() + " does not answer: " + gpu.trouble);
  }
  return Status(StatusCode::kNotFound, "GPU " + std::string(uuid) + " is not in this machine");
}

Status GpuControl::SetMode(const MigGpu& gpu, bool enable) const {
  const std::string what =
      gpu.Named() + ": MIG mode could not be turned " + (enable ? "on" : "off");
  constexpr const char* kCall = "nvmlDeviceSetMigMode";
  if (nvml_.DeviceSetMigMode == nullptr) return Failed(what, kCall, Code::kFunctionNotFound);
  DeviceHandle device = nullptr;
  Code code = nvml_.DeviceGetHandleByIndex(gpu.index, &device);
  if (code != Code::kSuccess) return Failed(what, "nvmlDeviceGetHandleByIndex", code);
  Code activation = Code::kSuccess;
  code = nvml_.DeviceSetMigMode(device, enable ? 1 : 0, &activation);
  if (code != Code::kSuccess) return Failed(what, kCall, code);
  if (activation != Code::kSuccess) return Failed(what, kCall, activation);
  return Status::Ok();
}

Status GpuControl::Create(const MigGpu& gpu, const Instance& instance) const {
  const std::string what =
      gpu.Named() + ": " + InstanceName(gpu.board, instance) + " could not be created";
  const Profile* const profile = gpu.board.Find(instance.profile);
  if (profile == nullptr) return {StatusCode::kInvalidArgument, what + ": no such profile"};
  constexpr const char* kCall = "nvmlDeviceCreateGpuInstanceWithPlacement";
  if (nvml_.DeviceCreateGpuInstanceWithPlacement == nullptr) {
    return Failed(what, kCall, Code::kFunctionNotFound);
  }
  DeviceHandle device = nullptr;
  Code code = nvml_.DeviceGetHandleByIndex(gpu.index, &device);
  if (code != Code::kSuccess) return Failed(what, "nvmlDeviceGetHandleByIndex", code);
  const MigPlacement placement{.start = instance.start, .size = profile->memory_slices};
  GpuInstanceHandle made = nullptr;
  code = nvml_.DeviceCreateGpuInstanceWithPlacement(device, profile->id, &placement, &made);
  if (code != Code::kSuccess) return Failed(what, kCall, code);
  return CreateCompute(made, what, instance.compute);
}

// Creates compute instances. A single one that fills the GPU instance has only one placement, which
// every driver finds. Others are placed explicitly, because the driver's own choices can leave no
// space for the last one.
Status GpuControl::CreateCompute(GpuInstanceHandle made, const std::string& what,
                                 const std::vector<std::uint32_t>& compute) const {
  std::vector<ComputeProfile> profiles;
  const Code listed = GpuReader::ComputeProfiles(nvml_, made, profiles);
  if (listed != Code::kSuccess) return Failed(what, kComputeProfileCall, listed);
  std::uint32_t whole = 0;
  for (const ComputeProfile& profile : profiles) whole = std::max(whole, profile.slices);
  Layout places;
  for (const std::uint32_t slices : compute) places.push_back({.profile = slices});
  Layout placed;
  ForEachLayout(ComputeBoard(whole), GetKinds(places), [&](const Layout& layout) {
    placed = layout;
    return false;
  });
  if (placed.size() != compute.size()) {
    return {StatusCode::kInvalidArgument, what + ": its compute instances do not fit"};
  }
  const bool is_whole = compute.size() == 1 && compute.front() == whole;
  const auto create = nvml_.GpuInstanceCreateComputeInstance;
  const auto create_at = nvml_.GpuInstanceCreateComputeInstanceWithPlacement;
  const char* const call = is_whole ? "nvmlGpuInstanceCreateComputeInstance"
                                    : "nvmlGpuInstanceCreateComputeInstanceWithPlacement";
  if (is_whole ? create == nullptr : create_at == nullptr) {
    return Failed(what, call, Code::kFunctionNotFound);
  }
  for (const Instance& one : placed) {
    const auto profile = std::ranges::find(profiles, one.profile, &ComputeProfile::slices);
    if (profile == profiles.end()) return Failed(what, call, Code::kNotSupported);
    const MigPlacement placement{.start = one.start, .size = one.profile};
    ComputeInstanceHandle handle = nullptr;
    const Code code = is_whole ? create(made, profile->id, &handle)
                               : create_at(made, profile->id, &placement, &handle);
    if (code != Code::kSuccess) return Failed(what, call, code);
  }
  return Status::Ok();
}

Status GpuControl::Destroy(const MigGpu& gpu, const LiveInstance& instance) const {
  const std::string what =
      gpu.Named() + ": " + InstanceName(gpu.board, instance.instance) + " could not be destroyed";
  if (nvml_.DeviceGetGpuInstanceById == nullptr || nvml_.GpuInstanceDestroy == nullptr ||
      nvml_.ComputeInstanceDestroy == nullptr) {
    return Failed(what, "nvmlGpuInstanceDestroy", Code::kFunctionNotFound);
  }
  DeviceHandle device = nullptr;
  GpuInstanceHandle handle = nullptr;
  Code code = nvml_.DeviceGetHandleByIndex(gpu.index, &device);
  if (code != Code::kSuccess) return Failed(what, "nvmlDeviceGetHandleByIndex", code);
  code = nvml_.DeviceGetGpuInstanceById(device, instance.id, &handle);
  if (code != Code::kSuccess) return Failed(what, "nvmlDeviceGetGpuInstanceById", code);
  std::vector<ComputeProfile> profiles;
  code = GpuReader::ComputeProfiles(nvml_, handle, profiles);
  if (code != Code::kSuccess) return Failed(what, kComputeProfileCall, code);
  for (const ComputeProfile& profile : profiles) {
    std::vector<ComputeInstanceHandle> computes(
        std::max<std::size_t>(profile.count_max, kInstancesMax));
    auto count = static_cast<unsigned>(computes.size());
    code = nvml_.GpuInstanceGetComputeInstances(handle, profile.id, computes.data(), &count);
    if (code != Code::kSuccess) return Failed(what, "nvmlGpuInstanceGetComputeInstances", code);
    computes.resize(std::min<std::size_t>(count, computes.size()));
    for (const ComputeInstanceHandle compute : computes) {
      code = nvml_.ComputeInstanceDestroy(compute);
      if (code != Code::kSuccess) return Failed(what, "nvmlComputeInstanceDestroy", code);
    }
  }
  code = nvml_.GpuInstanceDestroy(handle);
  return code == Code::kSuccess ? Status::Ok() : Failed(what, "nvmlGpuInstanceDestroy", code);
}

}  // namespace gpushared::mig
