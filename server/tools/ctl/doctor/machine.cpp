// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/doctor/machine.h"

#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>
#include <vector>

#include "server/modules/compile/ptx_compiler.h"
#include "server/modules/compile/sandbox.h"
#include "server/tools/run/elf_file.h"

namespace gpushared::server::doctor {
namespace {

constexpr std::uint64_t kMebibyte = 1u << 20;
// Minimum of available memory; a worker of a cpu device with one client needs less.
constexpr std::uint64_t kMemoryLeast = 512 * kMebibyte;

std::string Mebibytes(std::uint64_t bytes) { return std::to_string(bytes / kMebibyte) + " MiB"; }

std::string CudaVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Finding CheckGpu(const device::Inventory& inventory, const device::Gpu& gpu) {
  const std::string about = "GPU " + std::to_string(gpu.index);
  if (const auto obstacle = device::Obstacle(inventory, gpu)) {
    return Problem(about, *obstacle, "follow the message; a server ignores this GPU");
  }
  std::string what = gpu.name + ", " + Mebibytes(gpu.memory_bytes) + ", ";
  what += gpu.mig_enabled ? "MIG mode with " + std::to_string(gpu.instances.size()) +
                                " instances, each a device of its own"
                          : "not in MIG mode";
  return Ok(about, what);
}

// Extracts "release 13.0, V13.0.88" from the version text of ptxas.
std::string Release(const std::string& version) {
  const std::size_t begin = version.find("release ");
  if (begin == std::string::npos) return version;
  return version.substr(begin, version.find(" Build", begin) - begin);
}

Finding CheckSandbox() {
  compile::SandboxLimits limits;
  limits.time = std::chrono::seconds(5);
  const Result<compile::SandboxResult> run = compile::RunSandboxed({"/bin/true"}, {}, limits);
  if (!run.ok()) {
    return Problem(
        "sandbox", run.status().message(),
        "allow seccomp filters and memory files; a container's own filter may deny them");
  }
  const long version =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 0) {
    return Note("sandbox",
                "compilers run in it; this kernel has no Landlock, so they may write "
                "files that the server's user may write",
                "use Linux 5.13 or newer with Landlock enabled (lsm=landlock,...)");
  }
  return Ok("sandbox", "compilers run in it, with Landlock version " + std::to_string(version));
}

}  // namespace

Findings CheckGpus(const device::Inventory& inventory) {
  Findings findings;
  if (!inventory.unavailable.empty()) {
    findings.push_back(Note("driver", inventory.unavailable,
                            "install NVIDIA's driver to share GPUs; without it, only the cpu "
                            "device is available"));
    return findings;
  }
  if (!inventory.no_cuda.empty()) {
    findings.push_back(
        Problem("driver", inventory.no_cuda, "install libcuda.so.1 of the driver's own version"));
  } else {
    findings.push_back(Ok("driver", "NVIDIA's driver " + inventory.driver_version + ", CUDA " +
                                        CudaVersion(inventory.cuda_version)));
  }
  findings.push_back(inventory.mps
                         ? Problem("MPS daemon",
                                   "process " + std::to_string(inventory.mps->pid) +
                                       " uses the GPUs, with pipes in " + inventory.mps->directory,
                                   "end it with 'echo quit | nvidia-cuda-mps-control'")
                         : Ok("MPS daemon", "none uses the GPUs"));
  for (const device::Gpu& gpu : inventory.gpus) findings.push_back(CheckGpu(inventory, gpu));
  if (inventory.gpus.empty()) {
    findings.push_back(
        Note("GPUs", "the driver sees none", "the cpu device runs kernels without a GPU"));
  }
  return findings;
}

Findings CheckCompiler(const std::string& ptxas, bool has_gpus) {
  Findings findings;
  const auto compiler = compile::PtxCompiler::Create(
      {.program = ptxas, .limits = {}, .cache_directory = {}, .warn = {}});
  if (compiler.ok()) {
    findings.push_back(
        Ok("ptxas", (*compiler)->program() + ", " + Release((*compiler)->version())));
  } else if (has_gpus) {
    findings.push_back(Problem("ptxas", compiler.status().message(),
                               "install CUDA's ptxas, or name it with --ptxas: clients of other "
                               "users are rejected on GPUs without it"));
  } else {
    findings.push_back(Note("ptxas", compiler.status().message(), "only GPUs need it"));
  }
  findings.push_back(CheckSandbox());
  return findings;
}

std::uint64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    std::uint64_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

Finding CheckMemory(std::uint64_t available_bytes) {
  if (available_bytes == 0)
    return Note("memory", "the kernel does not report how much is available");
  if (available_bytes < kMemoryLeast) {
    return Problem("memory", Mebibytes(available_bytes) + " are available",
                   "free memory: a server and its first client need " + Mebibytes(kMemoryLeast));
  }
  return Ok("memory", Mebibytes(available_bytes) +
                          " are available; shared memory is in memory files, so the size of "
                          "/dev/shm does not matter");
}

ServerState CheckServer(const ClientOptions& asked) {
  ServerState state;
  const Result<std::vector<DeviceProperties>> devices = Client::ListDevices(asked);
  if (!devices.ok()) {
    state.findings.push_back(Problem("server", devices.status().message(),
                                     "start one with 'gpushared', or name its socket with "
                                     "--socket"));
    return state;
  }
  state.answers = true;
  std::string names;
  for (const DeviceProperties& each : *devices) {
    names += (names.empty() ? "" : ", ") + each.id + " (" + each.name + ")";
    state.takes_ptx_only = state.takes_ptx_only && each.kind == "cpu";
  }
  state.findings.push_back(Ok("server", "it answers, with " + names));
  static constexpr const char* kClasses[] = {"high", "normal", "low"};
  const std::string name =
      kClasses[static_cast<std::size_t>(asked.scheduling_class.value_or(SchedulingClass::kNormal))];
  Result<Client> client = Client::Connect(asked);
  if (client.ok()) {
    state.findings.push_back(Ok("class", "this user may be a client of class " + name + ", with " +
                                             Mebibytes(client->memory_info().total_bytes) +
                                             " of device memory"));
    client->Close();
  } else {
    state.findings.push_back(
        Problem("class", client.status().message(),
                "request another class with --class, or ask the server's operator for a rule"));
  }
  return state;
}

Findings CheckDropIn(const std::string& directory) {
  if (directory.empty()) {
    return {Problem("drop-in", "there is no drop-in libcuda.so.1 next to this program",
                    "install the whole package, or name its directory with --drop-in")};
  }
  const std::string library = directory + "/libcuda.so.1";
  const ElfFile file(library);
  if (!file.IsElf64()) {
    return {Problem("drop-in", library + " is no library", "install the package again")};
  }
  std::string missing;
  for (const char* part :
       {"ptxas", "libnvJitLink.so.12", "libnvJitLink.so.13", "libnvrtc.so.12", "libnvrtc.so.13"}) {
    if (::access((directory + "/ptx/" + part).c_str(), R_OK) == 0) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(part);
  }
  if (missing.empty()) return {Ok("drop-in", library + " and all the files that belong to it")};
  return {Note("drop-in", library + " exists, but without " + missing,
               "install the package again: programs that generate machine code need these files")};
}

}  // namespace gpushared::server::doctor
