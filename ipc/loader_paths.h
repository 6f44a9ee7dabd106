// SPDX-License-Identifier: Apache-2.0
// Search for libraries, by names without a directory, in the default locations of the dynamic
// loader (ld.so(8)).

#ifndef GPUSHARED_IPC_LOADER_PATHS_H_
#define GPUSHARED_IPC_LOADER_PATHS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpushared::ipc {

// Search paths of the dynamic loader. Thread-safe after construction.
class LoaderPaths {
 public:
  // `cache` contains the bytes of an ld.so.cache. A malformed cache is treated as empty.
  explicit LoaderPaths(std::string cache) : cache_(std::move(cache)) {}
  // Reads /etc/ld.so.cache; if it cannot be read, the cache is empty.
  static LoaderPaths OfThisMachine();

  // Returns candidate paths for the library `name` ("libz.so.1"): those for x86-64 in the cache,
  // then one in each directory that the loader searches without a cache. The files need not exist.
  std::vector<std::string> GetPaths(std::string_view name) const;
  // Returns only the paths from the cache, in its order.
  std::vector<std::string> PathsInCache(std::string_view name) const;

 private:
  std::string cache_;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_LOADER_PATHS_H_
