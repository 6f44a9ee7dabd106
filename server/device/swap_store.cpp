// SPDX-License-Identifier: Apache-2.0
#include "server/device/swap_store.h"

#include <utility>

#include "gpushared/check.h"

#include "server/device/memory_budget.h"

namespace gpushared::device {

Result<std::shared_ptr<SwapStore>> SwapStore::Create(const SwapStoreOptions& options) {
  auto medium = options.directory.empty()
                    ? SwapBackend::InMemory(RoundUp(options.bytes, kMapPageBytes))
                    : SwapBackend::InFile(options.directory);
  if (!medium.ok()) return medium.status();
  return std::shared_ptr<SwapStore>(new SwapStore(options.bytes, *std::move(medium)));
}

SwapStore::SwapStore(std::uint64_t bytes, std::unique_ptr<SwapBackend> medium)
    : total_bytes_(bytes), medium_(std::move(medium)) {}

std::uint64_t SwapStore::reserved_bytes() const {
  const MutexLock lock(mutex_);
  return reserved_bytes_;
}

std::uint64_t SwapStore::used_bytes() const {
  const MutexLock lock(mutex_);
  return reserved_bytes_ - free_.size() * kMapPageBytes;
}

Status SwapStore::Reserve(std::uint64_t bytes) {
  Check(bytes % kMapPageBytes == 0, "whole pages are reserved");
  const MutexLock lock(mutex_);
  const std::uint64_t left = total_bytes_ - reserved_bytes_;
  if (bytes > left) {
    return {StatusCode::kOutOfMemory, Mebibytes(bytes) +
                                          " of host memory requested for device "
                                          "memory beyond the guarantees, " +
                                          Mebibytes(left) + " of " + Mebibytes(total_bytes_) +
                                          " are left"};
  }
  for (std::uint64_t done = 0; done < bytes; done += kMapPageBytes) {
    const bool is_new = unbacked_.empty();
    const Slot slot = is_new ? slots_ : unbacked_.back();
    if (Status backed = medium_->Back(slot); !backed.ok()) {
      for (; done > 0; done -= kMapPageBytes) Unback();
      return backed;
    }
    if (is_new) {
      ++slots_;
    } else {
      unbacked_.pop_back();
    }
    free_.push_back(slot);
  }
  reserved_bytes_ += bytes;
  return {};
}

void SwapStore::Unback() {
  medium_->Release(free_.back());
  unbacked_.push_back(free_.back());
  free_.pop_back();
}

void SwapStore::GiveBack(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  Check(bytes <= reserved_bytes_ && bytes <= free_.size() * kMapPageBytes,
        "slots are emptied before they are given back");
  reserved_bytes_ -= bytes;
  for (; bytes > 0; bytes -= kMapPageBytes) Unback();
  // Spare memory is freed all at once, when nothing is reserved: freeing it with each slot, under
  // the lock, would block other users.
  if (reserved_bytes_ == 0) medium_->DropSpare();
}

SwapStore::Slot SwapStore::Use() {
  const MutexLock lock(mutex_);
  Check(!free_.empty(), "a page is put only with a reservation for it");
  const Slot slot = free_.back();
  free_.pop_back();
  return slot;
}

void SwapStore::Free(Slot slot) {
  const MutexLock lock(mutex_);
  free_.push_back(slot);
}

Result<SwapStore::Slot> SwapStore::Filled(Slot slot, const Status& status) {
  if (status.ok()) return slot;
  Drop(slot);
  return status;
}

Result<SwapStore::Slot> SwapStore::Put(std::span<const std::byte> step) {
  Check(step.size() == kMapPageBytes, "a slot holds one page");
  const Slot slot = Use();
  return Filled(slot, medium_->Write(slot, step));
}

Result<SwapStore::Slot> SwapStore::Take(std::span<std::byte> step) {
  Check(step.size() == kMapPageBytes, "a slot holds one page");
  const Slot slot = Use();
  return Filled(slot, medium_->Take(slot, step));
}

Status SwapStore::Read(Slot slot, std::span<std::byte> step) const {
  Check(step.size() == kMapPageBytes, "a slot holds one page");
  return medium_->Read(slot, step);
}

Status SwapStore::Return(Slot slot, std::span<std::byte> step) {
  Check(step.size() == kMapPageBytes, "a slot holds one page");
  if (Status returned = medium_->Return(slot, step); !returned.ok()) return returned;
  Free(slot);
  return {};
}

void SwapStore::Drop(Slot slot) {
  medium_->Empty(slot);
  Free(slot);
}

}  // namespace gpushared::device
