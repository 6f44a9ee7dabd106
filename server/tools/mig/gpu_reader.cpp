// SPDX-License-Identifier: Apache-2.0
#include "server/tools/mig/gpu_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string_view>
#include <tuple>
#include <utility>

namespace gpushared::mig {
namespace {

using device::nvml::Code;
using device::nvml::DeviceHandle;
using device::nvml::GpuInstanceHandle;
using device::nvml::Nvml;

constexpr std::size_t kTextBytes = 96;  // Size of NVML's own buffers.
constexpr unsigned kPlacesMax = 32;
constexpr unsigned kProcessesMax = 1024;
constexpr unsigned kEngineProfileShared = 0;
constexpr std::string_view kNamePrefix = "MIG ";
constexpr const char* kComputeProfileCall = "nvmlGpuInstanceGetComputeInstanceProfileInfo";

// Name suffixes, indexed by NVML's profile number (nvml.h, NVML_GPU_INSTANCE_PROFILE_*).
constexpr std::array<const char*, device::nvml::kGpuInstanceProfiles> kSuffixes = {
    "", "",     "",     "",     "",    "",    "",        "+me",     "+me",
    "", "+gfx", "+gfx", "+gfx", "-me", "-me", "+me.all", "+me.all", "+gfx"};

// Computes a profile's name, because drivers report names only in MIG mode. The gigabytes follow
// the rule of NVIDIA's go-nvlib, which counts eighths of the GPU's memory.
std::string GetName(unsigned number, std::uint32_t slices, std::uint64_t mib,
                    std::uint64_t whole_mib) {
  const double eighths =
      std::ceil(8.0 * static_cast<double>(mib) / static_cast<double>(std::max(whole_mib, mib)));
  const auto whole_gb = static_cast<double>((whole_mib + 1023) / 1024);
  return std::to_string(slices) + "g." + std::to_string(std::lround(eighths / 8.0 * whole_gb)) +
         "gb" + kSuffixes.at(number);
}

bool IsAbsent(Code code) {
  return code == Code::kNotSupported || code == Code::kInvalidArgument ||
         code == Code::kFunctionNotFound;
}

}  // namespace

bool GpuReader::Ok(const char* call, Code code) {
  if (code == Code::kSuccess) return true;
  if (gpu_.trouble.empty()) gpu_.trouble = nvml_.Explain(call, code);
  if (code == Code::kNoPermission) {
    gpu_.trouble +=
        "; MIG requires root, or permission to read /proc/driver/nvidia/capabilities/mig/config";
  }
  return false;
}

MigGpu GpuReader::Read() {
  if (!Ok("nvmlDeviceGetHandleByIndex", nvml_.DeviceGetHandleByIndex(gpu_.index, &device_))) {
    return std::move(gpu_);
  }
  ReadIdentity();
  ReadMode();
  if (gpu_.has_mig && gpu_.trouble.empty()) ReadProfiles();
  if (gpu_.is_enabled && gpu_.trouble.empty()) ReadInstances();
  if (gpu_.is_enabled && gpu_.trouble.empty()) ReadDevices();
  gpu_.processes = GetProcesses(device_);
  return std::move(gpu_);
}

void GpuReader::ReadIdentity() {
  std::array<char, kTextBytes> text{};
  if (Ok("nvmlDeviceGetUUID", nvml_.DeviceGetUUID(device_, text.data(), text.size() - 1))) {
    gpu_.uuid = text.data();
  }
  if (Ok("nvmlDeviceGetName", nvml_.DeviceGetName(device_, text.data(), text.size() - 1))) {
    gpu_.name = text.data();
  }
  device::nvml::MemoryInfo memory;
  if (Ok("nvmlDeviceGetMemoryInfo", nvml_.DeviceGetMemoryInfo(device_, &memory))) {
    memory_mib_ = memory.total >> 20;
  }
  device::nvml::PciInfo pci;
  if (nvml_.DeviceGetPciInfo != nullptr &&
      Ok("nvmlDeviceGetPciInfo", nvml_.DeviceGetPciInfo(device_, &pci))) {
    gpu_.model = pci.device_id;
  }
  // The minor number is used only to find the processes that hold the GPU, so a failed call is not
  // reported. The index replaces the number, and is usually equal to it.
  if (nvml_.DeviceGetMinorNumber != nullptr &&
      nvml_.DeviceGetMinorNumber(device_, &gpu_.minor) != Code::kSuccess) {
    gpu_.minor = gpu_.index;
  }
  gpu_.board.name = gpu_.name;
}

void GpuReader::ReadMode() {
  if (nvml_.DeviceGetMigMode == nullptr) return;
  unsigned current = 0, pending = 0;
  const Code code = nvml_.DeviceGetMigMode(device_, &current, &pending);
  if (IsAbsent(code) || !Ok("nvmlDeviceGetMigMode", code)) return;
  gpu_.has_mig = true;
  gpu_.is_enabled = current != 0;
  gpu_.is_pending = pending != 0;
}

void GpuReader::ReadProfiles() {
  for (unsigned number = 0; number < device::nvml::kGpuInstanceProfiles; ++number) {
    Profile profile;
    if (!ReadProfile(number, profile)) continue;
    if (!ReadPlaces(profile)) return;
    gpu_.board.profiles.push_back(std::move(profile));
  }
  std::ranges::sort(gpu_.board.profiles, [](const Profile& one, const Profile& other) {
    return std::tuple(one.compute_slices, one.memory_slices, one.name) <
           std::tuple(other.compute_slices, other.memory_slices, other.name);
  });
  for (const Profile& profile : gpu_.board.profiles) {
    for (const std::uint32_t start : profile.starts) {
      gpu_.board.slices = std::max(gpu_.board.slices, start + profile.memory_slices);
    }
  }
  if (gpu_.board.slices > kSlicesMax) {
    gpu_.trouble = "NVML reports placements up to slice " + std::to_string(gpu_.board.slices) +
                   ", supported are up to " + std::to_string(kSlicesMax);
  }
}

bool GpuReader::ReadProfile(unsigned number, Profile& profile) {
  const auto take = [&](const auto& info) {
    profile.id = info.id;
    profile.count_max = info.instance_count;
    profile.compute_slices = info.slice_count;
    profile.memory_mib = info.memory_mib;
    profile.multiprocessors = info.multiprocessors;
  };
  device::nvml::GpuInstanceProfileV2 named;
  if (nvml_.DeviceGetGpuInstanceProfileInfoV != nullptr &&
      nvml_.DeviceGetGpuInstanceProfileInfoV(device_, number, &named) == Code::kSuccess) {
    take(named);
    const std::string_view name(named.name, ::strnlen(named.name, sizeof named.name));
    profile.name = name.starts_with(kNamePrefix) ? name.substr(kNamePrefix.size()) : name;
    return true;
  }
  if (nvml_.DeviceGetGpuInstanceProfileInfo == nullptr) return false;
  device::nvml::GpuInstanceProfile info;
  const Code code = nvml_.DeviceGetGpuInstanceProfileInfo(device_, number, &info);
  if (IsAbsent(code) || !Ok("nvmlDeviceGetGpuInstanceProfileInfo", code)) return false;
  take(info);
  profile.name = GetName(number, info.slice_count, info.memory_mib, memory_mib_);
  return true;
}

bool GpuReader::ReadPlaces(Profile& profile) {
  if (nvml_.DeviceGetGpuInstancePossiblePlacements == nullptr) {
    return Ok("nvmlDeviceGetGpuInstancePossiblePlacements_v2", Code::kFunctionNotFound);
  }
  std::array<device::nvml::MigPlacement, kPlacesMax> places{};
  unsigned count = 0;
  constexpr const char* kCall = "nvmlDeviceGetGpuInstancePossiblePlacements";
  const auto ask = [&](device::nvml::MigPlacement* into) {
    return Ok(kCall,
              nvml_.DeviceGetGpuInstancePossiblePlacements(device_, profile.id, into, &count));
  };
  if (!ask(nullptr)) return false;
  if (count > kPlacesMax) return Ok(kCall, Code::kInsufficientSize);
  if (!ask(places.data())) return false;
  for (unsigned i = 0; i < std::min(count, kPlacesMax); ++i) {
    profile.starts.push_back(places[i].start);
    profile.memory_slices = places[i].size;
  }
  std::ranges::sort(profile.starts);
  return true;
}

void GpuReader::ReadInstances() {
  if (nvml_.DeviceGetGpuInstances == nullptr || nvml_.GpuInstanceGetInfo == nullptr) {
    (void)Ok("nvmlDeviceGetGpuInstances", Code::kFunctionNotFound);
    return;
  }
  for (const Profile& profile : gpu_.board.profiles) {
    std::vector<GpuInstanceHandle> handles(std::max<std::size_t>(profile.count_max, kInstancesMax));
    auto count = static_cast<unsigned>(handles.size());
    const Code code = nvml_.DeviceGetGpuInstances(device_, profile.id, handles.data(), &count);
    if (!Ok("nvmlDeviceGetGpuInstances", code)) return;
    handles.resize(std::min<std::size_t>(count, handles.size()));
    for (const GpuInstanceHandle handle : handles) ReadInstance(handle);
  }
  std::ranges::sort(gpu_.instances, {},
                    [](const LiveInstance& live) { return live.instance.start; });
}

void GpuReader::ReadInstance(GpuInstanceHandle handle) {
  device::nvml::GpuInstanceInfo info;
  if (!Ok("nvmlGpuInstanceGetInfo", nvml_.GpuInstanceGetInfo(handle, &info))) return;
  LiveInstance live{.instance = {.profile = info.profile_id, .start = info.placement.start},
                    .id = info.id};
  std::vector<ComputeProfile> profiles;
  if (!Ok(kComputeProfileCall, ComputeProfiles(nvml_, handle, profiles))) return;
  for (const ComputeProfile& profile : profiles) {
    std::vector<device::nvml::ComputeInstanceHandle> computes(
        std::max<std::size_t>(profile.count_max, kInstancesMax));
    auto count = static_cast<unsigned>(computes.size());
    const Code code =
        nvml_.GpuInstanceGetComputeInstances(handle, profile.id, computes.data(), &count);
    if (!Ok("nvmlGpuInstanceGetComputeInstances", code)) return;
    for (unsigned i = 0; i < std::min<std::size_t>(count, computes.size()); ++i) {
      device::nvml::ComputeInstanceInfo compute;
      if (!Ok("nvmlComputeInstanceGetInfo", nvml_.ComputeInstanceGetInfo(computes[i], &compute))) {
        return;
      }
      live.compute.push_back({.id = compute.id, .slices = profile.slices});
      live.instance.compute.push_back(profile.slices);
    }
  }
  std::ranges::sort(live.instance.compute, std::greater<>());
  gpu_.instances.push_back(std::move(live));
}

Code GpuReader::ComputeProfiles(const Nvml& nvml, GpuInstanceHandle instance,
                                std::vector<ComputeProfile>& profiles) {
  if (nvml.GpuInstanceGetComputeInstanceProfileInfo == nullptr ||
      nvml.GpuInstanceGetComputeInstances == nullptr || nvml.ComputeInstanceGetInfo == nullptr) {
    return Code::kFunctionNotFound;
  }
  for (unsigned number = 0; number < device::nvml::kComputeInstanceProfiles; ++number) {
    device::nvml::ComputeInstanceProfile info;
    const Code code = nvml.GpuInstanceGetComputeInstanceProfileInfo(instance, number,
                                                                    kEngineProfileShared, &info);
    if (IsAbsent(code)) continue;
    if (code != Code::kSuccess) return code;
    profiles.push_back(
        {.id = info.id, .slices = info.slice_count, .count_max = info.instance_count});
  }
  return Code::kSuccess;
}

void GpuReader::ReadDevices() {
  unsigned count = 0;
  if (nvml_.DeviceGetMaxMigDeviceCount == nullptr ||
      nvml_.DeviceGetMigDeviceHandleByIndex == nullptr || nvml_.DeviceGetGpuInstanceId == nullptr ||
      nvml_.DeviceGetComputeInstanceId == nullptr ||
      !Ok("nvmlDeviceGetMaxMigDeviceCount", nvml_.DeviceGetMaxMigDeviceCount(device_, &count))) {
    return;
  }
  for (unsigned i = 0; i < count; ++i) {
    DeviceHandle handle = nullptr;
    const Code found = nvml_.DeviceGetMigDeviceHandleByIndex(device_, i, &handle);
    // Continues, because the numbers are not contiguous.
    if (found == Code::kNotFound || found == Code::kInvalidArgument) continue;
    unsigned gpu_instance = 0, compute_instance = 0;
    std::array<char, kTextBytes> uuid{};
    if (!Ok("nvmlDeviceGetMigDeviceHandleByIndex", found) ||
        !Ok("nvmlDeviceGetGpuInstanceId", nvml_.DeviceGetGpuInstanceId(handle, &gpu_instance)) ||
        !Ok("nvmlDeviceGetComputeInstanceId",
            nvml_.DeviceGetComputeInstanceId(handle, &compute_instance)) ||
        !Ok("nvmlDeviceGetUUID", nvml_.DeviceGetUUID(handle, uuid.data(), uuid.size() - 1))) {
      return;
    }
    const auto live = std::ranges::find(gpu_.instances, gpu_instance, &LiveInstance::id);
    const auto compute = live == gpu_.instances.end()
                             ? std::vector<LiveCompute>::iterator()
                             : std::ranges::find(live->compute, compute_instance, &LiveCompute::id);
    // A device of an unknown instance is an error, because a plan based on some of the instances
    // would destroy the others.
    if (live == gpu_.instances.end() || compute == live->compute.end()) {
      gpu_.trouble = "NVML contradicts itself: " + std::string(uuid.data()) +
                     " belongs to no instance that it lists";
      return;
    }
    compute->uuid = uuid.data();
    compute->processes = GetProcesses(handle);
  }
}

std::vector<std::uint32_t> GpuReader::GetProcesses(DeviceHandle device) {
  if (nvml_.DeviceGetComputeRunningProcesses == nullptr) return {};
  std::vector<device::nvml::ProcessInfo> processes(kProcessesMax);
  auto count = static_cast<unsigned>(processes.size());
  // The processes only improve a message, because NVML itself rejects the destruction of an
  // instance in use.
  if (nvml_.DeviceGetComputeRunningProcesses(device, &count, processes.data()) != Code::kSuccess) {
    return {};
  }
  std::vector<std::uint32_t> pids;
  for (unsigned i = 0; i < std::min(count, kProcessesMax); ++i) pids.push_back(processes[i].pid);
  return pids;
}

}  // namespace gpushared::mig
