// SPDX-License-Identifier: Apache-2.0
// Creates and destroys instances with the rules and errors that nvml.h documents for each call.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_nvml/frame.h"

namespace gpushared::device::nvml {
namespace {

using testing::fake_nvml::ComputeProfile;
using testing::fake_nvml::FakeCompute;
using testing::fake_nvml::FakeGpu;
using testing::fake_nvml::FakeInstance;
using testing::fake_nvml::GetComputeProfiles;
using testing::fake_nvml::Profile;

const Profile* GetProfile(const FakeGpu& gpu, unsigned Profile::*key, unsigned value) {
  const auto found = std::ranges::find(gpu.board->profiles, value, key);
  return found == gpu.board->profiles.end() ? nullptr : &*found;
}

GpuInstanceHandle GetHandle(FakeInstance& instance) {
  return reinterpret_cast<GpuInstanceHandle>(&instance);
}
ComputeInstanceHandle GetHandle(FakeCompute& compute) {
  return reinterpret_cast<ComputeInstanceHandle>(&compute);
}

template <typename Info>
void Fill(Info& info, const Profile& profile) {
  info.id = profile.id;
  info.slice_count = profile.compute_slices();
  info.instance_count = profile.count_max;
  info.multiprocessors = profile.multiprocessors;
  info.memory_mib = profile.memory_mib;
}

// Runs `body` if the caller is privileged and the GPU is in MIG mode.
template <typename Body>
Code OfMigGpu(const char* name, DeviceHandle device, Body&& body) {
  return OfGpu(name, device, [&](FakeGpu& gpu) {
    if (!g_fake.machine.privileged) return Code::kNoPermission;
    return gpu.mig ? body(gpu) : Code::kNotSupported;
  });
}

template <typename Body>
Code OfInstance(const char* name, GpuInstanceHandle handle, bool for_all, Body&& body) {
  return Called(name, [&] {
    FakeInstance* const instance = FindInstance(handle);
    if (instance == nullptr) return Code::kInvalidArgument;
    if (!for_all && !g_fake.machine.privileged) return Code::kNoPermission;
    return instance->gpu->lost ? Code::kGpuIsLost : body(*instance);
  });
}

Code MakeCompute(FakeInstance& instance, unsigned profile_id, const MigPlacement* placement,
                 ComputeInstanceHandle* made) {
  const std::vector<ComputeProfile> profiles = GetComputeProfiles(*instance.profile);
  const auto profile = std::ranges::find(profiles, profile_id, &ComputeProfile::number);
  if (profile == profiles.end()) return Code::kNotSupported;
  if (placement != nullptr &&
      (placement->size != profile->slices ||
       std::ranges::find(profile->starts, placement->start) == profile->starts.end())) {
    return Code::kInvalidArgument;
  }
  for (const unsigned start : profile->starts) {
    if (placement != nullptr && placement->start != start) continue;
    if (!instance.HasRoom(start, profile->slices)) continue;
    *made = GetHandle(instance.AddCompute(start, profile->slices));
    g_fake.Keep();
    return Code::kSuccess;
  }
  return Code::kInsufficientResources;
}

}  // namespace

extern "C" {

Code nvmlDeviceGetMinorNumber(DeviceHandle device, unsigned* minor) {
  return OfDevice("nvmlDeviceGetMinorNumber", device, [&](const auto& target) {
    *minor = target.gpu->index;
    return Code::kSuccess;
  });
}

Code nvmlDeviceSetMigMode(DeviceHandle device, unsigned mode, Code* activation) {
  return OfGpu("nvmlDeviceSetMigMode", device, [&](FakeGpu& gpu) {
    if (mode > 1) return Code::kInvalidArgument;
    if (!g_fake.machine.privileged) return Code::kNoPermission;
    gpu.mig_pending = mode != 0;
    const bool is_suspended = !gpu.processes.empty() || !gpu.instances.empty();
    *activation = Code::kSuccess;
    if (gpu.mig == gpu.mig_pending) {
      // No activation is pending.
    } else if (gpu.reset_required) {
      *activation = Code::kResetRequired;
    } else if (is_suspended) {
      *activation = Code::kInUse;
    } else {
      gpu.mig = gpu.mig_pending;
    }
    g_fake.Keep();
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetGpuInstanceProfileInfo(DeviceHandle device, unsigned number,
                                         GpuInstanceProfile* info) {
  return OfGpu("nvmlDeviceGetGpuInstanceProfileInfo", device, [&](const FakeGpu& gpu) {
    if (number >= kGpuInstanceProfiles) return Code::kInvalidArgument;
    const Profile* const profile = GetProfile(gpu, &Profile::number, number);
    if (profile == nullptr) return Code::kNotSupported;
    *info = {};
    Fill(*info, *profile);
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetGpuInstanceProfileInfoV(DeviceHandle device, unsigned number,
                                          GpuInstanceProfileV2* info) {
  return OfGpu("nvmlDeviceGetGpuInstanceProfileInfoV", device, [&](const FakeGpu& gpu) {
    const bool is_version = info->version == GpuInstanceProfileV2::kVersion;
    if (number >= kGpuInstanceProfiles || !is_version) return Code::kInvalidArgument;
    const Profile* const profile = GetProfile(gpu, &Profile::number, number);
    if (profile == nullptr || !gpu.mig) return Code::kNotSupported;
    *info = {};
    Fill(*info, *profile);
    std::snprintf(info->name, sizeof info->name, "MIG %s", std::string(profile->name).c_str());
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetGpuInstancePossiblePlacements_v2(DeviceHandle device, unsigned profile_id,
                                                   MigPlacement* placements, unsigned* count) {
  return OfGpu("nvmlDeviceGetGpuInstancePossiblePlacements", device, [&](const FakeGpu& gpu) {
    if (!g_fake.machine.privileged) return Code::kNoPermission;
    const Profile* const profile = GetProfile(gpu, &Profile::id, profile_id);
    if (profile == nullptr) return Code::kNotSupported;
    *count = static_cast<unsigned>(profile->starts.size());
    for (unsigned i = 0; placements != nullptr && i < *count; ++i) {
      placements[i] = {.start = profile->starts[i], .size = profile->slices};
    }
    return Code::kSuccess;
  });
}

Code nvmlDeviceCreateGpuInstanceWithPlacement(DeviceHandle device, unsigned profile_id,
                                              const MigPlacement* placement,
                                              GpuInstanceHandle* made) {
  return OfMigGpu("nvmlDeviceCreateGpuInstanceWithPlacement", device, [&](FakeGpu& gpu) {
    const Profile* const profile = GetProfile(gpu, &Profile::id, profile_id);
    if (profile == nullptr || placement->size != profile->slices ||
        std::ranges::find(profile->starts, placement->start) == profile->starts.end()) {
      return Code::kInvalidArgument;
    }
    if (!gpu.WhyNot(*profile, placement->start).empty()) return Code::kInsufficientResources;
    *made = GetHandle(gpu.Add(*profile, placement->start, ++gpu.generation));
    g_fake.Keep();
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetGpuInstances(DeviceHandle device, unsigned profile_id,
                               GpuInstanceHandle* instances, unsigned* count) {
  return OfMigGpu("nvmlDeviceGetGpuInstances", device, [&](FakeGpu& gpu) {
    const Profile* const profile = GetProfile(gpu, &Profile::id, profile_id);
    if (profile == nullptr) return Code::kInvalidArgument;
    *count = 0;
    for (auto& [start, instance] : gpu.instances) {
      if (instance.profile == profile) instances[(*count)++] = GetHandle(instance);
    }
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetGpuInstanceById(DeviceHandle device, unsigned id, GpuInstanceHandle* found) {
  return OfMigGpu("nvmlDeviceGetGpuInstanceById", device, [&](FakeGpu& gpu) {
    for (auto& [start, instance] : gpu.instances) {
      if (instance.id() != id) continue;
      *found = GetHandle(instance);
      return Code::kSuccess;
    }
    return Code::kNotFound;
  });
}

Code nvmlGpuInstanceGetInfo(GpuInstanceHandle handle, GpuInstanceInfo* info) {
  return OfInstance("nvmlGpuInstanceGetInfo", handle, true, [&](FakeInstance& instance) {
    *info = {.device = reinterpret_cast<DeviceHandle>(&instance.gpu->self),
             .id = instance.id(),
             .profile_id = instance.profile->id,
             .placement = {.start = instance.start, .size = instance.profile->slices}};
    return Code::kSuccess;
  });
}

Code nvmlGpuInstanceDestroy(GpuInstanceHandle handle) {
  return OfInstance("nvmlGpuInstanceDestroy", handle, false, [&](FakeInstance& instance) {
    if (!instance.compute.empty()) return Code::kInUse;
    instance.gpu->instances.erase(instance.start);
    g_fake.Keep();
    return Code::kSuccess;
  });
}

Code nvmlGpuInstanceGetComputeInstanceProfileInfo(GpuInstanceHandle handle, unsigned number,
                                                  unsigned engine_profile,
                                                  ComputeInstanceProfile* info) {
  constexpr const char* kCall = "nvmlGpuInstanceGetComputeInstanceProfileInfo";
  return OfInstance(kCall, handle, true, [&](FakeInstance& instance) {
    if (number >= kComputeInstanceProfiles || engine_profile != 0) return Code::kInvalidArgument;
    for (const ComputeProfile& profile : GetComputeProfiles(*instance.profile)) {
      if (profile.number != number) continue;
      *info = {.id = profile.number,
               .slice_count = profile.slices,
               .instance_count = static_cast<unsigned>(profile.starts.size())};
      return Code::kSuccess;
    }
    return Code::kNotSupported;
  });
}

Code nvmlGpuInstanceCreateComputeInstance(GpuInstanceHandle handle, unsigned profile_id,
                                          ComputeInstanceHandle* made) {
  return OfInstance(
      "nvmlGpuInstanceCreateComputeInstance", handle, false,
      [&](FakeInstance& instance) { return MakeCompute(instance, profile_id, nullptr, made); });
}

Code nvmlGpuInstanceCreateComputeInstanceWithPlacement(GpuInstanceHandle handle,
                                                       unsigned profile_id,
                                                       const MigPlacement* placement,
                                                       ComputeInstanceHandle* made) {
  return OfInstance(
      "nvmlGpuInstanceCreateComputeInstanceWithPlacement", handle, false,
      [&](FakeInstance& instance) { return MakeCompute(instance, profile_id, placement, made); });
}

Code nvmlGpuInstanceGetComputeInstances(GpuInstanceHandle handle, unsigned profile_id,
                                        ComputeInstanceHandle* computes, unsigned* count) {
  constexpr const char* kCall = "nvmlGpuInstanceGetComputeInstances";
  return OfInstance(kCall, handle, false, [&](FakeInstance& instance) {
    const std::vector<ComputeProfile> profiles = GetComputeProfiles(*instance.profile);
    const auto profile = std::ranges::find(profiles, profile_id, &ComputeProfile::number);
    if (profile == profiles.end()) return Code::kNotSupported;
    *count = 0;
    for (FakeCompute& compute : instance.compute) {
      if (compute.slices == profile->slices) computes[(*count)++] = GetHandle(compute);
    }
    return Code::kSuccess;
  });
}

Code nvmlComputeInstanceGetInfo_v2(ComputeInstanceHandle handle, ComputeInstanceInfo* info) {
  return Called("nvmlComputeInstanceGetInfo", [&] {
    FakeCompute* const compute = FindCompute(handle);
    if (compute == nullptr) return Code::kInvalidArgument;
    *info = {.device = reinterpret_cast<DeviceHandle>(&compute->target.gpu->self),
             .gpu_instance = GetHandle(*compute->target.instance),
             .id = compute->id,
             .placement = {.start = compute->start, .size = compute->slices}};
    for (const ComputeProfile& profile : GetComputeProfiles(*compute->target.instance->profile)) {
      if (profile.slices == compute->slices) info->profile_id = profile.number;
    }
    return Code::kSuccess;
  });
}

Code nvmlComputeInstanceDestroy(ComputeInstanceHandle handle) {
  return Called("nvmlComputeInstanceDestroy", [&] {
    FakeCompute* const compute = FindCompute(handle);
    if (compute == nullptr) return Code::kInvalidArgument;
    if (!g_fake.machine.privileged) return Code::kNoPermission;
    if (compute->target.gpu->lost) return Code::kGpuIsLost;
    if (!compute->processes.empty()) return Code::kInUse;
    compute->target.instance->compute.remove_if(
        [&](const FakeCompute& one) { return &one == compute; });
    g_fake.Keep();
    return Code::kSuccess;
  });
}

}  // extern "C"
}  // namespace gpushared::device::nvml
