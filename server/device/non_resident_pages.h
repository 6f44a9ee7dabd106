// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_NON_RESIDENT_PAGES_H_
#define GPUSHARED_SERVER_DEVICE_NON_RESIDENT_PAGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "server/device/reach.h"
#include "server/device/work_checks.h"

namespace gpushared::device {

// Which steps of a client's own memory are moved out, of all that its quota allows. Who offers work
// looks at each of its turns, so 64 steps are one word.
//
// One thread at a time changes it; any thread may ask. What it is told is current while nothing
// moves.
class NonResidentPages {
 public:
  // `quota_bytes` 0: no step ever moves.
  explicit NonResidentPages(std::uint64_t quota_bytes);

  void Set(std::size_t step, bool is_away);
  // Acquire, pairs with the release in Set: who sees that all is there may use it.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_acquire); }
  // Bytes of the steps in [address, address + bytes) that are moved out. What lies elsewhere than
  // in the mapped part stays: variables of modules.
  std::uint64_t BytesIn(const MappedRange& mapped, std::uint64_t address,
                        std::uint64_t bytes) const;
  // Whether all that a work may touch is on the device.
  bool IsThere(const MappedRange& mapped, const Reach& reach) const;

 private:
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::size_t kPagesPerWord = 64;

  const std::unique_ptr<Word[]> words_;
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_NON_RESIDENT_PAGES_H_
