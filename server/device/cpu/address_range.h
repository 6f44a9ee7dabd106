// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_ADDRESS_RANGE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_ADDRESS_RANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "server/device/memory_budget.h"
#include "server/device/memory_pieces.h"
#include "server/device/non_resident_pages.h"
#include "server/device/swap_store.h"
#include "server/device/work_checks.h"

namespace gpushared::device {

// A naturally aligned range of this process's address space, whose size is a power of two, and the
// memory mapped into it: the client's own memory from the bottom, module variables at the top, and
// chunks in between. The chunks of a range are parts of one memory file, so that a chunk can be
// mapped at several addresses.
//
// Released memory of the client and of its modules is replaced by zero pages at once but stays
// accessible, because a running kernel of the same client that still reads it must read zeros
// instead of crashing the process. Memory that was never mapped and unmapped chunks are
// inaccessible.
//
// Pages of the client's own memory can be swapped to a store and back, at the same address. No work
// of the client that may access a page runs while the page is not resident. Such a range has no
// chunks: they cannot be swapped, so they would use memory that is guaranteed to others.
//
// Thread-safe, except that calls of Resize, the swap functions and the chunk functions must not
// overlap.
class AddressRange {
 public:
  struct Block {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };

  // Without swapping, `quota_bytes` is limited to the budget's total. `left_free_bytes`: see
  // MemoryAccount. `store`: the store to which memory can be swapped; may be null. `base`: address
  // of the range; 0 for a random one. Fails with kUnavailable if addresses there are in use.
  static Result<std::unique_ptr<AddressRange>> Reserve(std::uint64_t quota_bytes,
                                                       std::shared_ptr<MemoryBudget> budget,
                                                       std::uint64_t left_free_bytes = 0,
                                                       std::shared_ptr<SwapStore> store = nullptr,
                                                       std::uint64_t base = 0);
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();

  std::uint64_t base() const { return base_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_acquire); }
  // Returns the variable behind mapped_bytes(), which executors read before each block.
  const std::atomic<std::uint64_t>& mapped_word() const { return mapped_bytes_; }
  // Returns the device address of the module area, which extends to the end of the range.
  std::uint64_t module_base() const { return base_ + bytes_ - kModuleAreaBytes; }

  // See Space.
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes);
  Status SwapPageOut(std::uint64_t offset);
  Status SwapPageIn(std::uint64_t offset);
  std::uint64_t NonResidentBytes(std::uint64_t address, std::uint64_t bytes) const {
    return non_resident_.BytesIn(mapped(), address, bytes);
  }
  SpaceUse use();
  // Returns whether all mapped memory is resident.
  bool is_whole() const { return non_resident_.bytes() == 0; }
  // Returns whether the access set of a command is resident.
  bool IsResident(const Reach& reach) const { return non_resident_.IsResident(mapped(), reach); }
  // Returns a zeroed, page-aligned block. `bytes` may be 0. The block and `code_bytes` of host
  // memory that the module uses count against the quota.
  Result<Block> TakeModuleBlock(std::uint64_t bytes, std::uint64_t code_bytes = 0);
  // Like TakeModuleBlock with bytes > 0, at a given address.
  Result<Block> TakeModuleBlockAt(std::uint64_t address, std::uint64_t bytes,
                                  std::uint64_t code_bytes);
  // See Space.
  Status Save(const MemoryPiece& part, int file);
  Status Load(const MemoryPiece& part, int file);
  // Returns all module blocks in use and all mapped chunks.
  const MemoryPieces& pieces() const { return pieces_; }
  // Releases a block. `code_bytes` must have the value that was passed to TakeModuleBlock.
  void ReturnModuleBlock(const Block& block, std::uint64_t code_bytes = 0);

  // The following functions implement those of Space. A chunk is identified by its offset in the
  // memory file.
  MemoryPiece mapping_area() const {
    if (store_ != nullptr) return {};
    const std::uint64_t begin = base_ + RoundUp(quota_bytes_, kMapPageBytes);
    return {.base = begin, .bytes = module_base() - begin};
  }
  struct ChunkPlace {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  Result<ChunkPlace> TakeChunk(std::uint64_t bytes);
  void ReturnChunk(const ChunkPlace& chunk);
  Status MapChunk(const ChunkPlace& chunk, std::uint64_t address);
  void HideMapping(std::uint64_t address) { pieces_.Remove(address); }
  Status Unmap(std::uint64_t address, std::uint64_t bytes);

  // Returns whether [address, address + bytes) is part of the client's own mapped memory.
  bool IsMapped(std::uint64_t address, std::uint64_t bytes) const {
    return mapped().Contains(address, bytes);
  }
  MappedRange mapped() const {
    return {.base = base_, .range_bytes = bytes_, .mapped_bytes = mapped_bytes()};
  }

 private:
  AddressRange(std::uint64_t base, std::uint64_t bytes, std::uint64_t quota_bytes,
               std::shared_ptr<MemoryBudget> budget, std::uint64_t left_free_bytes,
               std::shared_ptr<SwapStore> store);
  // Requires `bytes` > 0.
  Result<Block> TakeBlock(std::uint64_t bytes) GPUSHARED_REQUIRES(mutex_);
  // Takes addresses of the module area that are free.
  Result<Block> MakeBlock(std::uint64_t address, std::uint64_t rounded) GPUSHARED_REQUIRES(mutex_);
  bool IsBlock(const MemoryPiece& piece) const GPUSHARED_REQUIRES(mutex_);
  Status CheckPart(const MemoryPiece& part) const GPUSHARED_REQUIRES(mutex_);
  std::uint64_t resident_bytes() const GPUSHARED_REQUIRES(mutex_) {
    return mapped_bytes() - slots_.size() * kMapPageBytes;
  }
  void Shrink(std::uint64_t before, std::uint64_t after) GPUSHARED_REQUIRES(mutex_);
  Status PutPage(std::uint32_t step) GPUSHARED_REQUIRES(mutex_);
  Status FetchPage(std::uint32_t step) GPUSHARED_REQUIRES(mutex_);
  // Removes the slot of a page that was swapped in or freed.
  void ForgetSlot(std::uint32_t step) GPUSHARED_REQUIRES(mutex_);

  const std::uint64_t base_;
  const std::uint64_t bytes_;
  const std::uint64_t quota_bytes_;
  const std::shared_ptr<SwapStore> store_;
  // Stored with release once the memory is accessible; read by executor threads.
  std::atomic<std::uint64_t> mapped_bytes_{0};

  Mutex mutex_;
  MemoryAccount account_ GPUSHARED_GUARDED_BY(mutex_);
  // Size of the accessible memory from base_ on; remains larger than mapped_bytes_ after a shrink.
  std::uint64_t accessible_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  // Slots of the swapped-out pages, by page number counted from base_.
  std::map<std::uint32_t, SwapStore::Slot> slots_ GPUSHARED_GUARDED_BY(mutex_);
  // The keys of slots_, for threads that submit work without the mutex. Changed under the mutex.
  NonResidentPages non_resident_;
  // Sizes of the module blocks, by address.
  std::map<std::uint64_t, std::uint64_t> module_blocks_ GPUSHARED_GUARDED_BY(mutex_);
  // Created with the first chunk. Offsets are never reused; a returned chunk becomes a hole.
  int chunk_file_ GPUSHARED_GUARDED_BY(mutex_) = -1;
  std::uint64_t chunk_file_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  // Module blocks in use and mapped chunks, for readers that must not wait for mutex_.
  MemoryPieces pieces_;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_ADDRESS_RANGE_H_
