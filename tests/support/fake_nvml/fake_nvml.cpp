// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_nvml/fake_nvml.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_nvml/frame.h"

namespace gpushared::device::nvml {

using testing::fake_nvml::FakeCompute;
using testing::fake_nvml::FakeGpu;
using testing::fake_nvml::FakeInstance;
using testing::fake_nvml::Machine;
using testing::fake_nvml::Sensors;
using testing::fake_nvml::Target;

Fake g_fake;

void Fake::Keep() {
  told = testing::fake_nvml::WriteMachine(machine);
  const char* path = std::getenv("FAKE_NVML");
  if (given) {
    given = told;
  } else if (path != nullptr) {
    // Replaced atomically, because other processes may be reading it.
    const std::string part = std::string(path) + ".part";
    std::ofstream(part) << told << std::flush;
    std::rename(part.c_str(), path);
  }
}

namespace {

// Visits the machine's compute instances in order.
template <typename Visit>
void ForEachCompute(Visit&& visit) {
  for (const auto& gpu : g_fake.machine.gpus) {
    for (auto& [start, instance] : gpu->instances) {
      for (FakeCompute& compute : instance.compute) visit(compute);
    }
  }
}

std::string ReadFile() {
  const char* path = std::getenv("FAKE_NVML");
  if (path == nullptr) return {};
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs `body` on a whole GPU, after reading the sensors again if a file describes the machine.
template <typename Body>
Code OfSensors(const char* name, DeviceHandle device, Body&& body) {
  return OfGpu(name, device, [&](FakeGpu& gpu) {
    if (!g_fake.given) testing::fake_nvml::ReadSensors(ReadFile(), g_fake.machine);
    return body(gpu);
  });
}

template <typename Value>
Code ShowSensor(const char* name, DeviceHandle device, long long Sensors::*sensor, Value* value) {
  return OfSensors(name, device, [&](const FakeGpu& gpu) {
    if (gpu.sensors.*sensor < 0) return Code::kNotSupported;
    *value = static_cast<Value>(gpu.sensors.*sensor);
    return Code::kSuccess;
  });
}

Code Format(const std::string& text, char* out, unsigned bytes) {
  if (bytes <= text.size()) return Code::kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return Code::kSuccess;
}

}  // namespace

Target* FindTarget(DeviceHandle handle) {
  Target* found = nullptr;
  const void* const wanted = handle;
  for (const auto& gpu : g_fake.machine.gpus) {
    if (&gpu->self == wanted) found = &gpu->self;
  }
  ForEachCompute([&](FakeCompute& compute) {
    if (&compute.target == wanted) found = &compute.target;
  });
  return found;
}

FakeInstance* FindInstance(GpuInstanceHandle handle) {
  const void* const wanted = handle;
  for (const auto& gpu : g_fake.machine.gpus) {
    for (auto& [start, instance] : gpu->instances) {
      if (&instance == wanted) return &instance;
    }
  }
  return nullptr;
}

FakeCompute* FindCompute(ComputeInstanceHandle handle) {
  FakeCompute* found = nullptr;
  const void* const wanted = handle;
  ForEachCompute([&](FakeCompute& compute) {
    if (&compute == wanted) found = &compute;
  });
  return found;
}

extern "C" {

const char* nvmlErrorString(Code code) {
  switch (code) {
    case Code::kSuccess:
      return "The operation was successful";
    case Code::kInvalidArgument:
      return "Invalid Argument";
    case Code::kNotSupported:
      return "Not Supported";
    case Code::kNoPermission:
      return "Insufficient Permissions";
    case Code::kNotFound:
      return "Not Found";
    case Code::kDriverNotLoaded:
      return "Driver Not Loaded";
    case Code::kGpuIsLost:
      return "GPU is lost";
    case Code::kResetRequired:
      return "GPU requires reset";
    case Code::kVersionMismatch:
      return "Driver/library version mismatch";
    case Code::kInUse:
      return "In use by another client";
    case Code::kInsufficientResources:
      return "Insufficient Resources";
    default:
      return "Unknown Error";
  }
}

Code nvmlInit_v2() {
  const std::lock_guard lock(g_fake.mutex);
  std::string text = g_fake.given.value_or("{}");
  if (!g_fake.given && std::getenv("FAKE_NVML") != nullptr) text = ReadFile();
  Machine machine;
  if (const std::string wrong = ReadMachine(text, machine); !wrong.empty()) {
    std::fprintf(stderr, "fake_nvml: %s\n", wrong.c_str());
    return Code::kUnknown;
  }
  g_fake.machine = std::move(machine);
  g_fake.told = testing::fake_nvml::WriteMachine(g_fake.machine);
  g_fake.calls.clear();
  for (const auto& rule : g_fake.machine.fails) {
    if (rule.call == "nvmlInit") return rule.code;
  }
  ++g_fake.open;
  return Code::kSuccess;
}

Code nvmlShutdown() {
  return Called("nvmlShutdown", [] {
    --g_fake.open;
    return Code::kSuccess;
  });
}

Code nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return Called("nvmlSystemGetDriverVersion",
                [&] { return Format(g_fake.machine.driver, text, bytes); });
}

Code nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return Called("nvmlSystemGetCudaDriverVersion", [&] {
    *version = g_fake.machine.cuda;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetCount_v2(unsigned* count) {
  return Called("nvmlDeviceGetCount", [&] {
    *count = static_cast<unsigned>(g_fake.machine.gpus.size());
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetHandleByIndex_v2(unsigned index, DeviceHandle* device) {
  return Called("nvmlDeviceGetHandleByIndex", [&] {
    if (index >= g_fake.machine.gpus.size()) return Code::kInvalidArgument;
    FakeGpu& gpu = *g_fake.machine.gpus[index];
    *device = reinterpret_cast<DeviceHandle>(&gpu.self);
    return gpu.lost ? Code::kGpuIsLost : Code::kSuccess;
  });
}

Code nvmlDeviceGetUUID(DeviceHandle device, char* text, unsigned bytes) {
  return OfDevice("nvmlDeviceGetUUID", device,
                  [&](const Target& target) { return Format(GetUuid(target), text, bytes); });
}

Code nvmlDeviceGetName(DeviceHandle device, char* text, unsigned bytes) {
  return OfDevice("nvmlDeviceGetName", device, [&](const Target& target) {
    std::string name(target.gpu->board->product);
    if (target.instance != nullptr) {
      const auto& profile = *target.instance->profile;
      const unsigned slices = target.compute->slices;
      const bool is_whole = slices == profile.compute_slices();
      name += " MIG " + (is_whole ? "" : std::to_string(slices) + "c.") + std::string(profile.name);
    }
    return Format(name, text, bytes);
  });
}

Code nvmlDeviceGetMemoryInfo(DeviceHandle device, MemoryInfo* memory) {
  return OfDevice("nvmlDeviceGetMemoryInfo", device, [&](const Target& target) {
    const std::uint64_t mib = target.instance != nullptr ? target.instance->profile->memory_mib
                                                         : target.gpu->board->memory_mib;
    const long long used = target.instance != nullptr ? 0 : target.gpu->sensors.memory_used;
    *memory = {.total = mib << 20, .free = mib << 20, .used = 0};
    if (used > 0) memory->used = static_cast<std::uint64_t>(used);
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetPciInfo_v3(DeviceHandle device, PciInfo* pci) {
  return OfDevice("nvmlDeviceGetPciInfo", device, [&](const Target& target) {
    *pci = {};
    pci->bus = 0x10 + target.gpu->index;
    pci->device_id = target.gpu->board->model;
    std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetComputeMode(DeviceHandle device, int* mode) {
  return OfGpu("nvmlDeviceGetComputeMode", device, [&](const FakeGpu& gpu) {
    *mode = gpu.compute_mode;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetComputeRunningProcesses_v3(DeviceHandle device, unsigned* count,
                                             ProcessInfo* processes) {
  return OfDevice("nvmlDeviceGetComputeRunningProcesses", device, [&](const Target& target) {
    std::vector<unsigned> pids;
    if (target.compute != nullptr) {
      pids = target.compute->processes;
    } else {
      pids = target.gpu->processes;
      ForEachCompute([&](const FakeCompute& compute) {
        if (compute.target.gpu != target.gpu) return;
        pids.insert(pids.end(), compute.processes.begin(), compute.processes.end());
      });
    }
    const unsigned room = *count;
    *count = static_cast<unsigned>(pids.size());
    if (room < *count) return Code::kInsufficientSize;
    for (unsigned i = 0; i < *count; ++i) processes[i] = {.pid = pids[i]};
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetNumGpuCores(DeviceHandle device, unsigned* cores) {
  return OfGpu("nvmlDeviceGetNumGpuCores", device, [&](const FakeGpu& gpu) {
    *cores = gpu.board->cores;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetCudaComputeCapability(DeviceHandle device, int* major, int* minor) {
  return OfDevice("nvmlDeviceGetCudaComputeCapability", device, [&](const Target& target) {
    *major = target.gpu->board->major;
    *minor = target.gpu->board->minor;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetMigMode(DeviceHandle device, unsigned* current, unsigned* pending) {
  return OfGpu("nvmlDeviceGetMigMode", device, [&](const FakeGpu& gpu) {
    if (gpu.board->profiles.empty()) return Code::kNotSupported;
    *current = gpu.mig;
    *pending = gpu.mig_pending;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetMaxMigDeviceCount(DeviceHandle device, unsigned* count) {
  return OfGpu("nvmlDeviceGetMaxMigDeviceCount", device, [&](const FakeGpu& gpu) {
    *count = gpu.board->instances_max;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetMigDeviceHandleByIndex(DeviceHandle device, unsigned index,
                                         DeviceHandle* instance) {
  return OfGpu("nvmlDeviceGetMigDeviceHandleByIndex", device, [&](FakeGpu& gpu) {
    if (!gpu.mig) return Code::kNotFound;
    for (auto& [start, gpu_instance] : gpu.instances) {
      for (FakeCompute& compute : gpu_instance.compute) {
        // Compute instances are numbered by their first slice, so the numbers have holes.
        if (start + compute.start != index) continue;
        *instance = reinterpret_cast<DeviceHandle>(&compute.target);
        return Code::kSuccess;
      }
    }
    return Code::kNotFound;
  });
}

Code nvmlDeviceGetAttributes_v2(DeviceHandle device, Attributes* attributes) {
  return OfDevice("nvmlDeviceGetAttributes", device, [&](const Target& target) {
    if (target.instance == nullptr) return Code::kNotSupported;
    *attributes = {};
    attributes->multiprocessors = target.instance->profile->multiprocessors;
    attributes->memory_mib = target.instance->profile->memory_mib;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetGpuInstanceId(DeviceHandle device, unsigned* id) {
  return OfDevice("nvmlDeviceGetGpuInstanceId", device, [&](const Target& target) {
    if (target.instance == nullptr) return Code::kNotSupported;
    *id = target.instance->id();
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetComputeInstanceId(DeviceHandle device, unsigned* id) {
  return OfDevice("nvmlDeviceGetComputeInstanceId", device, [&](const Target& target) {
    if (target.instance == nullptr) return Code::kNotSupported;
    *id = target.compute->id;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetTotalEnergyConsumption(DeviceHandle device, std::uint64_t* millijoules) {
  return ShowSensor("nvmlDeviceGetTotalEnergyConsumption", device, &Sensors::energy_mj,
                    millijoules);
}

Code nvmlDeviceGetUtilizationRates(DeviceHandle device, Utilization* utilization) {
  return ShowSensor("nvmlDeviceGetUtilizationRates", device, &Sensors::utilization,
                    &utilization->gpu);
}

Code nvmlDeviceGetPowerUsage(DeviceHandle device, unsigned* milliwatts) {
  return ShowSensor("nvmlDeviceGetPowerUsage", device, &Sensors::power_mw, milliwatts);
}

Code nvmlDeviceGetTemperature(DeviceHandle device, int sensor, unsigned* celsius) {
  if (sensor != 0) return Code::kInvalidArgument;
  return ShowSensor("nvmlDeviceGetTemperature", device, &Sensors::temperature, celsius);
}

Code nvmlDeviceGetClockInfo(DeviceHandle device, int clock, unsigned* megahertz) {
  if (clock != 1 && clock != 2) return Code::kInvalidArgument;
  return ShowSensor("nvmlDeviceGetClockInfo", device,
                    clock == 1 ? &Sensors::sm_clock : &Sensors::memory_clock, megahertz);
}

Code nvmlDeviceGetTotalEccErrors(DeviceHandle device, int kind, int counter,
                                 std::uint64_t* errors) {
  if (kind < 0 || kind > 1 || counter != 0) return Code::kInvalidArgument;
  return ShowSensor("nvmlDeviceGetTotalEccErrors", device,
                    kind == 0 ? &Sensors::ecc_corrected : &Sensors::ecc_uncorrected, errors);
}

// An event set is a pointer to the one GPU whose events it contains.
Code nvmlEventSetCreate(EventSet* set) {
  return Called("nvmlEventSetCreate", [&] {
    *set = reinterpret_cast<EventSet>(new FakeGpu*(nullptr));
    return Code::kSuccess;
  });
}

Code nvmlDeviceRegisterEvents(DeviceHandle device, std::uint64_t types, EventSet set) {
  return OfSensors("nvmlDeviceRegisterEvents", device, [&](FakeGpu& gpu) {
    if (types != 8) return Code::kNotSupported;
    *reinterpret_cast<FakeGpu**>(set) = &gpu;
    gpu.xids_told = gpu.sensors.xids.size();
    return Code::kSuccess;
  });
}

Code nvmlEventSetWait_v2(EventSet set, EventData* event, unsigned) {
  return Called("nvmlEventSetWait", [&] {
    FakeGpu* const gpu = *reinterpret_cast<FakeGpu**>(set);
    if (gpu == nullptr || gpu->xids_told >= gpu->sensors.xids.size()) return Code::kTimeout;
    *event = {.device = reinterpret_cast<DeviceHandle>(&gpu->self),
              .type = 8,
              .data = gpu->sensors.xids[gpu->xids_told++]};
    return Code::kSuccess;
  });
}

Code nvmlEventSetFree(EventSet set) {
  return Called("nvmlEventSetFree", [&] {
    delete reinterpret_cast<FakeGpu**>(set);
    return Code::kSuccess;
  });
}

const char* fake_nvml_set(const char* text) {
  const std::lock_guard lock(g_fake.mutex);
  g_fake.given.reset();
  if (text == nullptr) return nullptr;
  Machine machine;
  g_fake.wrong = ReadMachine(text, machine);
  g_fake.given = text;
  g_fake.told = testing::fake_nvml::WriteMachine(machine);
  if (!g_fake.wrong.empty()) return g_fake.wrong.c_str();
  if (g_fake.open > 0) g_fake.machine = std::move(machine);
  return nullptr;
}

const char* fake_nvml_get(void) {
  const std::lock_guard lock(g_fake.mutex);
  return g_fake.told.c_str();
}

unsigned fake_nvml_calls(void) {
  const std::lock_guard lock(g_fake.mutex);
  return g_fake.calls["*"];
}

int fake_nvml_open(void) {
  const std::lock_guard lock(g_fake.mutex);
  return g_fake.open;
}

}  // extern "C"
}  // namespace gpushared::device::nvml
