// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/interposers/real_library.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "ipc/loader_paths.h"

namespace gpushared::drop_in {
namespace {

// Directories of NVIDIA's wheels within a directory of Python packages.
constexpr const char* kWheelDirectories[] = {"nvidia/cu13/lib", "nvidia/cu12/lib",
                                             "nvidia/nvjitlink/lib", "nvidia/cuda_nvrtc/lib"};
constexpr std::string_view kPackageDirectories[] = {"/site-packages/", "/dist-packages/"};

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> LoadedObjects() {
  std::vector<std::string> paths;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* to) {
        static_cast<std::vector<std::string>*>(to)->push_back(object->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

// Directories in search order, without duplicates.
class Directories {
 public:
  void Add(std::string directory) {
    if (!directory.starts_with('/')) return;
    for (const std::string& known : directories_) {
      if (known == directory) return;
    }
    directories_.push_back(std::move(directory));
  }
  void AddList(std::string_view colons) {
    while (!colons.empty()) {
      const std::size_t end = std::min(colons.find(':'), colons.size());
      Add(std::string(colons.substr(0, end)));
      colons.remove_prefix(std::min(colons.size(), end + 1));
    }
  }
  const std::vector<std::string>& all() const { return directories_; }

 private:
  std::vector<std::string> directories_;
};

Directories WheelDirectories(const std::vector<std::string>& loaded) {
  Directories directories;
  for (const std::string& path : loaded) {
    for (const std::string_view packages : kPackageDirectories) {
      const std::size_t at = path.rfind(packages);
      if (at == std::string::npos) continue;
      const std::string root = path.substr(0, at + packages.size());
      for (const char* wheel : kWheelDirectories) directories.Add(root + wheel);
    }
  }
  return directories;
}

Directories LoaderDirectories(const std::vector<std::string>& loaded) {
  Directories directories;
  for (const std::string& path : loaded) directories.Add(path.substr(0, path.rfind('/')));
  directories.AddList(Variable("LD_LIBRARY_PATH"));
  return directories;
}

Directories ToolkitDirectories() {
  Directories directories;
  directories.Add(Variable("CONDA_PREFIX") + "/lib");
  for (const std::string& toolkit :
       {Variable("CUDA_HOME"), Variable("CUDA_PATH"), std::string("/usr/local/cuda")}) {
    directories.Add(toolkit + "/lib64");
    directories.Add(toolkit + "/lib");
  }
  return directories;
}

std::string GetDirectory(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

}  // namespace

std::vector<std::string> GetPlaces(std::span<const char* const> names) {
  std::vector<std::string> places;
  const auto add = [&](const Directories& directories, const char* name) {
    for (const std::string& directory : directories.all()) places.push_back(directory + "/" + name);
  };
  const std::vector<std::string> loaded = LoadedObjects();
  for (const char* name : names) add(WheelDirectories(loaded), name);
  const auto installed = ipc::LoaderPaths::OfThisMachine();
  for (const char* name : names) {
    add(LoaderDirectories(loaded), name);
    std::ranges::move(installed.GetPaths(name), std::back_inserter(places));
    add(ToolkitDirectories(), name);
  }
  return places;
}

RealLibrary LoadReal(std::span<const char* const> names, const void* self) {
  RealLibrary real;
  Dl_info own{};
  struct stat own_directory {};
  if (::dladdr(self, &own) == 0 ||
      ::stat(GetDirectory(own.dli_fname).c_str(), &own_directory) != 0) {
    real.why_not = "cannot determine the directory of this library";
    return real;
  }
  for (const std::string& path : GetPlaces(names)) {
    struct stat directory {};
    if (::access(path.c_str(), R_OK) != 0 || ::stat(GetDirectory(path).c_str(), &directory) != 0)
      continue;
    if (directory.st_dev == own_directory.st_dev && directory.st_ino == own_directory.st_ino)
      continue;
    // RTLD_DEEPBIND makes the library call its own functions and not those of the interposer.
    real.handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (real.handle != nullptr) return real;
    const char* const why = ::dlerror();
    real.why_not = why == nullptr ? path + " does not load" : why;
  }
  if (real.why_not.empty()) {
    real.why_not = "there is no " + std::string(names.front()) +
                   " next to the program's libraries, in LD_LIBRARY_PATH, in the loader's cache or "
                   "in the CUDA toolkit";
  }
  return real;
}

}  // namespace gpushared::drop_in
