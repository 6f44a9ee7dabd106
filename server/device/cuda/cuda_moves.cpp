// SPDX-License-Identifier: Apache-2.0
// Steps of device memory on their way to a store and back.

#include <span>
#include <utility>

#include "gpushared/check.h"

#include "server/device/cuda/cuda_memory.h"

namespace gpushared::device::cuda {

// ---- one step

Status CudaMemory::TakeStaging() {
  if (staging_ != nullptr) return {};
  void* memory = nullptr;
  Status status = context_->Try("taking pinned host memory", context_->driver().MemHostAlloc,
                                &memory, std::size_t{kMapStepBytes}, kHostPortable);
  if (status.ok()) staging_ = static_cast<std::byte*>(memory);
  return status;
}

Result<StepStore::Slot> CudaMemory::CopyOut(DeviceAddress from, StepStore& store) {
  const MutexLock lock(using_staging_);
  if (Status status = TakeStaging(); !status.ok()) return status;
  {
    const MutexLock using_stream(using_stream_);
    Status copied = Wait(
        context_->Try("moving device memory out", context_->driver().MemcpyDtoHAsync,
                      static_cast<void*>(staging_), from, std::size_t{kMapStepBytes}, stream_));
    if (!copied.ok()) return copied;
  }
  return store.Put(std::span(staging_, kMapStepBytes));
}

Status CudaMemory::CopyIn(const StepStore& store, StepStore::Slot slot, DeviceAddress to) {
  const MutexLock lock(using_staging_);
  if (Status status = TakeStaging(); !status.ok()) return status;
  if (Status read = store.Read(slot, std::span(staging_, kMapStepBytes)); !read.ok()) return read;
  return Write(to, std::span(staging_, kMapStepBytes));
}

Result<MemoryHandle> CudaMemory::MapFilled(DeviceAddress address, const StepStore& store,
                                           StepStore::Slot slot) {
  const Result<MemoryHandle> handle = TakePiece(kMapStepBytes);
  if (!handle.ok()) return handle;
  Status status = Map(address, kMapStepBytes, *handle);
  if (!status.ok()) {
    (void)ReleasePiece(*handle);
    return status;
  }
  if (status = CopyIn(store, slot, address); !status.ok()) {
    (void)UnmapPiece(address, kMapStepBytes, *handle);
    return status;
  }
  return handle;
}

// ---- a range's last steps

Status CudaRange::MoveOut(std::uint64_t bytes) {
  Check(store_ != nullptr, "memory moves where there is a store");
  for (std::uint64_t moved = 0; moved < bytes && resident_pieces() > 0; moved += kMapStepBytes) {
    Piece& piece = pieces_[resident_pieces() - 1];
    const Result<StepStore::Slot> slot = memory_->CopyOut(piece.address, *store_);
    if (!slot.ok()) return slot.status();
    Status unmapped = memory_->UnmapPiece(piece.address, piece.bytes, piece.handle);
    if (!unmapped.ok()) {
      // Only a broken driver does that. Whether the memory is still there is unknown.
      store_->Drop(*slot);
      memory_->context().GiveUp(unmapped);
      return memory_->context().death();
    }
    piece.handle = 0;
    slots_.push_back(*slot);
    NoteMovedOut();
    account_.MoveOut(kMapStepBytes);
  }
  return {};
}

Status CudaRange::MoveIn(std::uint64_t bytes) {
  for (std::uint64_t moved = 0; moved < bytes && !slots_.empty(); moved += kMapStepBytes) {
    if (Status taken = account_.MoveIn(kMapStepBytes); !taken.ok()) return taken;
    Piece& piece = pieces_[resident_pieces()];
    const Result<MemoryHandle> handle = memory_->MapFilled(piece.address, *store_, slots_.back());
    if (!handle.ok()) {
      account_.MoveOut(kMapStepBytes);
      return handle.status();
    }
    piece.handle = *handle;
    store_->Drop(slots_.back());
    slots_.pop_back();
    NoteMovedOut();
  }
  return {};
}

SpaceUse CudaRange::use() const {
  return {.mapped_bytes = PiecesEnd(),
          .resident_bytes = PiecesEnd() - slots_.size() * kMapStepBytes,
          .pinned_bytes = account_.used_bytes() - PiecesEnd()};
}

}  // namespace gpushared::device::cuda
