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

// A power of two of this process's address space, aligned to its size, and the memory
// mapped into it: the client's own from the bottom, module variables at the top, and chunks between
// the two. The chunks of a range are parts of one file in memory, so they can be mapped twice.
//
// Memory given back is replaced by zero pages at once but stays accessible: a kernel
// of the same client that still runs and reads it then meets zeros, not a fault of
// this whole process. What no client ever mapped is inaccessible.
//
// Steps of the client's own memory can be moved to a store and back, at the same address. No work
// of the client runs while one leaves, and none that may touch a step begins before it is back.
// Such memory has no chunks: they could not leave, and would take what is guaranteed to others.
//
// Thread-safe, except that one of Resize, the moves and the calls of chunks runs at a time.
class AddressRange {
 public:
  // A part of the module area.
  struct Block {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };

  // `quota_bytes` is cut to what the budget has in total, where nothing can be moved out.
  // `left_free_bytes`: as MemoryAccount takes it. `store`: where its memory can be moved; null:
  // nowhere.
  static Result<std::unique_ptr<AddressRange>> Reserve(std::uint64_t quota_bytes,
                                                       std::shared_ptr<MemoryBudget> budget,
                                                       std::uint64_t left_free_bytes = 0,
                                                       std::shared_ptr<SwapStore> store = nullptr);
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  ~AddressRange();

  std::uint64_t base() const { return base_; }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_acquire); }
  // mapped_bytes(), for executors that read it before each block.
  const std::atomic<std::uint64_t>& mapped_word() const { return mapped_bytes_; }
  // Device address of the module area; it ends with the range.
  std::uint64_t module_base() const { return base_ + bytes_ - kModuleAreaBytes; }

  // These as Space has them.
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes);
  Status SwapPageOut(std::uint64_t offset);
  Status SwapPageIn(std::uint64_t offset);
  std::uint64_t AwayBytes(std::uint64_t address, std::uint64_t bytes) const {
    return away_.BytesIn(mapped(), address, bytes);
  }
  SpaceUse use();
  // Whether all that is mapped is in memory.
  bool is_whole() const { return away_.bytes() == 0; }
  // Whether all that a work may touch is.
  bool IsThere(const Reach& reach) const { return away_.IsThere(mapped(), reach); }
  // Zeroed, page aligned. `bytes` may be 0. Counted against the quota, with `code_bytes` of host
  // memory that the module takes beside it.
  Result<Block> TakeModuleBlock(std::uint64_t bytes, std::uint64_t code_bytes = 0);
  // All of those that are taken, and what is mapped of chunks.
  const MemoryPieces& pieces() const { return pieces_; }
  // With what it was taken with.
  void ReturnModuleBlock(const Block& block, std::uint64_t code_bytes = 0);

  // As Space has them. A chunk is a place in the file.
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

  // Whether [address, address + bytes) is part of the client's own mapped memory.
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
  // `bytes` is not 0.
  Result<Block> TakeBlock(std::uint64_t bytes) GPUSHARED_REQUIRES(mutex_);
  std::uint64_t resident_bytes() const GPUSHARED_REQUIRES(mutex_) {
    return mapped_bytes() - slots_.size() * kMapPageBytes;
  }
  void Shrink(std::uint64_t before, std::uint64_t after) GPUSHARED_REQUIRES(mutex_);
  Status PutPage(std::uint32_t step) GPUSHARED_REQUIRES(mutex_);
  Status FetchPage(std::uint32_t step) GPUSHARED_REQUIRES(mutex_);
  // Once its slot is empty: the step is back, or has gone for good.
  void ForgetSlot(std::uint32_t step) GPUSHARED_REQUIRES(mutex_);

  const std::uint64_t base_;
  const std::uint64_t bytes_;
  const std::uint64_t quota_bytes_;
  const std::shared_ptr<SwapStore> store_;
  // Stored with release once the memory is accessible; read by executor threads.
  std::atomic<std::uint64_t> mapped_bytes_{0};

  Mutex mutex_;
  MemoryAccount account_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t accessible_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // From base_.
  // The steps that are moved out, by their number from base_.
  std::map<std::uint32_t, SwapStore::Slot> slots_ GPUSHARED_GUARDED_BY(mutex_);
  NonResidentPages away_;  // These, for who submits work. Changed under the mutex.
  // Address -> bytes.
  std::map<std::uint64_t, std::uint64_t> module_blocks_ GPUSHARED_GUARDED_BY(mutex_);
  // Made with the first chunk. No place of it is used again; what is returned is punched out.
  int chunk_file_ GPUSHARED_GUARDED_BY(mutex_) = -1;
  std::uint64_t chunk_file_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  // All memory beside the part from the bottom, for readers that have no time to wait.
  MemoryPieces pieces_;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_ADDRESS_RANGE_H_
