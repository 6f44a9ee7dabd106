// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/native_driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "client_lib/drop_in/entry_points.h"
#include "client_lib/drop_in/log.h"
#include "ipc/unique_fd.h"

namespace gpushared::drop_in {
namespace {

constexpr const char* kName = "/libcuda.so.1";
constexpr std::size_t kConfigLinesMax = 4096;

// Stands in every copy of this library, whatever folder it lies in.
constexpr char kMark[] = "gpushared: a drop-in libcuda, no driver";

// Whether a file can be a driver: it can be read, and does not have the mark.
bool IsDriver(const std::string& path) {
  const ipc::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0) return false;
  if (!S_ISREG(facts.st_mode) || facts.st_size == 0) return false;
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  void* const content = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (content == MAP_FAILED) return false;
  const bool is_ours = ::memmem(content, bytes, kMark, sizeof kMark - 1) != nullptr;
  ::munmap(content, bytes);
  return !is_ours;
}

void AddListed(std::vector<std::string>& folders, std::string_view list) {
  while (!list.empty()) {
    const std::size_t colon = std::min(list.find(':'), list.size());
    if (colon != 0) folders.emplace_back(list.substr(0, colon));
    list.remove_prefix(std::min(colon + 1, list.size()));
  }
}

}  // namespace

Result<Fallback> FallbackFromEnvironment() {
  const char* const value = ::getenv("GPUSHARED_FALLBACK");
  const std::string_view wanted = value == nullptr ? "" : value;
  if (wanted.empty()) return Fallback::kNone;
  if (wanted == "native") return Fallback::kNative;
  return Status(StatusCode::kInvalidArgument, "GPUSHARED_FALLBACK='" + std::string(wanted) +
                                                  "' makes no sense: it takes native, or nothing");
}

std::vector<std::string> LoaderFolders() {
  std::vector<std::string> folders;
  // As the loader, not for programs that change their user.
  if (const char* const path = ::secure_getenv("LD_LIBRARY_PATH")) AddListed(folders, path);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/etc/ld.so.conf.d", error)) {
    std::ifstream file(entry.path());
    std::string line;
    for (std::size_t i = 0; i < kConfigLinesMax && std::getline(file, line); ++i) {
      if (line.starts_with('/')) folders.push_back(line);
    }
  }
  for (const char* folder :
       {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib",
        "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"}) {
    folders.emplace_back(folder);
  }
  return folders;
}

std::string FindNativeDriver(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (std::string path = folder + kName; IsDriver(path)) return path;
  }
  return "";
}

Result<NativeDriver> ForwardToNativeDriver() {
  const std::string path = FindNativeDriver(LoaderFolders());
  if (path.empty()) {
    return Status(StatusCode::kNotFound,
                  "fallback refused: no libcuda.so.1 beside this one is installed");
  }
  void* const driver = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    const char* const why = ::dlerror();
    return Status(StatusCode::kNotFound,
                  "fallback refused: " + (why == nullptr ? path : std::string(why)));
  }
  NativeDriver native;
  native.init = reinterpret_cast<decltype(native.init)>(::dlsym(driver, "cuInit"));
  if (native.init == nullptr) {
    ::dlclose(driver);
    return Status(StatusCode::kNotFound, "fallback refused: " + path + " has no cuInit");
  }
  if (!ForwardCalls([&](const char* symbol) { return ::dlsym(driver, symbol); })) {
    return Status(StatusCode::kInternal, "fallback refused: the table of calls cannot be written");
  }
  if (IsLogging()) LogLine("no server answers: " + path + " serves this program from now on");
  return native;
}

}  // namespace gpushared::drop_in
