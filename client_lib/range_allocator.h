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

// Allocates blocks from an address range that it never accesses. The bookkeeping is kept outside
// the range, because the client cannot access device memory.
//
// Best fit, lowest address among equals, so that long-lived small blocks gather at the bottom;
// adjacent free blocks coalesce. Addresses and sizes are multiples of kAlignmentBytes. Blocks of at
// least kLargeBytes begin on a 4 KiB boundary, as those of NVIDIA's driver do, because Taichi's
// memory layout relies on that alignment. Operations cost O(log free blocks), except for large
// blocks, which may have to pass over free blocks that are large enough but misaligned.
//
// Thread-compatible.
class RangeAllocator {
 public:
  static constexpr std::uint64_t kAlignmentBytes = 256;
  static constexpr std::uint64_t kLargeBytes = std::uint64_t{2} << 20;
  static constexpr std::uint64_t kLargeAlignmentBytes = 4096;

  // The range begins empty at `base`, a multiple of kAlignmentBytes.
  explicit RangeAllocator(std::uint64_t base) : base_(base), end_(base) {}

  // Appends `bytes` (a multiple of kAlignmentBytes) to the range.
  void Grow(std::uint64_t bytes);

  // Removes `bytes` (a multiple of kAlignmentBytes, at most TailBytes()) from the end.
  void Shrink(std::uint64_t bytes);

  // Returns the address of a block, or no value if no free block is large enough. `bytes` is at
  // least 1.
  std::optional<std::uint64_t> Allocate(std::uint64_t bytes);

  // Frees a block. Returns false, without any effect, if no live block begins at `address`.
  bool Release(std::uint64_t address);

  // Returns the size, rounded up, of the block at `address`; 0 if no live block begins there.
  std::uint64_t BlockBytes(std::uint64_t address) const;

  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t range_bytes() const { return end_ - base_; }
  std::uint64_t end() const { return end_; }
  // Returns the size of the free block at the end of the range.
  std::uint64_t TailBytes() const;
  // Returns by how much the range must grow for a request that no free block can satisfy.
  // RoundUp(bytes) must have a value.
  std::uint64_t GrowthFor(std::uint64_t bytes) const;

  // Rounds up to kAlignmentBytes; no value on overflow.
  static std::optional<std::uint64_t> RoundUp(std::uint64_t bytes);

 private:
  void AddFree(std::uint64_t address, std::uint64_t bytes);
  void RemoveFree(std::map<std::uint64_t, std::uint64_t>::iterator block);

  const std::uint64_t base_;
  std::uint64_t end_;
  std::uint64_t used_bytes_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;  // Sizes by address.
  // The blocks of free_ as (size, address).
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;
  std::unordered_map<std::uint64_t, std::uint64_t> allocated_;  // Sizes by address.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_RANGE_ALLOCATOR_H_
