// SPDX-License-Identifier: Apache-2.0
// Where the loader finds the libraries of this machine (ld.so(8)) that no program names a directory
// for.

#ifndef GPUSHARED_IPC_LOADER_PATHS_H_
#define GPUSHARED_IPC_LOADER_PATHS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpushared::ipc {

// Thread-safe once it is made.
class LoaderPaths {
 public:
  // `cache`: the bytes of an ld.so.cache. Bytes that make no sense are a cache without libraries.
  explicit LoaderPaths(std::string cache) : cache_(std::move(cache)) {}
  // Reads /etc/ld.so.cache; one that cannot be read has no libraries.
  static LoaderPaths OfThisMachine();

  // Files that may be the library `name` ("libz.so.1"): those of the cache for x86-64, then one in
  // each directory that the loader searches without a cache. None of them need exist.
  std::vector<std::string> GetPaths(std::string_view name) const;
  // The first part of GetPaths, in the cache's order.
  std::vector<std::string> PathsInCache(std::string_view name) const;

 private:
  std::string cache_;
};

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_LOADER_PATHS_H_
