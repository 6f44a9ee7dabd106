// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_SWAP_STORE_H_
#define GPUSHARED_SERVER_DEVICE_SWAP_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"
#include "gpushared/status.h"

#include "server/device/swap_backend.h"

namespace gpushared::device {

struct SwapStoreOptions {
  std::uint64_t bytes = 0;  // At most.
  std::string directory;    // Empty: host memory; else a file there, which has no name.
};

// Where device memory waits that is not on the device, a mapping step (2 MiB) in each slot.
//
// Nothing outside of this process can open it, and it goes with the process. A slot is emptied
// before another client can have it. Room is reserved before it is needed. In a file it has its
// blocks from then on, so a full disk rejects a reservation and loses no page.
//
// Thread-safe.
class SwapStore {
 public:
  using Slot = SwapBackend::Slot;

  static Result<std::shared_ptr<SwapStore>> Create(const SwapStoreOptions& options);
  SwapStore(const SwapStore&) = delete;
  SwapStore& operator=(const SwapStore&) = delete;

  // Whole steps; kOutOfMemory with what is asked and what is left. Whoever reserved them empties
  // his slots before he gives them back.
  Status Reserve(std::uint64_t bytes);
  void GiveBack(std::uint64_t bytes);

  // Steps of memory that stays as it is. Whoever puts one has a reservation for it.
  Result<Slot> Put(std::span<const std::byte> step);
  // Reads it; the slot stays.
  Status Read(Slot slot, std::span<std::byte> step) const;
  void Drop(Slot slot);

  // Steps of this process's own private memory, aligned to their size. Take leaves none of their
  // pages there; they read as zeros. Return brings the bytes back and frees the slot. No byte is
  // copied where host memory is the store. After an error all is as it was.
  Result<Slot> Take(std::span<std::byte> step);
  Status Return(Slot slot, std::span<std::byte> step);

  std::uint64_t total_bytes() const { return total_bytes_; }
  std::uint64_t reserved_bytes() const;
  std::uint64_t used_bytes() const;
  const SwapBackend& medium() const { return *medium_; }  // For tests.

 private:
  SwapStore(std::uint64_t bytes, std::unique_ptr<SwapBackend> medium);
  Slot Use();
  void Free(Slot slot);
  // The slot, or the error after which it is free again.
  Result<Slot> Filled(Slot slot, const Status& status);
  // The last free slot is nobody's.
  void Unback() GPUSHARED_REQUIRES(mutex_);

  const std::uint64_t total_bytes_;
  const std::unique_ptr<SwapBackend> medium_;

  mutable Mutex mutex_;
  Slot slots_ GPUSHARED_GUARDED_BY(mutex_) = 0;              // Slots that there ever were.
  std::vector<Slot> unbacked_ GPUSHARED_GUARDED_BY(mutex_);  // Reserved by nobody.
  std::vector<Slot> free_ GPUSHARED_GUARDED_BY(mutex_);      // Reserved and empty.
  std::uint64_t reserved_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_SWAP_STORE_H_
