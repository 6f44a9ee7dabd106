// SPDX-License-Identifier: Apache-2.0
#include "server/device/inventory/inventory.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace gpushared::device {
namespace {

constexpr std::size_t kQuotedMax = 64;
constexpr std::size_t kProcessesNamedMax = 4;

std::string Quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, kQuotedMax)) + "'";
}

std::string GpuId(const Gpu& gpu) { return "cuda:" + std::to_string(gpu.index); }

// "GPU 0 (NVIDIA H200)"
std::string Named(const Gpu& gpu) {
  return "GPU " + std::to_string(gpu.index) + (gpu.name.empty() ? "" : " (" + gpu.name + ")");
}

std::string ProcessList(const std::vector<std::uint32_t>& pids) {
  std::string list;
  for (std::size_t i = 0; i < pids.size() && i < kProcessesNamedMax; ++i) {
    list += (i == 0 ? "" : ", ") + std::to_string(pids[i]);
  }
  return list + (pids.size() > kProcessesNamedMax ? ", ..." : "");
}

// A device that can be selected and opened: a GPU, or one instance of it.
struct Candidate {
  const Gpu* gpu = nullptr;
  const GpuInstance* instance = nullptr;

  std::string id() const { return instance != nullptr ? instance->uuid : GpuId(*gpu); }
  const std::string& uuid() const { return instance != nullptr ? instance->uuid : gpu->uuid; }
};

std::string GetName(const Candidate& one) {
  if (one.instance == nullptr) return one.gpu->name;
  return one.gpu->name + " MIG " +
         (one.instance->profile.empty() ? "instance" : one.instance->profile);
}

// Returns every GPU without instances, and every instance of the other GPUs.
std::vector<Candidate> Candidates(const Inventory& inventory) {
  std::vector<Candidate> all;
  for (const Gpu& gpu : inventory.gpus) {
    if (gpu.instances.empty()) all.push_back({.gpu = &gpu});
    for (const GpuInstance& instance : gpu.instances) {
      all.push_back({.gpu = &gpu, .instance = &instance});
    }
  }
  return all;
}

SelectedDevice Selected(const Candidate& one) {
  const Gpu& gpu = *one.gpu;
  return {.id = one.id(),
          .uuid = one.uuid(),
          .name = GetName(one),
          .pci_bus = gpu.pci_bus,
          .memory_bytes = one.instance != nullptr ? one.instance->memory_bytes : gpu.memory_bytes,
          .multiprocessors =
              one.instance != nullptr ? one.instance->multiprocessors : gpu.multiprocessors,
          .visible_devices = one.uuid()};
}

SelectedDevice CpuDevice(std::string id) {
  return {.id = std::move(id), .name = "embedded cpu device"};
}

// Each device has exactly one spelling; otherwise "cpu:00" would be another name of "cpu:0".
std::optional<std::uint32_t> NumberAfter(std::string_view item, std::string_view prefix) {
  if (!item.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = item.substr(prefix.size());
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      std::to_string(number) != digits) {
    return std::nullopt;
  }
  return number;
}

Status NotThere(std::string_view item, const Inventory& inventory) {
  std::string there = "cpu:N";
  for (const Candidate& one : Candidates(inventory)) {
    there += ", " + one.id() + (one.instance == nullptr ? " (" + one.uuid() + ")" : "");
  }
  std::string message = "no device is called " + Quoted(item) + ", this machine has " + there;
  if (!inventory.unavailable.empty()) message += "; " + inventory.unavailable;
  return {StatusCode::kNotFound, message};
}

// A GPU in MIG mode can only be used through its instances.
Status WholeGpuInMigMode(const Gpu& gpu) {
  std::string instances;
  for (const GpuInstance& instance : gpu.instances) {
    instances += (instances.empty() ? "" : ", ") + instance.uuid;
  }
  return {StatusCode::kUnavailable,
          "device rejected: " + Named(gpu) +
              " is in MIG mode, name its instances instead: " + instances};
}

Result<Candidate> ByUuid(std::string_view item, const Inventory& inventory) {
  std::vector<Candidate> found;
  for (const Gpu& gpu : inventory.gpus) {
    if (gpu.uuid.starts_with(item)) found.push_back({.gpu = &gpu});
    for (const GpuInstance& instance : gpu.instances) {
      if (instance.uuid.starts_with(item)) found.push_back({.gpu = &gpu, .instance = &instance});
    }
  }
  const auto exact =
      std::ranges::find_if(found, [&](const Candidate& one) { return one.uuid() == item; });
  if (exact != found.end()) return *exact;
  if (found.empty()) return NotThere(item, inventory);
  if (found.size() == 1) return found[0];
  return Status(StatusCode::kInvalidArgument,
                "device list rejected: " + Quoted(item) + " is the beginning of " +
                    std::to_string(found.size()) + " UUIDs, " + found[0].uuid() + " and " +
                    found[1].uuid() + (found.size() > 2 ? " among them" : ""));
}

Result<Candidate> ByIndex(std::uint32_t index, std::string_view item, const Inventory& inventory) {
  const auto gpu = std::ranges::find(inventory.gpus, index, &Gpu::index);
  if (gpu == inventory.gpus.end()) return NotThere(item, inventory);
  return Candidate{.gpu = &*gpu};
}

Result<SelectedDevice> SelectOne(std::string_view item, const Inventory& inventory) {
  if (NumberAfter(item, "cpu:")) return CpuDevice(std::string(item));
  Result<Candidate> found(NotThere(item, inventory));
  if (const auto index = NumberAfter(item, "cuda:"); index) {
    found = ByIndex(*index, item, inventory);
  } else if ((item.starts_with("GPU-") || item.starts_with("MIG-")) && item.size() > 4) {
    found = ByUuid(item, inventory);
  }
  if (!found) return found.status();
  if (const auto obstacle = Obstacle(inventory, *found->gpu); obstacle) {
    return Status(StatusCode::kUnavailable, "device " + Quoted(item) + " rejected: " + *obstacle);
  }
  if (found->instance == nullptr && found->gpu->mig_enabled) return WholeGpuInMigMode(*found->gpu);
  return Selected(*found);
}

Selection SelectAuto(const Inventory& inventory) {
  Selection selection;
  for (const Candidate& one : Candidates(inventory)) {
    std::optional<std::string> why = Obstacle(inventory, *one.gpu);
    if (!why && !inventory.no_cuda.empty()) why = inventory.no_cuda;
    if (!why && selection.devices.size() == kDevicesMax) {
      why = "a server has at most " + std::to_string(kDevicesMax) + " devices";
    }
    if (why) {
      selection.unused.push_back({.id = one.id(), .name = GetName(one), .why = *why});
    } else {
      selection.devices.push_back(Selected(one));
    }
  }
  if (!selection.devices.empty()) return selection;
  selection.devices.push_back(CpuDevice("cpu:0"));
  if (!inventory.unavailable.empty()) {
    selection.why_cpu = inventory.unavailable;
  } else if (selection.unused.empty()) {
    selection.why_cpu = "the driver sees no GPU";
  } else {
    selection.why_cpu = "no GPU can be used: " + selection.unused[0].why;
    if (selection.unused.size() > 1) {
      selection.why_cpu += " (and " + std::to_string(selection.unused.size() - 1) + " more)";
    }
  }
  return selection;
}

}  // namespace

std::optional<std::string> Obstacle(const Inventory& inventory, const Gpu& gpu) {
  const std::string index = std::to_string(gpu.index);
  if (!gpu.trouble.empty()) return Named(gpu) + " does not answer: " + gpu.trouble;
  if (gpu.mode == GpuMode::kProhibited) {
    return Named(gpu) + " is in compute mode PROHIBITED, allow it with 'nvidia-smi -i " + index +
           " -c DEFAULT'";
  }
  if (inventory.mps) {
    return "an MPS control daemon (pid " + std::to_string(inventory.mps->pid) + ", pipes in " +
           inventory.mps->directory +
           ") controls the GPUs: workers would be its clients, with its limits and its faults; end "
           "it with 'echo quit | nvidia-cuda-mps-control'";
  }
  if (gpu.mode == GpuMode::kExclusive && !gpu.processes.empty()) {
    return Named(gpu) + " is in compute mode EXCLUSIVE_PROCESS and process " +
           ProcessList(gpu.processes) +
           " uses it, end that process or share the GPU with 'nvidia-smi -i " + index +
           " -c DEFAULT'";
  }
  if (gpu.mig_enabled && gpu.instances.empty()) {
    return Named(gpu) + " is in MIG mode and has no instances, make some with 'nvidia-smi mig -i " +
           index + " -cgi <profile> -C' (profiles: 'nvidia-smi mig -i " + index +
           " -lgip') or leave MIG mode with 'nvidia-smi -i " + index + " -mig 0'";
  }
  return std::nullopt;
}

Result<Selection> SelectDevices(std::string_view wanted, const Inventory& inventory) {
  if (wanted == "auto") return SelectAuto(inventory);
  Selection selection;
  for (bool more = true; more;) {
    const std::size_t comma = wanted.find(',');
    const std::string_view item = wanted.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) wanted.remove_prefix(comma + 1);
    if (item.empty()) {
      return Status(StatusCode::kInvalidArgument, "device list rejected: it has an empty item");
    }
    Result<SelectedDevice> device = SelectOne(item, inventory);
    if (!device) return device.status();
    if (std::ranges::find(selection.devices, device->id, &SelectedDevice::id) !=
        selection.devices.end()) {
      return Status(StatusCode::kInvalidArgument,
                    "device list rejected: " + Quoted(item) + " is named twice");
    }
    if (selection.devices.size() == kDevicesMax) {
      return Status(StatusCode::kInvalidArgument,
                    "device list rejected: more than " + std::to_string(kDevicesMax) + " devices");
    }
    selection.devices.push_back(std::move(*device));
  }
  std::vector<std::string> uuids;
  for (const SelectedDevice& device : selection.devices) {
    if (!device.uuid.empty()) uuids.push_back(device.uuid);
  }
  selection.unused = UnusedDevices(inventory, uuids, "not named by the device option");
  return selection;
}

Presence GetPresence(std::string_view uuid, const Inventory& inventory) {
  using enum Presence::Kind;
  if (!inventory.unavailable.empty()) return {.kind = kUnclear, .why = inventory.unavailable};
  Presence otherwise{.kind = kGone, .why = "the driver no longer reports it"};
  for (const Gpu& gpu : inventory.gpus) {
    const std::string trouble = Named(gpu) + " does not answer: " + gpu.trouble;
    if (gpu.uuid == uuid) {
      if (!gpu.trouble.empty()) return {.kind = gpu.is_lost ? kGone : kUnclear, .why = trouble};
      if (gpu.mig_enabled) return {.kind = kGone, .why = Named(gpu) + " is in MIG mode now"};
      return {};
    }
    if (std::ranges::find(gpu.instances, uuid, &GpuInstance::uuid) != gpu.instances.end()) {
      return {};
    }
    // The UUID may belong to this GPU or to one of its instances, which could not all be read.
    if (!gpu.trouble.empty()) {
      otherwise = {.kind = gpu.is_lost && otherwise.kind == kGone ? kGone : kUnclear,
                   .why = otherwise.why + "; " + trouble};
    }
  }
  return otherwise;
}

std::vector<SelectedDevice> NewDevices(const Inventory& inventory,
                                       const std::vector<std::string>& uuids) {
  std::vector<SelectedDevice> devices = SelectAuto(inventory).devices;
  std::erase_if(devices, [&](const SelectedDevice& device) {
    return device.uuid.empty() || std::ranges::find(uuids, device.uuid) != uuids.end();
  });
  return devices;
}

std::vector<UnusedDevice> UnusedDevices(const Inventory& inventory,
                                        const std::vector<std::string>& uuids,
                                        const std::string& why) {
  std::vector<UnusedDevice> unused;
  for (const Candidate& one : Candidates(inventory)) {
    if (std::ranges::find(uuids, one.uuid()) != uuids.end()) continue;
    const auto obstacle = Obstacle(inventory, *one.gpu);
    unused.push_back({.id = one.id(), .name = GetName(one), .why = obstacle.value_or(why)});
  }
  return unused;
}

}  // namespace gpushared::device
