// SPDX-License-Identifier: Apache-2.0
// Device memory based on CUDA's virtual memory management: one aligned range per client.

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

// State shared by all ranges of a GPU: the budget, and the stream on which memory is zeroed.
//
// Thread-safe; not for the device thread, because zeroing waits.
class CudaMemory {
 public:
  // The context must be current on the calling thread. `budget_bytes` 0: the free memory, less what
  // the driver may still need.
  static Result<std::shared_ptr<CudaMemory>> Create(std::shared_ptr<CudaContext> context,
                                                    std::uint64_t budget_bytes);
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  CudaContext& context() const { return *context_; }
  const std::shared_ptr<MemoryBudget>& budget() const { return budget_; }
  std::uint64_t step_bytes() const { return step_bytes_; }

  // Physical memory that can only be mapped, unmapped and freed as a whole.
  struct Piece {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
    MemoryHandle handle = 0;
  };
  // Allocates memory for contiguous pieces, maps it for reading and writing, and zeroes it together
  // with the `zeroed_before` bytes before them, which are mapped already. After a failure no piece
  // remains mapped. Access is enabled for one portion (zero_bytes_) at a time, but always for whole
  // pieces, and then the portion is zeroed. Enabling it for each piece would wait for running work
  // too often. Enabling it for all pieces at once would let running fenced kernels of the client
  // read other clients' old data until everything is zeroed, instead of only until one portion, or
  // one larger piece, is zeroed.
  Status MapPieces(std::span<Piece> pieces, std::uint64_t zeroed_before = 0);
  // The addresses of the pieces are contiguous.
  Status UnmapPieces(std::span<const Piece> pieces);
  // Steps of MapPieces without zeroing.
  Result<MemoryHandle> TakePiece(std::uint64_t bytes);
  Status Map(DeviceAddress address, std::uint64_t bytes, MemoryHandle handle);
  // Unmaps everything in the range with one call. The range must consist of whole mappings: cuda.h
  // forbids unmapping a part of one, while NVIDIA's multi-allocation samples unmap several at once.
  Status Unmap(DeviceAddress address, std::uint64_t bytes);
  // Releases the handle. The memory is freed once it is also unmapped.
  Status ReleasePiece(MemoryHandle handle);
  // Moves the memory of a piece, which must not be in use, with its contents to another address. A
  // failure can only be caused by a broken driver and ends the context, because the piece might
  // then be mapped nowhere.
  Status MovePiece(DeviceAddress from, DeviceAddress to, std::uint64_t bytes, MemoryHandle handle);
  // The next two calls are synchronous.
  Status MakeZero(DeviceAddress address, std::uint64_t bytes);
  Status Write(DeviceAddress address, std::span<const std::byte> bytes);

  // Whether memory can be swapped to a store, whose slots have kMapPageBytes.
  bool can_swap() const { return step_bytes_ == kMapPageBytes; }
  // Copies a mapped page to a store.
  Result<SwapStore::Slot> CopyOut(DeviceAddress from, SwapStore& store);
  // Copies back to a mapped page. The slot remains in use.
  Status CopyIn(const SwapStore& store, SwapStore::Slot slot, DeviceAddress to);

 private:
  CudaMemory(std::shared_ptr<CudaContext> context, std::uint64_t step_bytes,
             std::uint64_t zero_bytes, std::uint64_t budget_bytes)
      : context_(std::move(context)),
        step_bytes_(step_bytes),
        zero_bytes_(zero_bytes),
        budget_(std::make_shared<MemoryBudget>(budget_bytes)) {}
  AllocationProperties Properties() const;
  // Allocates memory for the piece and maps it without access.
  Status BackPiece(Piece& piece);
  Status MapOnly(DeviceAddress address, std::uint64_t bytes, MemoryHandle handle);
  // Enables access of the GPU to whole mappings.
  Status Open(DeviceAddress address, std::uint64_t bytes);
  Status OpenAndZero(std::span<const Piece> pieces, std::uint64_t zeroed_before);
  // Waits for work on stream_. Returns `submitted` unless the wait fails.
  Status Wait(Status submitted) GPUSHARED_REQUIRES(using_stream_);

  const std::shared_ptr<CudaContext> context_;
  const std::uint64_t step_bytes_;
  const std::uint64_t zero_bytes_;  // Size of the portions that MapPieces zeroes.
  const std::shared_ptr<MemoryBudget> budget_;
  Mutex using_stream_;
  Stream stream_ GPUSHARED_GUARDED_BY(using_stream_) = nullptr;
  // Allocates a page of pinned memory at the first swap. It is used for no other copies.
  Status TakeStaging() GPUSHARED_REQUIRES(using_staging_);
  Mutex using_staging_;  // Acquired before using_stream_.
  std::byte* staging_ GPUSHARED_GUARDED_BY(using_staging_) = nullptr;
};

// A range of device addresses whose size is a power of two and which is naturally aligned. Memory
// is mapped from the bottom, and at the top for the variables of fenced modules. On both sides
// there is an unmapped margin, as wide as fenced kernels may stray (ptx::kFenceMarginBytes).
//
// Memory comes in pieces that can only be freed as a whole. A piece is at most 1/16 of the memory
// mapped below it, so a large client has a few hundred pieces, and at most 1/16 more than requested
// remains mapped after a shrink. Up to 64 MiB, every piece is one page.
//
// Contained kernels may stray past the end of the mapped memory (ptx::kContainTailBytes) and must
// find memory there. Therefore a range for them has a tail, a page in addition to quota and budget
// that follows the end of the mapped memory. A former tail is zeroed before the client may use it.
// The words from which kernels read the end of the mapped memory (ptx::ContainControl::limit) are
// kept current. Because kernels read them only once, when they start, no memory is freed while one
// runs.
//
// Chunks are mapped between the memory at the bottom and the variables at the top. A range for
// contained kernels has no chunks, because these kernels support a single end of their memory.
//
// If the range has a store, pages can be swapped there and back. For this all pieces are one page,
// and there are no chunks. A launch may run while pages of its client outside of its access set are
// swapped out. Nothing prevents it from accessing these pages, and an access to an address without
// memory would end the context for all clients. Therefore one page of the client's own memory, the
// stand-in, is mapped in the place of every swapped-out page. The stand-in uses the memory of the
// first page that was swapped out and is kept until no page is swapped out. Like the tail, it is
// not part of the budget, so it is always available. No work of the client may run while a page is
// exchanged with the stand-in, because between the two driver calls no memory is mapped.
//
// Memory is zeroed when it is mapped (a chunk when it is first mapped), not when it is freed. Thus
// data of other processes and of dead workers are erased as well. While it is unmapped it is
// inaccessible. A running fenced kernel of the client can read it between the enabling of access
// and the zeroing of its portion (see MapPieces); contained kernels cannot.
//
// Any thread may call mapped(), IsResident, NonResidentBytes, HideMapping and variables().
// RecordLaunch and RecordEnd are called by the device thread. The other calls are made by one
// thread at a time, which is not the device thread.
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

  // See Space::Resize.
  Result<std::uint64_t> Resize(std::uint64_t mapped_bytes);
  MappedRange mapped() const {
    return {.base = base_,
            .range_bytes = bytes_,
            .mapped_bytes = mapped_bytes_.load(std::memory_order_acquire)};
  }
  // See Space.
  Status SwapPageOut(std::uint64_t offset);
  Status SwapPageIn(std::uint64_t offset);
  std::uint64_t NonResidentBytes(std::uint64_t address, std::uint64_t bytes) const {
    return non_resident_.BytesIn(mapped(), address, bytes);
  }
  SpaceUse use() const;
  // Whether the access set of a command is resident. May be called by any thread.
  bool IsResident(const Reach& reach) const { return non_resident_.IsResident(mapped(), reach); }
  // Part of the module area, in pages of kPageBytes. Its memory is mapped in larger pages that the
  // client's modules share and that count against the quota.
  struct Block {
    DeviceAddress address = 0;
    std::uint64_t bytes = 0;
  };
  Result<Block> TakeModuleBlock(std::uint64_t bytes);
  void ReturnModuleBlock(const Block& block);
  // See Space.
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
  // Keeps the address of the end of the mapped memory in `word`, until ForgetLimit.
  Status KeepLimit(DeviceAddress word);
  void ForgetLimit(DeviceAddress word) { std::erase(limits_, word); }
  // Called around each launch of kernels that read the limit. Sequentially consistent with
  // ShrinkTo: either ShrinkTo sees the launch, or the launch starts after the new limit was
  // written.
  void RecordLaunch() { launches_.fetch_add(1, std::memory_order_seq_cst); }
  void RecordEnd() { launches_.fetch_sub(1, std::memory_order_seq_cst); }
  // Memory that the driver allocates, outside of the range, for a module's variables.
  Status TakeForModule(std::uint64_t bytes) { return account_.Take(bytes, "module"); }
  void ReturnFromModule(std::uint64_t bytes) { account_.Return(bytes); }
  // Modules' memory, inside and outside of the range, which copies and fills may access.
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
  // A mapped page of the module area.
  struct Step {
    Piece piece;
    std::uint32_t blocks = 0;  // Number of module blocks that overlap it.
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
        non_resident_(store_ == nullptr ? 0 : quota_bytes) {}
  DeviceAddress module_base() const { return base_ + bytes_ - kModuleAreaBytes; }
  Status EnterStep(DeviceAddress step);
  void LeaveStep(DeviceAddress step);
  // Bytes from the base to the end of the pieces. Larger than the client's mapped part only after a
  // change has failed halfway.
  std::uint64_t PiecesEnd() const {
    return pieces_.empty() ? 0 : pieces_.back().address + pieces_.back().bytes - base_;
  }
  Status GrowTo(std::uint64_t mapped_bytes);
  Status ShrinkTo(std::uint64_t mapped_bytes);
  // Sets the size of the memory that the client's copies and kernels may access.
  Status SetMapped(std::uint64_t mapped_bytes);
  Status WriteLimit(DeviceAddress word, std::uint64_t mapped_bytes);
  std::uint64_t PieceBytes(std::uint64_t mapped, std::uint64_t missing) const;
  // Frees all pieces after the first `kept`, whether they are resident or swapped out.
  Status DropPieces(std::size_t kept);
  // Maps the stand-in in the place of a piece that has been copied out, or makes it from that
  // piece's memory.
  Status PutStandIn(Piece& piece);
  // Maps other memory in the place of a piece. After a failure the former memory is mapped again.
  Status Exchange(const Piece& piece, MemoryHandle former, MemoryHandle other);
  // Maps `handle` in place of the stand-in and copies the slot's contents to it. After a failure
  // the stand-in is mapped again.
  Status FillPiece(Piece& piece, MemoryHandle handle, SwapStore::Slot slot);
  // Removes the empty slot of a page. If no page remains swapped out, frees the stand-in.
  Status ForgetSlot(std::uint32_t step);

  const std::shared_ptr<CudaMemory> memory_;
  const std::shared_ptr<SwapStore> store_;  // If null, memory cannot be swapped.
  const Block reserved_;                    // The range and its margins.
  const std::uint64_t quota_bytes_;
  const DeviceAddress base_;
  const std::uint64_t bytes_;
  MemoryAccount account_;
  std::vector<Piece> pieces_;  // Sorted by address, contiguous from base_.
  // Slots of the swapped-out pieces, by piece number. These pieces have no handle.
  std::map<std::uint32_t, SwapStore::Slot> slots_;
  NonResidentPages non_resident_;         // The pieces of slots_, readable by any thread.
  std::optional<MemoryHandle> stand_in_;  // Mapped in the place of each swapped-out piece.
  std::optional<Piece> tail_;             // Follows pieces_; empty unless kernels are contained.
  std::vector<DeviceAddress> limits_;
  bool limits_are_right_ = true;  // False after a change has failed halfway.
  std::map<DeviceAddress, std::uint64_t> module_blocks_;  // Bytes, by address.
  std::map<DeviceAddress, Step> module_steps_;            // By address.
  std::map<DeviceAddress, std::uint64_t> mappings_;       // Bytes of mapped chunks, by address.
  MemoryPieces variables_;                                // Module variables, and mapped chunks.
  std::atomic<std::uint64_t> mapped_bytes_{0};
  std::atomic<std::uint64_t> launches_{0};  // Running launches of kernels that read the limit.
};

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_CUDA_MEMORY_H_
