// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_COMPILE_CODE_CACHE_H_
#define GPUSHARED_SERVER_MODULES_COMPILE_CODE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "server/modules/compile/sha256.h"

namespace gpushared::compile {

// Compiled code on disk, one file per key. Files are created atomically, so several processes may
// share a directory; damaged files are detected, removed and not returned. If the total size
// exceeds `bytes_max`, the least recently used files are removed.
//
// Thread-compatible.
class CodeCache {
 public:
  // Creates the directory if necessary. Rejects a directory that others may write to, because its
  // contents are executed.
  static Result<CodeCache> Open(const std::filesystem::path& directory, std::uint64_t bytes_max);

  std::optional<std::vector<std::byte>> Find(const Digest& key);
  Status Store(const Digest& key, std::span<const std::byte> code);
  // Number of damaged files found so far.
  std::uint64_t damaged() const { return damaged_; }

 private:
  CodeCache(std::filesystem::path directory, std::uint64_t bytes_max)
      : directory_(std::move(directory)), bytes_max_(bytes_max) {}
  std::filesystem::path GetPath(const Digest& key) const;
  void EvictOldest();

  std::filesystem::path directory_;
  std::uint64_t bytes_max_;
  std::uint64_t damaged_ = 0;
};

}  // namespace gpushared::compile

#endif  // GPUSHARED_SERVER_MODULES_COMPILE_CODE_CACHE_H_
