// SPDX-License-Identifier: Apache-2.0
#include "server/tools/run/environment.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "ipc/gpu_nodes.h"
#include "server/tools/run/program_file.h"

namespace gpushared::server {
namespace {

constexpr const char* kPtxDirectory = "/ptx";   // Within the drop-in's directory.
constexpr const char* kPathDirectory = "/bin";  // Within kPtxDirectory.
constexpr const char* kCompiler = "/nvcc";
constexpr const char* kAsanOrder = "verify_asan_link_order";

// A tool that emits machine code, and the documented variable that makes it emit PTX.
struct PtxTool {
  const char* variable;
  const char* value;  // A leading slash means a path within kPtxDirectory.
  const char* why;
};
constexpr PtxTool kPtxTools[] = {
    {"TRITON_PTXAS_PATH", "/ptxas", "Triton passes its PTX on"},
    {"CUDA_FORCE_PTX_JIT", "1", "machine code is ignored if there is PTX"},
};
// Libraries that interpose NVIDIA's libraries of the same name and request PTX from them.
constexpr const char* kInterposers[] = {"/libnvJitLink.so.13", "/libnvJitLink.so.12",
                                        "/libnvrtc.so.13", "/libnvrtc.so.12"};

std::string InFront(const std::string& first, const std::string& rest) {
  return rest.empty() ? first : first + ":" + rest;
}

// Returns the first directory of the search path that contains nvcc, or an empty string.
std::string CompilerDirectory(const std::string& search_path,
                              const std::function<bool(const std::string&)>& exists) {
  std::string found;
  ForEachPart(search_path, [&](std::string_view directory) {
    if (found.empty() && exists(std::string(directory) + kCompiler)) found = directory;
  });
  return found;
}

}  // namespace

std::string ChooseMode(const std::function<bool(const std::string&)>& exists) {
  return std::ranges::any_of(ipc::kGpuNodes, exists) ? "gate" : "submit";
}

std::vector<Setting> Settings(const RunRequest& request,
                              const std::function<std::string(const char*)>& environment,
                              const std::function<bool(const std::string&)>& exists) {
  std::vector<Setting> settings;
  const auto set = [&](const char* variable, const std::string& value, const char* why) {
    if (!value.empty()) settings.push_back({variable, value, why});
  };
  const std::string ptx_directory = request.drop_in + kPtxDirectory;
  const std::string first =
      request.wants_ptx ? InFront(request.drop_in, ptx_directory) : request.drop_in;
  set("LD_LIBRARY_PATH", InFront(first, environment("LD_LIBRARY_PATH")),
      "libcuda.so.1 is found there first");
  set("GPUSHARED_RUN", "1", "calls that cannot work with the drop-in are reported on stderr");
  set("GPUSHARED_SOCKET", request.socket, "the server");
  set("GPUSHARED_CLASS", request.scheduling_class, "--class");
  set("GPUSHARED_WEIGHT", request.weight == 0 ? "" : std::to_string(request.weight), "--weight");
  set("GPUSHARED_MAX_SHARE", request.max_share, "--max-share");
  set("GPUSHARED_LATENCY_TARGET", request.target, "--latency-target");
  set("GPUSHARED_NAME", request.name, "--name");
  // In gate mode the installed driver chooses the GPU.
  const bool is_gated = request.mode == "gate";
  set(is_gated ? "CUDA_VISIBLE_DEVICES" : "GPUSHARED_DEVICE",
      is_gated ? request.gpu : request.device, "--device");
  set("GPUSHARED_INTERRUPT", request.is_interruptible ? "1" : "", "--interruptible");
  set("GPUSHARED_MODE", request.mode,
      is_gated ? "the installed driver executes the program's work in turns granted by the server"
               : "the server executes the program's work");
  set("GPUSHARED_FALLBACK", request.fallback,
      request.fallback == "none"
          ? "the program fails if no server is running"
          : "the installed driver serves the program if no server is running");
  if (!request.wants_ptx) return settings;
  for (const PtxTool& tool : kPtxTools) {
    if (!environment(tool.variable).empty()) continue;
    const bool is_file = tool.value[0] == '/';
    const std::string value = is_file ? ptx_directory + tool.value : tool.value;
    if (!is_file || exists(value)) set(tool.variable, value, tool.why);
  }
  // The drop-in's wrapper of nvcc is put into PATH only if nvcc and its toolkit are installed,
  // because programs search PATH for nvcc to determine whether a toolkit exists.
  const std::string path_directory = ptx_directory + kPathDirectory;
  const std::string compiler_directory = CompilerDirectory(environment("PATH"), exists);
  if (exists(path_directory + kCompiler) && !compiler_directory.empty()) {
    set("PATH", InFront(path_directory, environment("PATH")), "nvcc makes PTX in place of cubins");
    if (environment("CUDA_ROOT").empty()) {
      set("CUDA_ROOT",
          std::filesystem::path(compiler_directory + kCompiler).parent_path().parent_path(),
          "PyCUDA finds the toolkit of nvcc");
    }
  }
  std::string preloaded;
  for (const char* library : kInterposers) {
    const std::string path = ptx_directory + library;
    if (!exists(path)) continue;
    if (!preloaded.empty()) preloaded += ':';
    preloaded += path;
  }
  if (preloaded.empty()) return settings;
  // The user's libraries come first, because a sanitizer's runtime must be loaded before all
  // others.
  const std::string users = environment("LD_PRELOAD");
  set("LD_PRELOAD", users.empty() ? preloaded : users + ":" + preloaded,
      "NVIDIA's linker and compiler libraries are requested to produce PTX");
  const std::string options = environment("ASAN_OPTIONS");
  if (request.needs_asan && options.find(kAsanOrder) == std::string::npos) {
    const std::string own = std::string(kAsanOrder) + "=0";
    set("ASAN_OPTIONS", options.empty() ? own : options + ":" + own,
        "the program's libasan is loaded after these libraries, which intercept none of its "
        "functions");
  }
  return settings;
}

}  // namespace gpushared::server
