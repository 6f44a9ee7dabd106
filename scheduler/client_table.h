// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_CLIENT_TABLE_H_
#define GPUSHARED_SCHEDULER_CLIENT_TABLE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "scheduler/check.h"
#include "scheduler/types.h"

namespace gpushared::scheduler {

// Up to kClientsMax values by client number, stored contiguously for fast scans. Allocates on
// construction only (Value may allocate separately).
//
// Scans are in order of client numbers, so that a search for the first smallest value breaks ties
// as all policies do. References are valid until the next Add or Remove.
//
// Thread-compatible.
template <typename Value>
class ClientTable {
 public:
  struct Item {
    ClientId client;
    Value value;
  };

  ClientTable() { items_.reserve(kClientsMax); }

  Value& Add(ClientId client, Value value) {
    Check(items_.size() < kClientsMax, "a client beyond kClientsMax was added");
    Check(Find(client) == nullptr, "a client was added twice");
    const auto place =
        std::lower_bound(items_.begin(), items_.end(), client,
                         [](const Item& item, ClientId wanted) { return item.client < wanted; });
    const auto added = items_.insert(place, {client, std::move(value)});
    Rebuild();
    return added->value;
  }

  void Remove(ClientId client) {
    const std::size_t place = GetPlace(client);
    Check(place != kNone, "an unknown client was removed");
    items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(place));
    Rebuild();
  }

  Value* Find(ClientId client) {
    const std::size_t place = GetPlace(client);
    return place == kNone ? nullptr : &items_[place].value;
  }
  const Value* Find(ClientId client) const {
    const std::size_t place = GetPlace(client);
    return place == kNone ? nullptr : &items_[place].value;
  }

  Value& At(ClientId client) {
    Value* const value = Find(client);
    Check(value != nullptr, "an event or decision names an unknown client");
    return *value;
  }

  std::size_t size() const { return items_.size(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  static constexpr std::size_t kBuckets = 4 * kClientsMax;  // Power of two, at most a quarter full.
  static constexpr std::size_t kNone = kClientsMax;

  static std::size_t GetBucket(ClientId client) {
    // Fibonacci hashing. It spreads consecutive numbers evenly, and clients are numbered in
    // sequence.
    return static_cast<std::size_t>((client.value * 0x9e3779b97f4a7c15u) >> 32) % kBuckets;
  }

  // Clients are added and removed rarely, so a rebuild is affordable, and keeps the probe chains
  // free of tombstones.
  void Rebuild() {
    buckets_.fill(0);
    for (std::size_t place = 0; place < items_.size(); ++place) {
      std::size_t bucket = GetBucket(items_[place].client);
      while (buckets_[bucket] != 0) bucket = (bucket + 1) % kBuckets;
      buckets_[bucket] = static_cast<std::uint16_t>(place + 1);
    }
  }

  std::size_t GetPlace(ClientId client) const {
    for (std::size_t bucket = GetBucket(client); buckets_[bucket] != 0;
         bucket = (bucket + 1) % kBuckets) {
      const std::size_t place = buckets_[bucket] - std::size_t{1};
      if (items_[place].client == client) return place;
    }
    return kNone;
  }

  std::vector<Item> items_;
  std::array<std::uint16_t, kBuckets> buckets_{};  // Index in items_ plus one; 0 means empty.
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_CLIENT_TABLE_H_
