// SPDX-License-Identifier: Apache-2.0
#include "server/device/inventory/read_inventory.h"

#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

namespace gpushared::device {
namespace {

using nvml::Code;
using nvml::DeviceHandle;
using nvml::Nvml;

constexpr std::size_t kTextBytes = 96;  // Size of NVML's own buffers.
constexpr unsigned kGpusMax = 256;
constexpr unsigned kProcessesMax = 1024;

// Only checks that the library exists: initializing it would allocate resources on every GPU, which
// the broker must not do. A library that was found remains loaded, so that further checks cost
// nothing and the driver is never unloaded.
std::string WhyNoCuda(const std::string& name) {
  void* const library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return std::string("no CUDA driver on this machine: ") + ::dlerror();
  ::dlclose(library);
  return {};
}

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Compute mode numbers of NVML.
GpuMode GetMode(int mode) {
  switch (mode) {
    case 2:
      return GpuMode::kProhibited;
    case 1:  // "Exclusive thread", the mode of older drivers.
    case 3:
      return GpuMode::kExclusive;
    default:
      return GpuMode::kShared;
  }
}

// Returns 0 for architectures that are newer than this table.
unsigned CoresPerMultiprocessor(int major, int minor) {
  switch (major) {
    case 7:
      return 64;
    case 8:
      return minor == 0 ? 64 : 128;
    case 9:
    case 10:
    case 12:
      return 128;
    default:
      return 0;
  }
}

// Reads one GPU. The first error is stored as the GPU's trouble; features that the board or the
// driver does not support are not errors.
class GpuReader {
 public:
  GpuReader(const Nvml& nvml, unsigned index) : nvml_(nvml) { gpu_.index = index; }

  Gpu Read() {
    if (!Ok("nvmlDeviceGetHandleByIndex", nvml_.DeviceGetHandleByIndex(gpu_.index, &device_))) {
      return std::move(gpu_);
    }
    gpu_.uuid = Text("nvmlDeviceGetUUID", nvml_.DeviceGetUUID, device_);
    gpu_.name = Text("nvmlDeviceGetName", nvml_.DeviceGetName, device_);
    nvml::MemoryInfo memory;
    // A container that has access only to an instance is not permitted to query the GPU's memory;
    // the instance reports its own.
    if (Has("nvmlDeviceGetMemoryInfo", nvml_.DeviceGetMemoryInfo, device_, &memory)) {
      gpu_.memory_bytes = memory.total;
    }
    nvml::PciInfo pci;
    if (Has("nvmlDeviceGetPciInfo", nvml_.DeviceGetPciInfo, device_, &pci))
      gpu_.pci_bus = pci.bus_id;
    int mode = 0;
    if (Has("nvmlDeviceGetComputeMode", nvml_.DeviceGetComputeMode, device_, &mode)) {
      gpu_.mode = GetMode(mode);
    }
    ReadMultiprocessors();
    ReadProcesses();
    ReadInstances();
    return std::move(gpu_);
  }

 private:
  bool Ok(const char* call, Code code) {
    if (code == Code::kSuccess) return true;
    gpu_.is_lost = gpu_.is_lost || code == Code::kGpuIsLost;
    if (gpu_.trouble.empty()) gpu_.trouble = nvml_.Explain(call, code);
    return false;
  }

  // Makes a call that a driver or a board may not support.
  template <typename... Parameters, typename... Arguments>
  bool Has(const char* call, Code (*function)(Parameters...), Arguments... arguments) {
    if (function == nullptr) return false;
    const Code code = function(arguments...);
    const bool absent = code == Code::kNotSupported || code == Code::kFunctionNotFound ||
                        code == Code::kNoPermission;
    return !absent && Ok(call, code);
  }

  std::string Text(const char* call, Code (*function)(DeviceHandle, char*, unsigned),
                   DeviceHandle device) {
    std::array<char, kTextBytes> text{};
    if (!Ok(call, function(device, text.data(), text.size() - 1))) return "";
    return text.data();
  }

  void ReadMultiprocessors() {
    unsigned cores = 0;
    int major = 0, minor = 0;
    if (!Has("nvmlDeviceGetNumGpuCores", nvml_.DeviceGetNumGpuCores, device_, &cores) ||
        !Has("nvmlDeviceGetCudaComputeCapability", nvml_.DeviceGetCudaComputeCapability, device_,
             &major, &minor)) {
      return;
    }
    const unsigned each = CoresPerMultiprocessor(major, minor);
    if (each > 0) gpu_.multiprocessors = cores / each;
  }

  void ReadProcesses() {
    if (nvml_.DeviceGetComputeRunningProcesses == nullptr) return;
    std::vector<nvml::ProcessInfo> processes(64);
    auto count = static_cast<unsigned>(processes.size());
    Code code = nvml_.DeviceGetComputeRunningProcesses(device_, &count, processes.data());
    if (code == Code::kInsufficientSize) {
      // Leaves space for processes that start before the next call.
      processes.resize(std::min(count + 64, kProcessesMax));
      count = static_cast<unsigned>(processes.size());
      code = nvml_.DeviceGetComputeRunningProcesses(device_, &count, processes.data());
    }
    // The list of processes only explains a rejection, so a failure is not an error.
    if (code != Code::kSuccess) return;
    count = std::min(count, static_cast<unsigned>(processes.size()));
    for (unsigned i = 0; i < count; ++i) gpu_.processes.push_back(processes[i].pid);
  }

  void ReadInstances() {
    unsigned current = 0, pending = 0, count = 0;
    if (!Has("nvmlDeviceGetMigMode", nvml_.DeviceGetMigMode, device_, &current, &pending)) return;
    gpu_.mig_enabled = current != 0;
    if (!gpu_.mig_enabled || nvml_.DeviceGetMigDeviceHandleByIndex == nullptr ||
        !Has("nvmlDeviceGetMaxMigDeviceCount", nvml_.DeviceGetMaxMigDeviceCount, device_, &count)) {
      return;
    }
    for (unsigned i = 0; i < count; ++i) {
      DeviceHandle handle = nullptr;
      // The numbers may have gaps, so the loop continues after a missing one.
      const Code code = nvml_.DeviceGetMigDeviceHandleByIndex(device_, i, &handle);
      if (code == Code::kNotFound || code == Code::kInvalidArgument) continue;
      if (Ok("nvmlDeviceGetMigDeviceHandleByIndex", code)) ReadInstance(handle);
    }
  }

  void ReadInstance(DeviceHandle handle) {
    GpuInstance instance;
    std::array<char, kTextBytes> uuid{};
    const Code code = nvml_.DeviceGetUUID(handle, uuid.data(), uuid.size() - 1);
    // The instance was destroyed after its handle was returned.
    if (code == Code::kNotFound || code == Code::kInvalidArgument) return;
    if (!Ok("nvmlDeviceGetUUID", code)) return;
    instance.uuid = uuid.data();
    nvml::MemoryInfo memory;
    if (nvml_.DeviceGetMemoryInfo(handle, &memory) == Code::kSuccess) {
      instance.memory_bytes = memory.total;
    }
    nvml::Attributes attributes;
    if (Has("nvmlDeviceGetAttributes", nvml_.DeviceGetAttributes, handle, &attributes)) {
      instance.multiprocessors = attributes.multiprocessors;
      if (instance.memory_bytes == 0) instance.memory_bytes = attributes.memory_mib * kMiB;
    }
    (void)Has("nvmlDeviceGetGpuInstanceId", nvml_.DeviceGetGpuInstanceId, handle,
              &instance.gpu_instance);
    (void)Has("nvmlDeviceGetComputeInstanceId", nvml_.DeviceGetComputeInstanceId, handle,
              &instance.compute_instance);
    instance.profile = GetProfile(handle);
    gpu_.instances.push_back(std::move(instance));
  }

  // "NVIDIA H200 MIG 1g.18gb" ends in the profile.
  std::string GetProfile(DeviceHandle handle) const {
    std::array<char, kTextBytes> text{};
    if (nvml_.DeviceGetName(handle, text.data(), text.size() - 1) != Code::kSuccess) return "";
    const std::string name = text.data();
    const std::size_t at = name.rfind(" MIG ");
    return at == std::string::npos ? "" : name.substr(at + 5);
  }

  const Nvml& nvml_;
  DeviceHandle device_ = nullptr;
  Gpu gpu_;
};

std::optional<MpsDaemon> FindMps(const std::string& given) {
  std::vector<std::string> directories;
  const char* variable = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (!given.empty()) {
    directories = {given};
  } else if (variable != nullptr && *variable != 0) {
    directories = {variable};
  } else {
    directories = {"/tmp/nvidia-mps", "/run/nvidia-mps"};
  }
  for (const std::string& directory : directories) {
    std::ifstream file(directory + "/nvidia-cuda-mps-control.pid");
    pid_t pid = 0;
    // A daemon that was killed leaves its file behind, so the process must exist as well.
    if (file >> pid && pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM)) {
      return MpsDaemon{.pid = static_cast<std::uint32_t>(pid), .directory = directory};
    }
  }
  return std::nullopt;
}

}  // namespace

Inventory ReadInventory(const InventoryOptions& options) {
  Inventory inventory;
  const Result<std::unique_ptr<const Nvml>> loaded = Nvml::Load(options.library);
  if (!loaded) {
    inventory.unavailable = loaded.status().message();
    return inventory;
  }
  const Nvml& nvml = **loaded;
  inventory.no_cuda = WhyNoCuda(options.cuda_library);
  std::array<char, kTextBytes> version{};
  if (nvml.SystemGetDriverVersion != nullptr &&
      nvml.SystemGetDriverVersion(version.data(), version.size() - 1) == Code::kSuccess) {
    inventory.driver_version = version.data();
  }
  if (nvml.SystemGetCudaDriverVersion == nullptr ||
      nvml.SystemGetCudaDriverVersion(&inventory.cuda_version) != Code::kSuccess) {
    inventory.cuda_version = 0;
  }
  unsigned count = 0;
  if (const Code code = nvml.DeviceGetCount(&count); code != Code::kSuccess) {
    inventory.unavailable =
        "the driver does not report its GPUs: " + nvml.Explain("nvmlDeviceGetCount", code);
    return inventory;
  }
  for (unsigned i = 0; i < std::min(count, kGpusMax); ++i) {
    inventory.gpus.push_back(GpuReader(nvml, i).Read());
  }
  inventory.mps = FindMps(options.mps_directory);
  return inventory;
}

}  // namespace gpushared::device
