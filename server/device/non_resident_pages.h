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

// Set of swapped-out pages of a client's own memory, sized for its quota. The device thread checks
// it in every loop iteration, so 64 pages share one word.
//
// A single thread at a time may change it; any thread may read it. Results are current while no
// swap is in progress.
class NonResidentPages {
 public:
  // If `quota_bytes` is 0, no page is ever swapped.
  explicit NonResidentPages(std::uint64_t quota_bytes);

  void Set(std::size_t step, bool is_away);
  // Acquire: pairs with the release in Set: a thread that sees all pages as resident may use them.
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_acquire); }
  // Returns the swapped-out bytes of the pages in [address, address + bytes). Memory outside of the
  // mapped part, such as module variables, is always resident.
  std::uint64_t BytesIn(const MappedRange& mapped, std::uint64_t address,
                        std::uint64_t bytes) const;
  // Returns whether everything in a command's access set is resident.
  bool IsResident(const MappedRange& mapped, const Reach& reach) const;

 private:
  using Word = std::atomic<std::uint64_t>;
  static constexpr std::size_t kPagesPerWord = 64;

  const std::unique_ptr<Word[]> words_;
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_NON_RESIDENT_PAGES_H_
