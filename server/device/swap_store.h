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
  std::uint64_t bytes = 0;  // Upper limit of the store.
  std::string directory;    // Directory for an unnamed file; if empty, host memory is used.
};

// Holds the swapped-out device memory, a page (2 MiB) in each slot.
//
// No other process can access the data, and none of it remains after this process has ended. A slot
// is erased before another client can use it. Reserve allocates storage in advance (the blocks of
// the file, if the store is a file), so that a full disk makes a reservation fail and not a later
// swap-out.
//
// Thread-safe.
class SwapStore {
 public:
  using Slot = SwapBackend::Slot;

  static Result<std::shared_ptr<SwapStore>> Create(const SwapStoreOptions& options);
  SwapStore(const SwapStore&) = delete;
  SwapStore& operator=(const SwapStore&) = delete;

  // Reserves whole pages. Fails with kOutOfMemory, with the requested and the free amount in the
  // message. The owner of the reservation empties its slots before it releases the reservation.
  Status Reserve(std::uint64_t bytes);
  void GiveBack(std::uint64_t bytes);

  // Stores a copy of a page. The caller must have a reservation for it.
  Result<Slot> Put(std::span<const std::byte> step);
  // Reads a slot without changing it.
  Status Read(Slot slot, std::span<std::byte> step) const;
  void Drop(Slot slot);

  // Take and Return move a page between the store and this process's private memory. The page is
  // aligned to its size. After Take it has no memory and reads as zeros. Return restores the bytes
  // and frees the slot. A store in host memory moves the page without copying where possible. If
  // Take fails, nothing has changed; if Return fails, the slot keeps its bytes, and the page's
  // contents are undefined.
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
  // Returns the slot if `status` is ok; otherwise frees it and returns the error.
  Result<Slot> Filled(Slot slot, const Status& status);
  // Releases the storage of the last free slot.
  void Unback() GPUSHARED_REQUIRES(mutex_);

  const std::uint64_t total_bytes_;
  const std::unique_ptr<SwapBackend> medium_;

  mutable Mutex mutex_;
  Slot slots_ GPUSHARED_GUARDED_BY(mutex_) = 0;              // Slots created so far.
  std::vector<Slot> unbacked_ GPUSHARED_GUARDED_BY(mutex_);  // Free slots without a reservation.
  std::vector<Slot> free_ GPUSHARED_GUARDED_BY(mutex_);      // Reserved and empty slots.
  std::uint64_t reserved_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_SWAP_STORE_H_
