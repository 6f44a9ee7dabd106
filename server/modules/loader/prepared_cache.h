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

// Modules by what they were made of and for whom. One user's never serve another, nor one who is
// isolated differently. So nobody learns what others load from how long his own load takes.
//
// When all together have more than `bytes_max`, those that were not used for longest go. One that
// has more than a quarter of it is not kept.
//
// Thread-compatible.
class PreparedCache {
 public:
  struct Key {
    compile::Digest content = {};  // Over image and recipe.
    std::uint32_t uid = 0;
    device::Isolation isolation = device::Isolation::kOff;
    auto operator<=>(const Key&) const = default;
  };

  explicit PreparedCache(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}
  PreparedCache(const PreparedCache&) = delete;
  PreparedCache& operator=(const PreparedCache&) = delete;

  // Null where there is none.
  std::shared_ptr<const device::PreparedModule> Find(const Key& key);
  // What goes for it. Freeing large ones takes milliseconds, so the caller does that without a
  // lock.
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
  std::list<Entry> entries_;  // Latest use first.
  std::map<Key, std::list<Entry>::iterator> by_key_;
};

}  // namespace gpushared::loader

#endif  // GPUSHARED_SERVER_MODULES_LOADER_PREPARED_CACHE_H_
