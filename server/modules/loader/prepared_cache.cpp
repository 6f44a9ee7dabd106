// SPDX-License-Identifier: Apache-2.0
#include "server/modules/loader/prepared_cache.h"

#include <utility>

namespace gpushared::loader {

std::shared_ptr<const device::PreparedModule> PreparedCache::Find(const Key& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  ++hits_;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->module;
}

std::list<std::shared_ptr<const device::PreparedModule>> PreparedCache::Keep(
    const Key& key, std::shared_ptr<const device::PreparedModule> module) {
  const std::uint64_t bytes = module->bytes();
  if (bytes > bytes_max_ / 4 || by_key_.contains(key)) return {};
  entries_.push_front({key, std::move(module)});
  by_key_[key] = entries_.begin();
  bytes_ += bytes;
  std::list<std::shared_ptr<const device::PreparedModule>> gone;
  while (bytes_ > bytes_max_) {
    bytes_ -= entries_.back().module->bytes();
    by_key_.erase(entries_.back().key);
    gone.push_back(std::move(entries_.back().module));
    entries_.pop_back();
  }
  return gone;
}

}  // namespace gpushared::loader
