// SPDX-License-Identifier: Apache-2.0
// Copies pages of device memory to a store and back.

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "gpushared/check.h"

#include "server/device/cuda/cuda_memory.h"

namespace gpushared::device::cuda {

// ---- single pages

Status CudaMemory::TakeStaging() {
  if (staging_ != nullptr) return {};
  void* memory = nullptr;
  const IdleWindow window(context_->idle_windows(), Urgency::kAwaited);
  Status status = context_->Try("allocating pinned host memory", context_->driver().MemHostAlloc,
                                &memory, std::size_t{kMapPageBytes}, kHostPortable);
  if (status.ok()) staging_ = static_cast<std::byte*>(memory);
  return status;
}

Result<SwapStore::Slot> CudaMemory::CopyOut(DeviceAddress from, SwapStore& store) {
  const MutexLock lock(using_staging_);
  if (Status status = TakeStaging(); !status.ok()) return status;
  {
    const MutexLock using_stream(using_stream_);
    Status copied = Wait(
        context_->Try("swapping device memory out", context_->driver().MemcpyDtoHAsync,
                      static_cast<void*>(staging_), from, std::size_t{kMapPageBytes}, stream_));
    if (!copied.ok()) return copied;
  }
  return store.Put(std::span(staging_, kMapPageBytes));
}

Status CudaMemory::CopyIn(const SwapStore& store, SwapStore::Slot slot, DeviceAddress to) {
  const MutexLock lock(using_staging_);
  if (Status status = TakeStaging(); !status.ok()) return status;
  if (Status read = store.Read(slot, std::span(staging_, kMapPageBytes)); !read.ok()) return read;
  return Write(to, std::span(staging_, kMapPageBytes));
}

// ---- pages of a range

Status CudaRange::PutStandIn(Piece& piece) {
  const MemoryHandle handle = std::exchange(piece.handle, 0);
  if (!stand_in_) {
    stand_in_ = handle;
    return {};
  }
  const IdleWindow window(memory_->context().idle_windows(), Urgency::kAwaited);
  const Piece out{.address = piece.address, .bytes = piece.bytes, .handle = handle};
  Status status = memory_->UnmapPieces(std::span(&out, 1));
  if (status.ok()) status = memory_->Map(piece.address, piece.bytes, *stand_in_);
  if (status.ok()) return {};
  // Only a broken driver fails here. Whether the memory is still mapped is unknown.
  memory_->context().GiveUp(status);
  return memory_->context().death();
}

Status CudaRange::Exchange(const Piece& piece, MemoryHandle former, MemoryHandle other) {
  const IdleWindow window(memory_->context().idle_windows(), Urgency::kAwaited);
  Status status = memory_->Unmap(piece.address, piece.bytes);
  if (status.ok()) {
    status = memory_->Map(piece.address, piece.bytes, other);
    if (status.ok()) return {};
    Status back = memory_->Map(piece.address, piece.bytes, former);
    if (back.ok()) return status;
    status = back;
  }
  memory_->context().GiveUp(status);
  return memory_->context().death();
}

// Copies outside of an idle window, because the copy requires no idle window and takes longer than
// the other steps.
Status CudaRange::FillPiece(Piece& piece, MemoryHandle handle, SwapStore::Slot slot) {
  if (Status put = Exchange(piece, *stand_in_, handle); !put.ok()) return put;
  Status filled = memory_->CopyIn(*store_, slot, piece.address);
  if (filled.ok()) {
    piece.handle = handle;
    return {};
  }
  const Status back = Exchange(piece, handle, *stand_in_);
  if (back.ok()) return filled;
  memory_->context().GiveUp(back);
  return memory_->context().death();
}

Status CudaRange::ForgetSlot(std::uint32_t step) {
  slots_.erase(step);
  non_resident_.Set(step, false);
  if (!slots_.empty()) return {};
  const MemoryHandle handle = *std::exchange(stand_in_, std::nullopt);
  return memory_->ReleasePiece(handle);
}

Status CudaRange::SwapPageOut(std::uint64_t offset) {
  Check(store_ != nullptr, "pages are swapped only with a store");
  const auto step = static_cast<std::uint32_t>(offset / kMapPageBytes);
  // The client may have freed the page in the meantime.
  if (step >= pieces_.size() || slots_.contains(step)) return {};
  Piece& piece = pieces_[step];
  const Result<SwapStore::Slot> slot = memory_->CopyOut(piece.address, *store_);
  if (!slot.ok()) return slot.status();
  if (Status put = PutStandIn(piece); !put.ok()) {
    store_->Drop(*slot);
    return put;
  }
  slots_[step] = *slot;
  non_resident_.Set(step, true);
  account_.SwapOut(kMapPageBytes);
  return {};
}

Status CudaRange::SwapPageIn(std::uint64_t offset) {
  const auto step = static_cast<std::uint32_t>(offset / kMapPageBytes);
  const auto found = slots_.find(step);
  if (found == slots_.end()) return {};
  if (Status taken = account_.SwapIn(kMapPageBytes); !taken.ok()) return taken;
  const Result<MemoryHandle> handle = memory_->TakePiece(kMapPageBytes);
  if (!handle.ok()) {
    account_.SwapOut(kMapPageBytes);
    return handle.status();
  }
  if (Status filled = FillPiece(pieces_[step], *handle, found->second); !filled.ok()) {
    (void)memory_->ReleasePiece(*handle);
    account_.SwapOut(kMapPageBytes);
    return filled;
  }
  store_->Drop(found->second);
  return ForgetSlot(step);
}

SpaceUse CudaRange::use() const {
  return {.mapped_bytes = PiecesEnd(),
          .resident_bytes = PiecesEnd() - slots_.size() * kMapPageBytes,
          .pinned_bytes = account_.used_bytes() - PiecesEnd()};
}

}  // namespace gpushared::device::cuda
