// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_MODULES_LOADER_PREPARED_CACHE_H_
#define GPUSHARED_SERVER_MODULES_LOADER_PREPARED_CACHE_H_

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "server/device/device.h"
#include "server/modules/compile/sha256.h"

namespace gpushared::loader {

// Cache of prepared modules, keyed by contents, isolation level and user. A module of one user is
// never returned for another user, because loading times would otherwise reveal what others load.
//
// If the total size exceeds `bytes_max`, the least recently used modules are evicted. A module that
// is larger than a quarter of `bytes_max` is not cached.
//
// Thread-compatible.
class PreparedCache {
 public:
  struct Key {
    compile::Digest content = {};  // Hash of the image and recipe.
    std::uint32_t uid = 0;
    device::Isolation isolation = device::Isolation::kOff;
    auto operator<=>(const Key&) const = default;
  };

  explicit PreparedCache(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}
  PreparedCache(const PreparedCache&) = delete;
  PreparedCache& operator=(const PreparedCache&) = delete;

  // Returns null if the module is not cached.
  std::shared_ptr<const device::PreparedModule> Find(const Key& key);
  // Returns the evicted modules. Freeing large ones takes milliseconds, so the caller destroys them
  // without a lock.
  [[nodiscard]] std::list<std::shared_ptr<const device::PreparedModule>> Keep(
      const Key& key, std::shared_ptr<const device::PreparedModule> module);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t hits() const { return hits_; }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const device::PreparedModule> module;
  };

  const std::uint64_t bytes_max_;
  std::uint64_t bytes_ = 0, hits_ = 0;
  std::list<Entry> entries_;  // Most recently used first.
  std::map<Key, std::list<Entry>::iterator> by_key_;
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_PREPARED_CACHE_H_
