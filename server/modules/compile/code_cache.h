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

// Compiled code on disk, one file per key. Files appear whole or not at all, so several processes
// may use one directory; what was damaged since is recognised, removed and not returned. When all
// of them together have more than `bytes_max`, those that were not used for longest go.
//
// Thread-compatible.
class CodeCache {
 public:
  // Makes the directory where it is missing. Rejects one that others may write to: what lies there
  // is run as it is.
  static Result<CodeCache> Open(const std::filesystem::path& directory, std::uint64_t bytes_max);

  std::optional<std::vector<std::byte>> Find(const Digest& key);
  Status Store(const Digest& key, std::span<const std::byte> code);
  // Files that were found damaged, so far.
  std::uint64_t damaged() const { return damaged_; }

 private:
  CodeCache(std::filesystem::path directory, std::uint64_t bytes_max)
      : directory_(std::move(directory)), bytes_max_(bytes_max) {}
  std::filesystem::path GetPath(const Digest& key) const;
  void MakeRoom();

  std::filesystem::path directory_;
  std::uint64_t bytes_max_;
  std::uint64_t damaged_ = 0;
};

}  // namespace gpushared::compile

#endif  // GPUSHARED_SERVER_MODULES_COMPILE_CODE_CACHE_H_
