// SPDX-License-Identifier: Apache-2.0
// Memory that kernels allocate with malloc and free.

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

// Allocates pieces of a range of client memory.
//
// Never accesses that memory, so a client that corrupts it only corrupts its own data. All calls
// take bounded time. Thread-safe.
class DeviceHeap {
 public:
  // Alignment and size unit of pieces, in bytes.
  static constexpr std::uint64_t kGranule = 64;

  // Manages [base, base + bytes). `bytes` is at least kGranule and at most 4 GiB and is rounded
  // down to a multiple of kGranule. The bookkeeping takes host memory of a third of `bytes`.
  DeviceHeap(std::uint64_t base, std::uint64_t bytes);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  std::uint64_t base() const { return base_; }
  std::uint64_t bytes() const { return bytes_; }

  // Returns the address of at least `bytes` unused bytes; no value if no large enough piece was
  // found. The search is limited (kInspectedMax), so it may miss a piece.
  std::optional<std::uint64_t> Allocate(std::uint64_t bytes);
  // Returns false if the address was not returned by Allocate or has been freed since.
  bool Free(std::uint64_t address);

 private:
  using Granule = std::uint32_t;  // Index of a granule.
  static constexpr Granule kNone = 0xffffffff;
  // List k has the free pieces of [2^k, 2^(k+1)) granules.
  static constexpr std::size_t kLists = 27;
  // Limit for the pieces that are inspected in the list of the requested size, whose pieces may be
  // too small.
  static constexpr int kInspectedMax = 16;

  // State of one granule. Pieces, used or free, cover the range without gaps.
  struct Place {
    Granule size = 0;       // Size of the piece that begins here; 0 if no piece begins here.
    Granule size_back = 0;  // Size of the piece that ends here; undefined if no piece ends here.
    bool is_used = false;   // State of the piece that begins here.
    Granule next = kNone;   // Next in the list while the piece is free.
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
  std::vector<Place> places_ GPUSHARED_GUARDED_BY(mutex_);  // Indexed by granule.
  std::array<Granule, kLists> lists_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::device::executor

#endif  // GPUSHARED_SERVER_DEVICE_CPU_EXECUTOR_DEVICE_HEAP_H_
