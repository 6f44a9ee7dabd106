// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_nvml/fake_nvml.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/device/inventory/nvml.h"
#include "tests/support/fake_nvml/boards.h"

#include <nlohmann/json.hpp>

namespace gpushared::device::nvml {
extern "C" {
#define FAKE_NVML_DECLARE(name, suffix, required, signature) Code nvml##name##suffix signature;
GPUSHARED_NVML_SYMBOLS(FAKE_NVML_DECLARE)
}

namespace {

using nlohmann::json;
using testing::fake_nvml::Board;
using testing::fake_nvml::FindBoard;
using testing::fake_nvml::Profile;

struct FakeGpu;

// What a handle points to: a GPU, or an instance of it.
struct Target {
  const FakeGpu* gpu = nullptr;
  const Profile* profile = nullptr;  // Null: the GPU itself.
  unsigned start = 0;
  std::string uuid;
};

struct FakeGpu {
  const Board* board = nullptr;
  unsigned index = 0;
  bool mig = false, lost = false;
  int compute_mode = 0;
  std::vector<unsigned> processes;
  Target self;
  std::map<unsigned, Target> instances;  // By their first slice, so that the numbers have holes.
};

struct FailRule {
  std::string call;
  unsigned at = 0;
  Code code = Code::kUnknown;
};

struct State {
  std::string driver = "580.65.06";
  int cuda = 13000;
  std::vector<std::unique_ptr<FakeGpu>> gpus;
  std::vector<FailRule> fails;
};

std::mutex g_mutex;
std::optional<std::string> g_given;
std::string g_wrong;
State g_state;
std::map<std::string, unsigned> g_calls;  // Since nvmlInit.
int g_open = 0;

std::string Uuid(const char* kind, unsigned gpu, unsigned start, unsigned generation) {
  char text[64];
  std::snprintf(text, sizeof text, "%s-%08x-fa4e-4000-8000-%06x%06x", kind, 0xa0000000U + gpu,
                generation, start);
  return text;
}

// GPU instance numbers as the driver gives them.
unsigned GpuInstanceId(const Target& instance) {
  switch (instance.profile->slices) {
    case 1:
      return 7 + instance.start;
    case 2:
      return 3 + instance.start / 2;
    case 4:
      return 1 + instance.start / 4;
    default:
      return 0;
  }
}

std::string AddInstance(FakeGpu& gpu, const json& described, unsigned generation) {
  const std::string wanted = described.at("profile");
  const unsigned start = described.at("start");
  const auto profile = std::ranges::find(gpu.board->profiles, wanted, &Profile::name);
  if (profile == gpu.board->profiles.end()) return wanted + " is no profile of this board";
  if (std::ranges::find(profile->starts, start) == profile->starts.end()) {
    return wanted + " cannot start at " + std::to_string(start);
  }
  unsigned same = 0;
  for (const auto& [other_start, other] : gpu.instances) {
    if (start < other_start + other.profile->slices && other_start < start + profile->slices) {
      return wanted + " at " + std::to_string(start) + " overlaps another";
    }
    same += other.profile == &*profile ? 1U : 0U;
  }
  if (same == profile->count_max) return "more of " + wanted + " than the board has";
  gpu.instances[start] = {.gpu = &gpu,
                          .profile = &*profile,
                          .start = start,
                          .uuid = Uuid("MIG", gpu.index, start, generation)};
  return "";
}

std::string AddGpu(State& state, const json& described) {
  auto gpu = std::make_unique<FakeGpu>();
  gpu->index = static_cast<unsigned>(state.gpus.size());
  const std::string board = described.value("board", "H200");
  gpu->board = FindBoard(board);
  if (gpu->board == nullptr) return board + " is no board";
  gpu->mig = described.value("mig", false);
  gpu->lost = described.value("lost", false);
  gpu->compute_mode = described.value("compute_mode", 0);
  gpu->processes = described.value("processes", std::vector<unsigned>());
  gpu->self = {.gpu = gpu.get(), .uuid = Uuid("GPU", gpu->index, 0, 0)};
  for (const json& instance : described.value("instances", json::array())) {
    const std::string wrong = AddInstance(*gpu, instance, described.value("generation", 0U));
    if (!wrong.empty()) return wrong;
  }
  state.gpus.push_back(std::move(gpu));
  return "";
}

// Empty, or what is wrong.
std::string Read(const std::string& text, State& state) try {
  const json described = json::parse(text);
  state.driver = described.value("driver", state.driver);
  state.cuda = described.value("cuda", state.cuda);
  for (const json& gpu : described.value("gpus", json::array())) {
    if (const std::string wrong = AddGpu(state, gpu); !wrong.empty()) return wrong;
  }
  for (const json& rule : described.value("fail", json::array())) {
    state.fails.push_back({.call = rule.at("call"),
                           .at = rule.value("at", 0U),
                           .code = static_cast<Code>(rule.at("code").get<int>())});
  }
  return "";
} catch (const json::exception& error) {
  return error.what();
}

// The frame around every call.
template <typename Body>
Code Called(const char* name, Body&& body) {
  const std::lock_guard lock(g_mutex);
  const unsigned number = ++g_calls[name];
  for (const FailRule& rule : g_state.fails) {
    if (rule.call == name && (rule.at == 0 || rule.at == number)) return rule.code;
  }
  if (g_open == 0) return Code::kUninitialized;
  return body();
}

template <typename Body>
Code OfDevice(const char* name, DeviceHandle handle, Body&& body) {
  return Called(name, [&] {
    const auto* target = reinterpret_cast<const Target*>(handle);
    if (target == nullptr) return Code::kInvalidArgument;
    return target->gpu->lost ? Code::kGpuIsLost : body(*target);
  });
}

// Runs `body` on a whole GPU; instances are refused.
template <typename Body>
Code OfGpu(const char* name, DeviceHandle handle, Body&& body) {
  return OfDevice(name, handle, [&](const Target& target) {
    return target.profile != nullptr ? Code::kInvalidArgument : body(*target.gpu);
  });
}

Code Say(const std::string& text, char* out, unsigned bytes) {
  if (bytes <= text.size()) return Code::kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return Code::kSuccess;
}

}  // namespace

extern "C" {

const char* nvmlErrorString(Code code) {
  switch (code) {
    case Code::kSuccess:
      return "The operation was successful";
    case Code::kNotSupported:
      return "Not Supported";
    case Code::kDriverNotLoaded:
      return "Driver Not Loaded";
    case Code::kGpuIsLost:
      return "GPU is lost";
    case Code::kVersionMismatch:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

Code nvmlInit_v2() {
  const std::lock_guard lock(g_mutex);
  std::string text = g_given.value_or("{}");
  const char* path = std::getenv("FAKE_NVML");
  if (!g_given && path != nullptr) {
    std::ifstream file(path);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  State state;
  if (const std::string wrong = Read(text, state); !wrong.empty()) {
    std::fprintf(stderr, "fake_nvml: %s\n", wrong.c_str());
    return Code::kUnknown;
  }
  g_state = std::move(state);
  g_calls.clear();
  for (const FailRule& rule : g_state.fails) {
    if (rule.call == "nvmlInit") return rule.code;
  }
  ++g_open;
  return Code::kSuccess;
}

Code nvmlShutdown() {
  return Called("nvmlShutdown", [] {
    --g_open;
    return Code::kSuccess;
  });
}

Code nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  return Called("nvmlSystemGetDriverVersion", [&] { return Say(g_state.driver, text, bytes); });
}

Code nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return Called("nvmlSystemGetCudaDriverVersion", [&] {
    *version = g_state.cuda;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetCount_v2(unsigned* count) {
  return Called("nvmlDeviceGetCount", [&] {
    *count = static_cast<unsigned>(g_state.gpus.size());
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetHandleByIndex_v2(unsigned index, DeviceHandle* device) {
  return Called("nvmlDeviceGetHandleByIndex", [&] {
    if (index >= g_state.gpus.size()) return Code::kInvalidArgument;
    FakeGpu& gpu = *g_state.gpus[index];
    *device = reinterpret_cast<DeviceHandle>(&gpu.self);
    return gpu.lost ? Code::kGpuIsLost : Code::kSuccess;
  });
}

Code nvmlDeviceGetUUID(DeviceHandle device, char* text, unsigned bytes) {
  return OfDevice("nvmlDeviceGetUUID", device,
                  [&](const Target& target) { return Say(target.uuid, text, bytes); });
}

Code nvmlDeviceGetName(DeviceHandle device, char* text, unsigned bytes) {
  return OfDevice("nvmlDeviceGetName", device, [&](const Target& target) {
    std::string name(target.gpu->board->product);
    if (target.profile != nullptr) name += " MIG " + std::string(target.profile->name);
    return Say(name, text, bytes);
  });
}

Code nvmlDeviceGetMemoryInfo(DeviceHandle device, MemoryInfo* memory) {
  return OfDevice("nvmlDeviceGetMemoryInfo", device, [&](const Target& target) {
    const std::uint64_t mib =
        target.profile != nullptr ? target.profile->memory_mib : target.gpu->board->memory_mib;
    *memory = {.total = mib << 20, .free = mib << 20, .used = 0};
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetPciInfo_v3(DeviceHandle device, PciInfo* pci) {
  return OfDevice("nvmlDeviceGetPciInfo", device, [&](const Target& target) {
    *pci = {};
    pci->bus = 0x10 + target.gpu->index;
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
    const auto& pids = target.gpu->processes;
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
    *pending = gpu.mig;
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
  return OfGpu("nvmlDeviceGetMigDeviceHandleByIndex", device, [&](const FakeGpu& gpu) {
    const auto found = gpu.instances.find(index);
    if (!gpu.mig || found == gpu.instances.end()) return Code::kNotFound;
    *instance = reinterpret_cast<DeviceHandle>(const_cast<Target*>(&found->second));
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetAttributes_v2(DeviceHandle device, Attributes* attributes) {
  return OfDevice("nvmlDeviceGetAttributes", device, [&](const Target& target) {
    if (target.profile == nullptr) return Code::kNotSupported;
    *attributes = {};
    attributes->multiprocessors = target.profile->multiprocessors;
    attributes->memory_mib = target.profile->memory_mib;
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetGpuInstanceId(DeviceHandle device, unsigned* id) {
  return OfDevice("nvmlDeviceGetGpuInstanceId", device, [&](const Target& target) {
    if (target.profile == nullptr) return Code::kNotSupported;
    *id = GpuInstanceId(target);
    return Code::kSuccess;
  });
}

Code nvmlDeviceGetComputeInstanceId(DeviceHandle device, unsigned* id) {
  return OfDevice("nvmlDeviceGetComputeInstanceId", device, [&](const Target& target) {
    if (target.profile == nullptr) return Code::kNotSupported;
    *id = 0;
    return Code::kSuccess;
  });
}

const char* fake_nvml_set(const char* text) {
  const std::lock_guard lock(g_mutex);
  g_given.reset();
  if (text == nullptr) return nullptr;
  State state;
  g_wrong = Read(text, state);
  g_given = text;
  return g_wrong.empty() ? nullptr : g_wrong.c_str();
}

int fake_nvml_open(void) {
  const std::lock_guard lock(g_mutex);
  return g_open;
}

}  // extern "C"
}  // namespace gpushared::device::nvml
