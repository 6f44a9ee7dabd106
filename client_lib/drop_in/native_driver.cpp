// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/native_driver.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/gpu_nodes.h"
#include "ipc/loader_paths.h"
#include "ipc/unique_fd.h"

namespace gpushared::drop_in {
namespace {

constexpr const char* kName = "libcuda.so.1";
// Directories in which hosts provide the driver to guests, which may have no loader cache for it.
constexpr const char* kGuestDirectories[] = {"/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"};

// Present in every copy of this library, regardless of its directory. Stored as a note, because
// linkers place notes at the beginning of a file; a driver has tens of megabytes, which each
// program would otherwise have to search.
#define GPUSHARED_DROP_IN_MARK "gpushared: a drop-in libcuda, no driver"
constexpr char kMark[] = GPUSHARED_DROP_IN_MARK;
constexpr std::size_t kBeginning = 64 << 10;
asm(R"(
.pushsection .note.gpushared, "a", @note
  .balign 4
  .long 10, 2f - 1f, 1
  .asciz "gpushared"
  .balign 4
1:
  .asciz ")" GPUSHARED_DROP_IN_MARK R"("
2:
  .balign 4
.popsection
)");

// Returns whether a file can be a driver: it is readable and does not contain the mark.
bool IsDriver(const std::string& path) {
  const ipc::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return false;
  std::string content(kBeginning, '\0');
  const ssize_t bytes = ::pread(file.get(), content.data(), content.size(), 0);
  if (bytes <= 0) return false;
  content.resize(static_cast<std::size_t>(bytes));
  return content.find(kMark) == std::string::npos;
}

// Returns the paths at which a driver may exist, in the loader's order.
std::vector<std::string> PathsOfDrivers() {
  std::vector<std::string> paths;
  const auto add = [&](std::string_view directory) {
    paths.push_back(std::string(directory) + "/" + kName);
  };
  // Like the loader, ignores this variable in set-user-ID programs.
  const char* const list = ::secure_getenv("LD_LIBRARY_PATH");
  std::string_view rest = list == nullptr ? "" : list;
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    if (colon != 0) add(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  std::ranges::move(ipc::LoaderPaths::OfThisMachine().GetPaths(kName), std::back_inserter(paths));
  for (const char* const directory : kGuestDirectories) add(directory);
  return paths;
}

// Returns the first path that is neither this library nor a copy of it; empty if there is none.
std::string FindNativeDriver() {
  for (const std::string& path : PathsOfDrivers()) {
    if (IsDriver(path)) return path;
  }
  return "";
}

}  // namespace

Result<Mode> ModeFromEnvironment() {
  const char* const value = ::getenv("GPUSHARED_MODE");
  const std::string_view wanted = value == nullptr ? "" : value;
  if (wanted == "submit") return Mode::kSubmit;
  if (wanted == "gate") return Mode::kGate;
  if (wanted.empty()) {
    const bool has_gpu = std::ranges::any_of(
        ipc::kGpuNodes, [](const char* path) { return ::access(path, F_OK) == 0; });
    return has_gpu ? Mode::kGate : Mode::kSubmit;
  }
  return Status(StatusCode::kInvalidArgument, "invalid value '" + std::string(wanted) +
                                                  "' for GPUSHARED_MODE: expected submit or gate");
}

Result<std::optional<Fallback>> FallbackFromEnvironment() {
  const char* const value = ::getenv("GPUSHARED_FALLBACK");
  const std::string_view wanted = value == nullptr ? "" : value;
  if (wanted.empty()) return std::optional<Fallback>();
  if (wanted == "none") return std::optional(Fallback::kNone);
  if (wanted == "native") return std::optional(Fallback::kNative);
  return Status(StatusCode::kInvalidArgument, "GPUSHARED_FALLBACK='" + std::string(wanted) +
                                                  "' is invalid: expected native or none");
}

Result<NativeDriver> LoadNativeDriver() {
  NativeDriver native;
  native.path = FindNativeDriver();
  if (native.path.empty()) {
    return Status(StatusCode::kNotFound, "no libcuda.so.1 other than this one is installed");
  }
  native.library = ::dlopen(native.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (native.library == nullptr) {
    const char* const why = ::dlerror();
    return Status(StatusCode::kNotFound, "the installed driver cannot be loaded: " +
                                             (why == nullptr ? native.path : std::string(why)));
  }
  native.init = reinterpret_cast<decltype(native.init)>(::dlsym(native.library, "cuInit"));
  if (native.init == nullptr) {
    ::dlclose(native.library);
    return Status(StatusCode::kNotFound, native.path + " is no driver: it has no cuInit");
  }
  return native;
}

}  // namespace gpushared::drop_in
