// SPDX-License-Identifier: Apache-2.0
// What GPUs this machine has, which of them can be shared out, and which the operator's choice of
// devices means. Values and pure functions; read_inventory.h fills them from the machine.

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

enum class GpuMode : std::uint8_t {  // The operator's compute mode.
  kShared,
  kExclusive,   // One process at a time.
  kProhibited,  // No process.
};

// A part of a GPU in MIG mode that works as a GPU of its own.
struct GpuInstance {
  std::string uuid;     // "MIG-..."
  std::string profile;  // "1g.18gb"; empty when unknown.
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;  // 0: unknown.
  std::uint32_t gpu_instance = 0;
  std::uint32_t compute_instance = 0;
};

struct Gpu {
  std::uint32_t index = 0;  // The number that nvidia-smi shows.
  std::string uuid;         // "GPU-..."
  std::string name;
  std::string pci_bus;             // "00000000:17:00.0"
  std::uint64_t memory_bytes = 0;  // 0: unknown, as the next.
  std::uint32_t multiprocessors = 0;
  GpuMode mode = GpuMode::kShared;
  bool mig_enabled = false;
  std::vector<GpuInstance> instances;    // Under MIG mode.
  std::vector<std::uint32_t> processes;  // Holders of a context on it.
  std::string trouble;                   // Why it could not be read: lost, no permission, ...
  bool is_lost = false;                  // The driver says so: it fell off its bus.
};

// The MPS control daemon that our workers would become clients of.
struct MpsDaemon {
  std::uint32_t pid = 0;
  std::string directory;  // Where its pipes lie.
};

struct Inventory {
  std::string driver_version;  // "580.65.06"
  int cuda_version = 0;        // 13000; 0: unknown.
  std::string unavailable;     // Why there is nothing at all; empty when there is.
  std::string no_cuda;         // Why no worker can open a GPU; empty when the driver is there.
  std::vector<Gpu> gpus;
  std::optional<MpsDaemon> mps;
};

// Why the GPU, or the instances on it, cannot be used, and what to do; nothing when it can.
std::optional<std::string> Obstacle(const Inventory& inventory, const Gpu& gpu);

// A device that a worker is to open.
struct SelectedDevice {
  std::string id;       // "cpu:0", "cuda:1", "MIG-...": what it is called from then on.
  std::string uuid;     // Empty for cpu devices.
  std::string name;     // For people, until the worker says more.
  std::string pci_bus;  // Empty for cpu devices.
  std::uint64_t memory_bytes = 0;
  std::uint32_t multiprocessors = 0;
  // The worker's CUDA_VISIBLE_DEVICES; empty for cpu devices.
  std::string visible_devices;
};

// Whether a GPU or instance that was there once still is.
struct Presence {
  enum class Kind : std::uint8_t {
    kThere,
    kGone,     // The driver has it no longer, or not as a device of its own.
    kUnclear,  // The driver does not tell.
  };
  Kind kind = Kind::kThere;
  std::string why;  // Unless it is there.
};
Presence GetPresence(std::string_view uuid, const Inventory& inventory);

// A GPU or instance that is there and was not selected.
struct UnusedDevice {
  std::string id;
  std::string name;
  std::string why;
};

struct Selection {
  std::vector<SelectedDevice> devices;  // At least one.
  std::vector<UnusedDevice> unused;
  std::string why_cpu;  // Why `auto` fell back to the cpu device.
};

// Devices of one selection; more is kInvalidArgument.
inline constexpr std::size_t kDevicesMax = 64;

// Selects the devices that the operator wants. `wanted` is "auto" (every usable GPU and instance,
// else cpu:0), or a comma list of cpu:I, cuda:I, GPU-<uuid> and MIG-<uuid>. The beginning of a UUID
// suffices if only one device has it. kInvalidArgument for empty items, duplicates and ambiguity;
// kNotFound for a missing device; kUnavailable for one that cannot be used.
Result<Selection> SelectDevices(std::string_view wanted, const Inventory& inventory);

// Of a server that runs and has the devices of these UUIDs: what `auto` would take in addition.
std::vector<SelectedDevice> NewClients(const Inventory& inventory,
                                       const std::vector<std::string>& uuids);
// And what it leaves. `why`: of those that nothing else speaks against.
std::vector<UnusedDevice> UnusedDevices(const Inventory& inventory,
                                        const std::vector<std::string>& uuids,
                                        const std::string& why);

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_INVENTORY_INVENTORY_H_
