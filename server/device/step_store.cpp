// SPDX-License-Identifier: Apache-2.0
#include "server/device/step_store.h"

#include <utility>

#include "gpushared/check.h"

#include "server/device/memory_budget.h"

namespace gpushared::device {

Result<std::shared_ptr<StepStore>> StepStore::Create(const StepStoreOptions& options) {
  auto medium = options.folder.empty() ? StepMedium::InMemory(RoundUp(options.bytes, kMapStepBytes))
                                       : StepMedium::InFile(options.folder);
  if (!medium.ok()) return medium.status();
  return std::shared_ptr<StepStore>(new StepStore(options.bytes, *std::move(medium)));
}

StepStore::StepStore(std::uint64_t bytes, std::unique_ptr<StepMedium> medium)
    : total_bytes_(bytes), medium_(std::move(medium)) {}

std::uint64_t StepStore::reserved_bytes() const {
  const MutexLock lock(mutex_);
  return reserved_bytes_;
}

std::uint64_t StepStore::used_bytes() const {
  const MutexLock lock(mutex_);
  return reserved_bytes_ - free_.size() * kMapStepBytes;
}

Status StepStore::Reserve(std::uint64_t bytes) {
  Check(bytes % kMapStepBytes == 0, "whole steps are reserved");
  const MutexLock lock(mutex_);
  const std::uint64_t left = total_bytes_ - reserved_bytes_;
  if (bytes > left) {
    return {StatusCode::kOutOfMemory, Mebibytes(bytes) +
                                          " asked of the host memory for device "
                                          "memory beyond the guarantees, " +
                                          Mebibytes(left) + " of " + Mebibytes(total_bytes_) +
                                          " are left"};
  }
  for (std::uint64_t done = 0; done < bytes; done += kMapStepBytes) {
    const bool is_new = unbacked_.empty();
    const Slot slot = is_new ? slots_ : unbacked_.back();
    if (Status backed = medium_->Back(slot); !backed.ok()) {
      for (; done > 0; done -= kMapStepBytes) Unback();
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

void StepStore::Unback() {
  medium_->Release(free_.back());
  unbacked_.push_back(free_.back());
  free_.pop_back();
}

void StepStore::GiveBack(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  Check(bytes <= reserved_bytes_ && bytes <= free_.size() * kMapStepBytes,
        "slots are emptied before they are given back");
  reserved_bytes_ -= bytes;
  for (; bytes > 0; bytes -= kMapStepBytes) Unback();
  // One call, when nobody needs the store: slot by slot, others would wait for it.
  if (reserved_bytes_ == 0) medium_->DropSpare();
}

StepStore::Slot StepStore::Use() {
  const MutexLock lock(mutex_);
  Check(!free_.empty(), "a step is put where room was reserved for it");
  const Slot slot = free_.back();
  free_.pop_back();
  return slot;
}

void StepStore::Free(Slot slot) {
  const MutexLock lock(mutex_);
  free_.push_back(slot);
}

Result<StepStore::Slot> StepStore::Filled(Slot slot, const Status& status) {
  if (status.ok()) return slot;
  Drop(slot);
  return status;
}

Result<StepStore::Slot> StepStore::Put(std::span<const std::byte> step) {
  Check(step.size() == kMapStepBytes, "a slot holds one step");
  const Slot slot = Use();
  return Filled(slot, medium_->Write(slot, step));
}

Result<StepStore::Slot> StepStore::Take(std::span<std::byte> step) {
  Check(step.size() == kMapStepBytes, "a slot holds one step");
  const Slot slot = Use();
  return Filled(slot, medium_->Take(slot, step));
}

Status StepStore::Read(Slot slot, std::span<std::byte> step) const {
  Check(step.size() == kMapStepBytes, "a slot holds one step");
  return medium_->Read(slot, step);
}

Status StepStore::Return(Slot slot, std::span<std::byte> step) {
  Check(step.size() == kMapStepBytes, "a slot holds one step");
  if (Status returned = medium_->Return(slot, step); !returned.ok()) return returned;
  Free(slot);
  return {};
}

void StepStore::Drop(Slot slot) {
  medium_->Empty(slot);
  Free(slot);
}

}  // namespace gpushared::device
