// SPDX-License-Identifier: Apache-2.0
#include "ipc/loader_paths.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

namespace gpushared::ipc {
namespace {

// Library directories of Debian and of other distributions.
constexpr std::string_view kDirectories[] = {"/lib/x86_64-linux-gnu/",
                                             "/usr/lib/x86_64-linux-gnu/",
                                             "/lib64/",
                                             "/usr/lib64/",
                                             "/lib/",
                                             "/usr/lib/"};

// Magic number of the format of glibc 2.2 and later (sysdeps/generic/dl-cache.h); offsets in the
// file count from its beginning.
constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr std::size_t kHeaderBytes = 48;
constexpr std::int32_t kFlagsOfX64 = 0x0303;
struct Entry {
  std::int32_t flags;
  std::uint32_t name, path, os_version;
  std::uint64_t hardware;
};

}  // namespace

LoaderPaths LoaderPaths::OfThisMachine() {
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  return LoaderPaths(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::vector<std::string> LoaderPaths::PathsInCache(std::string_view name) const {
  std::vector<std::string> paths;
  const std::string_view cache = cache_;
  if (!cache.starts_with(kMagic) || cache.size() < kHeaderBytes) return paths;
  std::uint32_t count = 0;
  std::memcpy(&count, cache.data() + kMagic.size(), sizeof count);
  const auto text = [&](std::size_t at) {
    const std::string_view rest = cache.substr(std::min(at, cache.size()));
    return rest.substr(0, rest.find('\0'));
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::size_t at = kHeaderBytes + i * sizeof(Entry);
    if (at + sizeof(Entry) > cache.size()) break;
    Entry entry;
    std::memcpy(&entry, cache.data() + at, sizeof entry);
    if (entry.flags != kFlagsOfX64 || text(entry.name) != name) continue;
    if (const std::string_view path = text(entry.path); path.starts_with('/')) {
      paths.emplace_back(path);
    }
  }
  return paths;
}

std::vector<std::string> LoaderPaths::GetPaths(std::string_view name) const {
  std::vector<std::string> paths = PathsInCache(name);
  for (const std::string_view directory : kDirectories)
    paths.push_back(std::string(directory) += name);
  return paths;
}

}  // namespace gpushared::ipc
