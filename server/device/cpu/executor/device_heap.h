// SPDX-License-Identifier: Apache-2.0
// Memory that kernels allocate and free themselves.

#ifndef GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DEVICE_HEAP_H_
#define GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DEVICE_HEAP_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpushared/mutex.h"

namespace gpushared::device::executor {

// CUDA's default (cudaLimitMallocHeapSize).
inline constexpr std::uint64_t kDeviceHeapBytes = std::uint64_t{8} << 20;

// Deals out pieces of one range of a client's memory.
//
// Never reads or writes that memory, so a client that spoils it spoils its own data alone. All
// calls take bounded time. Thread-safe.
class DeviceHeap {
 public:
  // Pieces begin at multiples of it and take a multiple of it.
  static constexpr std::uint64_t kGranule = 64;

  // `bytes` is at least kGranule and at most 4 GiB; what is no multiple of kGranule is unused.
  // Takes a third of `bytes` beside them.
  DeviceHeap(std::uint64_t base, std::uint64_t bytes);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  std::uint64_t base() const { return base_; }
  std::uint64_t bytes() const { return bytes_; }

  // Address of at least `bytes` bytes that nobody else has; nothing when no piece is that large.
  std::optional<std::uint64_t> Allocate(std::uint64_t bytes);
  // False when the address is not one that Allocate gave out and nobody freed since.
  bool Free(std::uint64_t address);

 private:
  using Granule = std::uint32_t;  // Index of one.
  static constexpr Granule kNone = 0xffffffff;
  // Free pieces of [2^k, 2^(k+1)) granules are in list k.
  static constexpr std::size_t kLists = 27;
  // Pieces looked at in the one list that may hold some that are too small.
  static constexpr int kLooks = 16;

  // A granule. Pieces, used and free ones, lie one behind the other.
  struct Place {
    Granule size = 0;       // Of the piece that begins here; 0 when none does.
    Granule size_back = 0;  // Of the piece that ends here; means nothing when none does.
    bool is_used = false;   // The piece that begins here.
    Granule next = kNone;   // In the list, while it is free.
    Granule previous = kNone;
  };

  static std::size_t GetList(Granule size);
  Granule FindFree(Granule size) const GPUSHARED_REQUIRES(mutex_);
  void Mark(Granule first, Granule size, bool is_used) GPUSHARED_REQUIRES(mutex_);
  void Link(Granule first) GPUSHARED_REQUIRES(mutex_);
  void Unlink(Granule first) GPUSHARED_REQUIRES(mutex_);

  const std::uint64_t base_;
  const std::uint64_t bytes_;
  Mutex mutex_;
  std::vector<Place> places_ GPUSHARED_GUARDED_BY(mutex_);  // One for each granule.
  std::array<Granule, kLists> lists_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DEVICE_HEAP_H_
