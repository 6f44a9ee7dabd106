// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_COSTS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_COSTS_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpushared::drop_in::gate {

// Key of a launch: a kernel with its grid and block, a graph, or a copy or fill with its direction
// and approximate size. Launches with equal keys are expected to take equally long.
using LaunchKey = std::uint64_t;

// Adds a value to a hash, by a round of MurmurHash3's finaliser.
constexpr LaunchKey Mix(LaunchKey hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 33;
}

// Predicted device times of launches, learned from measured ones. Holds the launches that were
// measured first; those that no longer fit stay unknown.
//
// Thread-safe, without locks.
class LaunchCosts {
 public:
  // Prediction for a launch that has not been measured.
  static constexpr std::uint32_t kUnknownNs = 100'000;
  // Every launch is measured until its key has kSamplesMin samples. Afterwards, one launch in
  // kSampleEvery is measured.
  static constexpr std::uint32_t kSamplesMin = 4, kSampleEvery = 64;

  struct Prediction {
    std::uint32_t ns = kUnknownNs;
    std::uint32_t samples = 0;  // 0: the launch is unknown.
  };

  Prediction Predict(LaunchKey key) const {
    const Entry* const entry = Find(key);
    return entry == nullptr ? Prediction{} : Unpack(entry->value.load(std::memory_order_relaxed));
  }

  // Adds a measured time. A sample far above the prediction counts as four times the prediction,
  // because work of other clients may have run in the measured time.
  void Add(LaunchKey key, std::uint64_t measured_ns) {
    Entry* const entry = FindOrTake(key);
    if (entry == nullptr) return;
    const Prediction before = Unpack(entry->value.load(std::memory_order_relaxed));
    const auto measured =
        static_cast<std::int64_t>(std::clamp<std::uint64_t>(measured_ns, 1, kNsMax));
    std::int64_t ns = measured;
    if (before.samples > 0) {
      const std::int64_t old = before.ns;
      ns = old + (std::min(measured, 4 * old) - old) / 4;
    }
    // A sample that another thread adds at the same time may be lost.
    entry->value.store(Pack({.ns = static_cast<std::uint32_t>(std::max<std::int64_t>(ns, 1)),
                             .samples = std::min(before.samples + 1, kSamplesMin)}),
                       std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kEntries = 8192, kProbes = 8;
  static constexpr std::uint64_t kNsMax = 4'000'000'000;  // Fits 32 bits.
  struct Entry {
    std::atomic<LaunchKey> key{0};  // 0: free.
    std::atomic<std::uint64_t> value{0};
  };
  static constexpr Prediction Unpack(std::uint64_t value) {
    return value == 0 ? Prediction{}
                      : Prediction{.ns = static_cast<std::uint32_t>(value),
                                   .samples = static_cast<std::uint32_t>(value >> 32)};
  }
  static constexpr std::uint64_t Pack(const Prediction& of) {
    return std::uint64_t{of.samples} << 32 | of.ns;
  }
  static LaunchKey NotZero(LaunchKey key) { return key == 0 ? 1 : key; }

  const Entry* Find(LaunchKey key) const {
    key = NotZero(key);
    for (std::size_t i = 0; i < kProbes; ++i) {
      const Entry& entry = entries_[(key + i) % kEntries];
      const LaunchKey found = entry.key.load(std::memory_order_acquire);
      if (found == key) return &entry;
      if (found == 0) return nullptr;
    }
    return nullptr;
  }
  Entry* FindOrTake(LaunchKey key) {
    key = NotZero(key);
    for (std::size_t i = 0; i < kProbes; ++i) {
      Entry& entry = entries_[(key + i) % kEntries];
      LaunchKey found = entry.key.load(std::memory_order_acquire);
      if (found == 0 && entry.key.compare_exchange_strong(found, key)) return &entry;
      if (found == key) return &entry;
    }
    return nullptr;
  }

  std::array<Entry, kEntries> entries_;
};

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_COSTS_H_
