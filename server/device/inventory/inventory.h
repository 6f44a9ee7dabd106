// SPDX-License-Identifier: Apache-2.0
// Inventory of the machine's GPUs: which of them can be shared, and which devices an operator's
// selection refers to. Contains only values and pure functions; read_inventory.h reads the values
// from the machine.

#ifndef GPUSHARED_SERVER_DEVICE_INVENTORY_INVENTORY_H_
#define GPUSHARED_SERVER_DEVICE_INVENTORY_INVENTORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::device {

enum class GpuMode : std::uint8_t {  // Compute mode set by the operator.
  kShared,
  kExclusive,   // Only one process at a time may use the GPU.
  kProhibited,  // No process may use the GPU.
};

// Part of a GPU in MIG mode that acts as a separate GPU.
struct GpuInstance {
  std::string uuid;     // "MIG-..."
  std::string profile;  // "1g.18gb"; empty if unknown.
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;  // 0 if unknown.
  std::uint32_t gpu_instance = 0;
  std::uint32_t compute_instance = 0;
};

struct Gpu {
  std::uint32_t index = 0;  // Number displayed by nvidia-smi.
  std::string uuid;         // "GPU-..."
  std::string name;
  std::string pci_bus;             // "00000000:17:00.0"
  std::uint64_t memory_bytes = 0;  // This and the next member are 0 if unknown.
  std::uint32_t multiprocessors = 0;
  GpuMode mode = GpuMode::kShared;
  bool mig_enabled = false;
  std::vector<GpuInstance> instances;    // Instances of a GPU in MIG mode.
  std::vector<std::uint32_t> processes;  // Processes with a context on the GPU.
  std::string trouble;   // Reason why the GPU could not be read: lost, no permission, ...
  bool is_lost = false;  // Whether the driver reports that the GPU fell off the bus.
};

// MPS control daemon to which our workers would connect as clients.
struct MpsDaemon {
  std::uint32_t pid = 0;
  std::string directory;  // Directory of its pipes.
};

struct Inventory {
  std::string driver_version;  // "580.65.06"
  int cuda_version = 0;        // 13000; 0 if unknown.
  std::string unavailable;     // Reason why nothing could be read; otherwise empty.
  std::string no_cuda;  // Reason why workers cannot open GPUs; empty if the driver is installed.
  std::vector<Gpu> gpus;
  std::optional<MpsDaemon> mps;
};

// Returns the reason why the GPU or its instances cannot be used, with a remedy; no value if they
// can.
std::optional<std::string> Obstacle(const Inventory& inventory, const Gpu& gpu);

// A device for a worker to open.
struct SelectedDevice {
  std::string id;       // Name of the device in this server: "cpu:0", "cuda:1", "MIG-...".
  std::string uuid;     // Empty for cpu devices.
  std::string name;     // Human-readable; used until the worker has reported its own.
  std::string pci_bus;  // Empty for cpu devices.
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;
  // The worker's CUDA_VISIBLE_DEVICES; empty for cpu devices.
  std::string visible_devices;
};

// Whether a known GPU or instance still exists.
struct Presence {
  enum class Kind : std::uint8_t {
    kPresent,
    kGone,     // The device is no longer reported or is lost, or its GPU is now in MIG mode.
    kUnclear,  // The driver does not provide the information.
  };
  Kind kind = Kind::kPresent;
  std::string why;  // Reason, unless the device is present.
};
Presence GetPresence(std::string_view uuid, const Inventory& inventory);

// An existing GPU or instance that was not selected.
struct UnusedDevice {
  std::string id;
  std::string name;
  std::string why;
};

struct Selection {
  std::vector<SelectedDevice> devices;  // At least one.
  std::vector<UnusedDevice> unused;
  std::string why_cpu;  // Reason why `auto` fell back to the cpu device.
};

// Maximum number of selected devices; kInvalidArgument for more.
inline constexpr std::size_t kDevicesMax = 64;

// Selects the operator's devices. `wanted` is "auto" (every usable GPU and instance, otherwise
// cpu:0), or a comma-separated list of cpu:I, cuda:I, GPU-<uuid> and MIG-<uuid>. A prefix of a UUID
// is accepted if it is unique. Fails with kInvalidArgument for empty items, duplicates and
// ambiguity, kNotFound for a missing device, and kUnavailable for one that cannot be used.
Result<Selection> SelectDevices(std::string_view wanted, const Inventory& inventory);

// Returns the devices that `auto` would select in addition to those of a running server, which have
// these UUIDs.
std::vector<SelectedDevice> NewDevices(const Inventory& inventory,
                                       const std::vector<std::string>& uuids);
// Returns the devices other than those with these UUIDs. `why` is the reason reported for those
// that could be used.
std::vector<UnusedDevice> UnusedDevices(const Inventory& inventory,
                                        const std::vector<std::string>& uuids,
                                        const std::string& why);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_INVENTORY_INVENTORY_H_
