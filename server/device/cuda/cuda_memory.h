// SPDX-License-Identifier: Apache-2.0
// Device memory by virtual memory management: one aligned range per client.

#ifndef GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MEMORY_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/cuda/cuda_context.h"
#include "server/device/isolation.h"
#include "server/device/memory_budget.h"
#include "server/device/memory_pieces.h"
#include "server/device/non_resident_pages.h"
#include "server/device/swap_store.h"
#include "server/device/work_checks.h"

namespace gpushared::device::cuda {

// What all ranges of a GPU share: the budget, and the stream on which memory is zeroed.
//
// Thread-safe; not for the device thread, because zeroing waits.
class CudaMemory {
 public:
  // The context is current on the calling thread. `budget_bytes` 0: what is free now,
  // less what the driver may still need.
  static Result<std::shared_ptr<CudaMemory>> Create(std::shared_ptr<CudaContext> context,
                                                    std::uint64_t budget_bytes);
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  CudaContext& context() const { return *context_; }
  const std::shared_ptr<MemoryBudget>& budget() const { return budget_; }
  std::uint64_t step_bytes() const { return step_bytes_; }

  // Physical memory that can only be mapped, unmapped and given back whole.
  struct Piece {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
    MemoryHandle handle = 0;
  };
  // Takes memory for pieces whose addresses follow each other, maps it for reading and writing, and
  // zeroes it together with the `zeroed_before` bytes ahead, which are mapped already. After a
  // failure nothing is left of the pieces. Access is given, and the zeroing waited for, once for
  // each portion that is zeroed: not for each piece, because both calls may wait for running work,
  // and not for all at once, so that what others left is not within reach of the client's running
  // fenced kernels for longer than its portion takes.
  Status MapPieces(std::span<Piece> pieces, std::uint64_t zeroed_before = 0);
  // Pieces whose addresses follow each other.
  Status UnmapPieces(std::span<const Piece> pieces);
  // The parts of MapPieces, without the zeroing.
  Result<MemoryHandle> TakePiece(std::uint64_t bytes);
  Status Map(DeviceAddress address, std::uint64_t bytes, MemoryHandle handle);
  // One call for all that is mapped there, which must be whole mappings: cuda.h forbids a part of
  // one, and the multi-allocation samples of NVIDIA unmap several at once. The memory stays alive
  // while it is mapped.
  Status Unmap(DeviceAddress address, std::uint64_t bytes);
  Status ReleasePiece(MemoryHandle handle);
  // The memory of a piece, with what is in it, to another address; nothing uses it meanwhile. A
  // failure, which nothing but a broken driver has, is the end of the context: it might leave the
  // piece nowhere.
  Status MovePiece(DeviceAddress from, DeviceAddress to, std::uint64_t bytes, MemoryHandle handle);
  // These two have been done when they return.
  Status MakeZero(DeviceAddress address, std::uint64_t bytes);
  Status Write(DeviceAddress address, std::span<const std::byte> bytes);

  // Whether steps can be moved to a store, which has slots of kMapPageBytes.
  bool can_move() const { return step_bytes_ == kMapPageBytes; }
  // A mapped step, copied to a store.
  Result<SwapStore::Slot> CopyOut(DeviceAddress from, SwapStore& store);
  // Back to a mapped step. The slot stays.
  Status CopyIn(const SwapStore& store, SwapStore::Slot slot, DeviceAddress to);

 private:
  CudaMemory(std::shared_ptr<CudaContext> context, std::uint64_t step_bytes,
             std::uint64_t zero_bytes, std::uint64_t budget_bytes)
      : context_(std::move(context)),
        step_bytes_(step_bytes),
        zero_bytes_(zero_bytes),
        budget_(std::make_shared<MemoryBudget>(budget_bytes)) {}
  AllocationProperties Properties() const;
  // Takes memory for the piece and maps it. It cannot be accessed yet.
  Status BackPiece(Piece& piece);
  Status MapOnly(DeviceAddress address, std::uint64_t bytes, MemoryHandle handle);
  // Lets the GPU access whole mappings.
  Status Open(DeviceAddress address, std::uint64_t bytes);
  Status OpenAndZero(std::span<const Piece> pieces, std::uint64_t zeroed_before);
  // Waits for what `submitted` says was submitted to stream_.
  Status Wait(Status submitted) GPUSHARED_REQUIRES(using_stream_);

  const std::shared_ptr<CudaContext> context_;
  const std::uint64_t step_bytes_;
  const std::uint64_t zero_bytes_;  // At a time.
  const std::shared_ptr<MemoryBudget> budget_;
  Mutex using_stream_;
  Stream stream_ GPUSHARED_GUARDED_BY(using_stream_) = nullptr;
  // One step of pinned memory, taken with the first move. Nobody else's copies go through it.
  Status TakeStaging() GPUSHARED_REQUIRES(using_staging_);
  Mutex using_staging_;  // Before using_stream_.
  std::byte* staging_ GPUSHARED_GUARDED_BY(using_staging_) = nullptr;
};

// A power of two of device addresses, aligned to its size. Memory is mapped from the bottom, and at
// the top for the variables of fenced modules. On both sides lies a margin that belongs to nobody,
// as wide as fenced kernels may stray (ptx::kFenceMarginBytes).
//
// Memory comes in pieces that can only be given back whole. A piece is at most 1/16 of the memory
// mapped below it. So a large client has a few hundred pieces, and a shrink keeps at most that part
// too many. Up to 64 MiB all pieces are one step.
//
// Contained kernels may stray behind the mapped memory (ptx::kContainTailBytes), and must find
// memory there. A range for them has a tail, one step that belongs to nobody, on top of quota and
// budget. It moves with the end of the mapped memory. A former tail is zeroed before it is the
// client's. The words from which kernels know the end (ptx::ContainControl::limit) are kept up to
// date. Each kernel looks once, as it begins, so nothing is given back while one runs.
//
// Chunks are mapped between the two parts. A range for contained kernels has none: its kernels know
// one end of what they may reach.
//
// Where it has a store, steps can be moved there and back. So all pieces are one step, and there
// are no chunks. A launch may run while steps of its client are away that are not in its reach, and
// nothing keeps it from touching them. An address without memory would end the context for all
// clients. So one step of the client's own, the stand-in, is mapped in the place of each of them.
// It is the memory of the first that went, until none is away: on top of the budget, as the tail.
// So it cannot be missing. Nothing of the client may run while a step changes places with it, since
// between two calls of the driver there is no memory.
//
// Memory is zeroed when it is mapped, not when it is released. A chunk is when it is mapped first.
// That covers what other processes and dead workers left, and nothing can come between. Nobody
// reaches unmapped memory until then.
//
// Any thread may call mapped(). RecordLaunch and RecordEnd are the device thread's. One thread at a
// time, not the device thread, may call the rest.
class CudaRange {
 public:
  static Result<std::unique_ptr<CudaRange>> Reserve(std::shared_ptr<CudaMemory> memory,
                                                    std::uint64_t quota_bytes,
                                                    Isolation isolation = Isolation::kOff,
                                                    std::uint64_t left_free_bytes = 0,
                                                    std::shared_ptr<SwapStore> store = nullptr);
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;
  ~CudaRange();

  // As Space::Resize.
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes);
  MappedRange mapped() const {
    return {.base = base_,
            .range_bytes = bytes_,
            .mapped_bytes = mapped_bytes_.load(std::memory_order_acquire)};
  }
  // These as Space has them.
  Status SwapPageOut(std::uint64_t offset);
  Status SwapPageIn(std::uint64_t offset);
  std::uint64_t AwayBytes(std::uint64_t address, std::uint64_t bytes) const {
    return away_.BytesIn(mapped(), address, bytes);
  }
  SpaceUse use() const;
  // Whether all that a work may touch is on the device. Any thread.
  bool IsThere(const Reach& reach) const { return away_.IsThere(mapped(), reach); }
  // A part of the module area, in pages. Its memory is mapped in steps that a client's modules
  // share, and counts against the quota in those.
  struct Block {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
  };
  Result<Block> TakeModuleBlock(std::uint64_t bytes);
  void ReturnModuleBlock(const Block& block);
  // The calls of chunks do what Space says.
  MemoryPiece mapping_area() const;
  struct ChunkMemory {
    MemoryHandle handle = 0;
    std::uint64_t bytes = 0;
    bool is_zero = false;
  };
  Result<ChunkMemory> TakeChunk(std::uint64_t bytes);
  void ReturnChunk(const ChunkMemory& chunk);
  Status MapChunk(ChunkMemory& chunk, DeviceAddress address);
  void HideMapping(DeviceAddress address) { variables_.Remove(address); }
  Status Unmap(DeviceAddress address, std::uint64_t bytes);
  Status Write(DeviceAddress address, std::span<const std::byte> bytes) {
    return memory_->Write(address, bytes);
  }
  // A word that holds the end of what is mapped, an address, from now on until it is forgotten.
  Status KeepLimit(DeviceAddress word);
  void ForgetLimit(DeviceAddress word) { std::erase(limits_, word); }
  // Around each launch of kernels that know the limit. In one order with what ShrinkTo does: it
  // sees the launch, or the launch begins after the new limit has been written.
  void RecordLaunch() { launches_.fetch_add(1, std::memory_order_seq_cst); }
  void RecordEnd() { launches_.fetch_sub(1, std::memory_order_seq_cst); }
  // Memory that the driver takes for a module's variables, outside of the range.
  Status TakeForModule(std::uint64_t bytes) { return account_.Take(bytes, "module"); }
  void ReturnFromModule(std::uint64_t bytes) { account_.Return(bytes); }
  // Memory of modules that copies and fills may touch, in the range and outside.
  void AddVariables(std::span<const MemoryPiece> pieces) {
    for (const MemoryPiece& piece : pieces) variables_.Add(piece);
  }
  void RemoveVariables(std::span<const MemoryPiece> pieces) {
    for (const MemoryPiece& piece : pieces) variables_.Remove(piece.base);
  }
  const MemoryPieces& variables() const { return variables_; }

  static constexpr std::uint64_t kPieceBytesMax = std::uint64_t{1} << 30;
  static constexpr std::uint64_t kPiecesPerMapped = 16;

 private:
  using Piece = CudaMemory::Piece;
  // A step of the module area that is mapped.
  struct Step {
    Piece piece;
    std::uint32_t blocks = 0;  // Module blocks that touch it.
  };
  CudaRange(std::shared_ptr<CudaMemory> memory, const Block& reserved, DeviceAddress base,
            std::uint64_t bytes, std::uint64_t quota_bytes, std::uint64_t left_free_bytes,
            std::shared_ptr<SwapStore> store)
      : memory_(std::move(memory)),
        store_(std::move(store)),
        reserved_(reserved),
        quota_bytes_(quota_bytes),
        base_(base),
        bytes_(bytes),
        account_(quota_bytes, memory_->budget(), left_free_bytes),
        away_(store_ == nullptr ? 0 : quota_bytes) {}
  DeviceAddress module_base() const { return base_ + bytes_ - kModuleAreaBytes; }
  Status EnterStep(DeviceAddress step);
  void LeaveStep(DeviceAddress step);
  // Bytes from the base to the end of the pieces; more than is mapped for the client only when a
  // change has failed half way.
  std::uint64_t PiecesEnd() const {
    return pieces_.empty() ? 0 : pieces_.back().address + pieces_.back().bytes - base_;
  }
  Status GrowTo(std::uint64_t mapped_bytes);
  Status ShrinkTo(std::uint64_t mapped_bytes);
  // Sets the memory that the client's copies and kernels may reach.
  Status SetMapped(std::uint64_t mapped_bytes);
  Status WriteLimit(DeviceAddress word, std::uint64_t mapped_bytes);
  std::uint64_t PieceBytes(std::uint64_t mapped, std::uint64_t missing) const;
  // Gives back all pieces behind the first `kept`, whose memory is here or in the store.
  Status DropPieces(std::size_t kept);
  // The stand-in takes the place of a piece that has been copied out, or is made of its memory.
  Status PutStandIn(Piece& piece);
  // Maps other memory in the place of a piece. After a failure it has the former again.
  Status Exchange(const Piece& piece, MemoryHandle former, MemoryHandle other);
  // The stand-in leaves a piece's place, and comes back after a failure.
  Status FillPiece(Piece& piece, MemoryHandle handle, SwapStore::Slot slot);
  // Once its slot is empty. The last one takes the stand-in along.
  Status ForgetSlot(std::uint32_t step);

  const std::shared_ptr<CudaMemory> memory_;
  const std::shared_ptr<SwapStore> store_;  // Null: memory stays.
  const Block reserved_;                    // The range and what is on both sides of it.
  const std::uint64_t quota_bytes_;
  const DeviceAddress base_;
  const std::uint64_t bytes_;
  MemoryAccount account_;
  std::vector<Piece> pieces_;  // By address, without gaps from base_.
  // Of the pieces that are moved out, by their number. Those have no handle.
  std::map<std::uint32_t, SwapStore::Slot> slots_;
  NonResidentPages away_;                 // These, for any thread.
  std::optional<MemoryHandle> stand_in_;  // Mapped in the place of each of them.
  std::optional<Piece> tail_;             // Behind the pieces.
  std::vector<DeviceAddress> limits_;
  bool limits_are_right_ = true;  // False when a change has failed half way.
  std::map<DeviceAddress, std::uint64_t> module_blocks_;  // Bytes, by address.
  std::map<DeviceAddress, Step> module_steps_;            // By address.
  std::map<DeviceAddress, std::uint64_t> mappings_;       // Bytes of mapped chunks, by address.
  MemoryPieces variables_;                                // And mapped chunks.
  std::atomic<std::uint64_t> mapped_bytes_{0};
  std::atomic<std::uint64_t> launches_{0};  // Running launches, which know the limit.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MEMORY_H_
