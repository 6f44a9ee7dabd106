// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library, loaded at run time: own declarations of the part of its C interface
// that the inventory, the monitor and MIG management use.

#ifndef GPUSHARED_SERVER_DEVICE_INVENTORY_NVML_H_
#define GPUSHARED_SERVER_DEVICE_INVENTORY_NVML_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "gpushared/result.h"
#include "gpushared/status.h"

namespace gpushared::device::nvml {

enum class [[nodiscard]] Code : int{
    kSuccess = 0,          kUninitialized = 1,
    kInvalidArgument = 2,  kNotSupported = 3,
    kNoPermission = 4,     kNotFound = 6,
    kInsufficientSize = 7, kDriverNotLoaded = 9,
    kTimeout = 10,         kFunctionNotFound = 13,
    kGpuIsLost = 15,       kResetRequired = 16,
    kVersionMismatch = 18,  // Versions of library and kernel module differ, as after an update.
    kInUse = 19,           kInsufficientResources = 23,
    kUnknown = 999,
};

using DeviceHandle = struct DeviceTarget*;  // Refers to a GPU or a MIG instance.

struct MemoryInfo {
  std::uint64_t total = 0, free = 0, used = 0;  // In bytes.
};
static_assert(sizeof(MemoryInfo) == 24);

struct PciInfo {
  char bus_id_legacy[16] = {};
  std::uint32_t domain = 0, bus = 0, device = 0, device_id = 0, subsystem_id = 0;
  char bus_id[32] = {};
};
static_assert(sizeof(PciInfo) == 68);

struct Attributes {
  std::uint32_t multiprocessors = 0;
  std::uint32_t copy_engines = 0, decoders = 0, encoders = 0, jpeg_engines = 0, ofa_engines = 0;
  std::uint32_t gpu_instance_slices = 0, compute_instance_slices = 0;
  std::uint64_t memory_mib = 0;
};
static_assert(sizeof(Attributes) == 40);

struct ProcessInfo {
  std::uint32_t pid = 0;
  std::uint64_t used_bytes = 0;
  std::uint32_t gpu_instance = 0, compute_instance = 0;
};
static_assert(sizeof(ProcessInfo) == 24);

// ---- Sensors and events.

struct Utilization {
  std::uint32_t gpu = 0, memory = 0;  // In percent.
};
static_assert(sizeof(Utilization) == 8);

using EventSet = struct EventSetTarget*;

struct EventData {
  DeviceHandle device = nullptr;
  std::uint64_t type = 0, data = 0;  // Of an Xid event, `data` is the Xid.
  std::uint32_t gpu_instance = 0, compute_instance = 0;
};
static_assert(sizeof(EventData) == 32);

// ---- MIG. A GPU instance is a part of a GPU, and a compute instance is a part of a GPU instance.
// To programs, each compute instance is a device.

using GpuInstanceHandle = struct GpuInstanceTarget*;
using ComputeInstanceHandle = struct ComputeInstanceTarget*;

// NVML enumerates profiles by numbers from 0 to one less than this. These are not the profile ids.
inline constexpr unsigned kGpuInstanceProfiles = 0x12;
inline constexpr unsigned kComputeInstanceProfiles = 0x9;

struct MigPlacement {
  std::uint32_t start = 0, size = 0;  // In slices of memory or multiprocessors.
};
static_assert(sizeof(MigPlacement) == 8);

struct GpuInstanceProfile {
  std::uint32_t id = 0, is_p2p_supported = 0, slice_count = 0, instance_count = 0;
  std::uint32_t multiprocessors = 0, copy_engines = 0, decoders = 0, encoders = 0, jpeg_engines = 0;
  std::uint32_t ofa_engines = 0;
  std::uint64_t memory_mib = 0;
};
static_assert(sizeof(GpuInstanceProfile) == 48);

struct GpuInstanceProfileV2 {
  std::uint32_t version = kVersion;
  std::uint32_t id = 0, is_p2p_supported = 0, slice_count = 0, instance_count = 0;
  std::uint32_t multiprocessors = 0, copy_engines = 0, decoders = 0, encoders = 0, jpeg_engines = 0;
  std::uint32_t ofa_engines = 0;
  std::uint64_t memory_mib = 0;
  char name[96] = {};  // "MIG 1g.5gb"
  // Size of the struct, and number of its version.
  static constexpr std::uint32_t kVersion = 152 | (2U << 24);
};
static_assert(sizeof(GpuInstanceProfileV2) == 152);

struct GpuInstanceInfo {
  DeviceHandle device = nullptr;
  std::uint32_t id = 0, profile_id = 0;
  MigPlacement placement;
};
static_assert(sizeof(GpuInstanceInfo) == 24);

struct ComputeInstanceProfile {
  std::uint32_t id = 0, slice_count = 0, instance_count = 0, multiprocessors = 0;
  std::uint32_t copy_engines = 0, decoders = 0, encoders = 0, jpeg_engines = 0, ofa_engines = 0;
};
static_assert(sizeof(ComputeInstanceProfile) == 36);

struct ComputeInstanceInfo {
  DeviceHandle device = nullptr;
  GpuInstanceHandle gpu_instance = nullptr;
  std::uint32_t id = 0, profile_id = 0;
  MigPlacement placement;
};
static_assert(sizeof(ComputeInstanceInfo) == 32);

// Rows: X(name, suffix, required, signature). The library exports nvml<name><suffix>. Without a
// required call there is no inventory. Without an optional call, only its information remains
// unknown.
// clang-format off
#define GPUSHARED_NVML_SYMBOLS(X)                                                                  \
  X(Init, _v2, true, ())                                                                           \
  X(Shutdown, , true, ())                                                                          \
  X(SystemGetDriverVersion, , false, (char* text, unsigned bytes))                                 \
  X(SystemGetCudaDriverVersion, _v2, false, (int* version))                                        \
  X(DeviceGetCount, _v2, true, (unsigned* count))                                                  \
  X(DeviceGetHandleByIndex, _v2, true, (unsigned index, DeviceHandle* device))                     \
  X(DeviceGetUUID, , true, (DeviceHandle device, char* text, unsigned bytes))                      \
  X(DeviceGetName, , true, (DeviceHandle device, char* text, unsigned bytes))                      \
  X(DeviceGetMemoryInfo, , true, (DeviceHandle device, MemoryInfo* memory))                        \
  X(DeviceGetPciInfo, _v3, false, (DeviceHandle device, PciInfo* pci))                             \
  X(DeviceGetComputeMode, , false, (DeviceHandle device, int* mode))                               \
  X(DeviceGetComputeRunningProcesses, _v3, false,                                                  \
    (DeviceHandle device, unsigned* count, ProcessInfo* processes))                                \
  X(DeviceGetNumGpuCores, , false, (DeviceHandle device, unsigned* cores))                         \
  X(DeviceGetCudaComputeCapability, , false, (DeviceHandle device, int* major, int* minor))        \
  X(DeviceGetMigMode, , false, (DeviceHandle device, unsigned* current, unsigned* pending))        \
  X(DeviceGetMaxMigDeviceCount, , false, (DeviceHandle device, unsigned* count))                   \
  X(DeviceGetMigDeviceHandleByIndex, , false,                                                      \
    (DeviceHandle device, unsigned index, DeviceHandle* instance))                                 \
  X(DeviceGetAttributes, _v2, false, (DeviceHandle device, Attributes* attributes))                \
  X(DeviceGetGpuInstanceId, , false, (DeviceHandle device, unsigned* id))                          \
  X(DeviceGetComputeInstanceId, , false, (DeviceHandle device, unsigned* id))                      \
  X(DeviceGetTotalEnergyConsumption, , false, (DeviceHandle device, std::uint64_t* millijoules))   \
  X(DeviceGetUtilizationRates, , false, (DeviceHandle device, Utilization* utilization))           \
  X(DeviceGetPowerUsage, , false, (DeviceHandle device, unsigned* milliwatts))                     \
  X(DeviceGetTemperature, , false, (DeviceHandle device, int sensor, unsigned* celsius))           \
  X(DeviceGetClockInfo, , false, (DeviceHandle device, int clock, unsigned* megahertz))            \
  X(DeviceGetTotalEccErrors, , false,                                                              \
    (DeviceHandle device, int kind, int counter, std::uint64_t* errors))                           \
  X(EventSetCreate, , false, (EventSet* set))                                                      \
  X(DeviceRegisterEvents, , false, (DeviceHandle device, std::uint64_t types, EventSet set))       \
  X(EventSetWait, _v2, false, (EventSet set, EventData* event, unsigned timeout_ms))               \
  X(EventSetFree, , false, (EventSet set))                                                         \
  X(DeviceGetMinorNumber, , false, (DeviceHandle device, unsigned* minor))                         \
  X(DeviceSetMigMode, , false, (DeviceHandle device, unsigned mode, Code* activation))             \
  X(DeviceGetGpuInstanceProfileInfo, , false,                                                      \
    (DeviceHandle device, unsigned profile, GpuInstanceProfile* info))                             \
  X(DeviceGetGpuInstanceProfileInfoV, , false,                                                     \
    (DeviceHandle device, unsigned profile, GpuInstanceProfileV2* info))                           \
  X(DeviceGetGpuInstancePossiblePlacements, _v2, false,                                            \
    (DeviceHandle device, unsigned profile_id, MigPlacement* placements, unsigned* count))         \
  X(DeviceCreateGpuInstanceWithPlacement, , false,                                                 \
    (DeviceHandle device, unsigned profile_id, const MigPlacement* placement,                      \
     GpuInstanceHandle* instance))                                                                 \
  X(DeviceGetGpuInstances, , false,                                                                \
    (DeviceHandle device, unsigned profile_id, GpuInstanceHandle* instances, unsigned* count))     \
  X(DeviceGetGpuInstanceById, , false,                                                             \
    (DeviceHandle device, unsigned id, GpuInstanceHandle* instance))                               \
  X(GpuInstanceGetInfo, , false, (GpuInstanceHandle instance, GpuInstanceInfo* info))              \
  X(GpuInstanceDestroy, , false, (GpuInstanceHandle instance))                                     \
  X(GpuInstanceGetComputeInstanceProfileInfo, , false,                                             \
    (GpuInstanceHandle instance, unsigned profile, unsigned engine_profile,                        \
     ComputeInstanceProfile* info))                                                                \
  X(GpuInstanceCreateComputeInstance, , false,                                                     \
    (GpuInstanceHandle instance, unsigned profile_id, ComputeInstanceHandle* compute))             \
  X(GpuInstanceCreateComputeInstanceWithPlacement, , false,                                        \
    (GpuInstanceHandle instance, unsigned profile_id, const MigPlacement* placement,               \
     ComputeInstanceHandle* compute))                                                              \
  X(GpuInstanceGetComputeInstances, , false,                                                       \
    (GpuInstanceHandle instance, unsigned profile_id, ComputeInstanceHandle* computes,             \
     unsigned* count))                                                                             \
  X(ComputeInstanceGetInfo, _v2, false,                                                            \
    (ComputeInstanceHandle compute, ComputeInstanceInfo* info))                                    \
  X(ComputeInstanceDestroy, , false, (ComputeInstanceHandle compute))
// clang-format on

// The initialized library. The destructor shuts it down, because an open session prevents operators
// from changing MIG modes and resetting GPUs. The library itself is loaded once and never unloaded:
// an object that is created later works after the driver was reloaded, but reports a version
// mismatch after the driver was updated. Calls that the library lacks are null.
//
// Thread-safe, as the library is.
class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  // Fails with kNotFound if the library is missing, kUnsupported if it lacks a required call, and
  // kUnavailable if it cannot be initialized.
  static Result<std::unique_ptr<const Nvml>> Load(const std::string& library = kLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

#define GPUSHARED_NVML_MEMBER(name, suffix, required, signature) Code(*name) signature = nullptr;
  GPUSHARED_NVML_SYMBOLS(GPUSHARED_NVML_MEMBER)
#undef GPUSHARED_NVML_MEMBER

  // "nvmlDeviceGetUUID: GPU is lost (15)"
  std::string Explain(std::string_view call, Code code) const;

 private:
  Nvml() = default;
  void* library_ = nullptr;
  bool initialized_ = false;
  const char* (*error_string_)(Code) = nullptr;
};

}  // namespace gpushared::device::nvml

#endif  // GPUSHARED_SERVER_DEVICE_INVENTORY_NVML_H_
