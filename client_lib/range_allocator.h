// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_RANGE_ALLOCATOR_H_
#define GPUSHARED_CLIENT_LIB_RANGE_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace gpushared::client {

// Carves blocks out of an address range it never touches: the bookkeeping lies beside
// the range, because device memory cannot be written from here.
//
// Best fit, lowest address among equals, so that long-lived small blocks gather at the
// bottom; neighbours coalesce on release. Addresses and sizes are multiples of
// kAlignmentBytes. Blocks of kLargeBytes and more begin on a page, as a driver's do: Taichi lays
// out what it allocates for addresses that do. Operations cost O(log free blocks), but for large
// blocks, which may pass over free ones that fit them nowhere.
//
// Thread-compatible.
class RangeAllocator {
 public:
  static constexpr std::uint64_t kAlignmentBytes = 256;
  static constexpr std::uint64_t kLargeBytes = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kLargeAlignmentBytes = 4096;

  // The range begins empty at `base`, a multiple of kAlignmentBytes.
  explicit RangeAllocator(std::uint64_t base) : base_(base), end_(base) {}

  // Makes `bytes` (a multiple of kAlignmentBytes) more available at the end.
  void Grow(std::uint64_t bytes);

  // Takes `bytes` (a multiple of kAlignmentBytes) off the end again; at most TailBytes().
  void Shrink(std::uint64_t bytes);

  // No value when no free block is large enough. `bytes` must be at least 1.
  std::optional<std::uint64_t> Allocate(std::uint64_t bytes);

  // Makes a block available again. False, and nothing done, when `address` is not a
  // live block.
  bool Release(std::uint64_t address);

  // Size of the block at `address` as rounded up; 0 when it is not a live block.
  std::uint64_t BlockBytes(std::uint64_t address) const;

  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t range_bytes() const { return end_ - base_; }
  std::uint64_t end() const { return end_; }
  // Free bytes at the very end of the range.
  std::uint64_t TailBytes() const;
  // By how much the range must grow for a request that no free block can satisfy. `bytes` must be
  // one that RoundUp takes.
  std::uint64_t GrowthFor(std::uint64_t bytes) const;

  // Rounds up to kAlignmentBytes; no value when that overflows.
  static std::optional<std::uint64_t> RoundUp(std::uint64_t bytes);

 private:
  void AddFree(std::uint64_t address, std::uint64_t bytes);
  void RemoveFree(std::map<std::uint64_t, std::uint64_t>::iterator block);

  const std::uint64_t base_;
  std::uint64_t end_;
  std::uint64_t used_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;                 // Address to bytes.
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;   // (bytes, address) of free_.
  std::unordered_map<std::uint64_t, std::uint64_t> allocated_;  // Address to bytes.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_RANGE_ALLOCATOR_H_
