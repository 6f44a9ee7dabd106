// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_SWAP_BACKEND_H_
#define GPUSHARED_SERVER_DEVICE_SWAP_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gpushared/result.h"
#include "gpushared/status.h"

namespace gpushared::device {

// Storage for the slots of a SwapStore: host memory or a file. A slot holds one page (2 MiB).
//
// Pages that are taken or returned are private anonymous memory of this process, aligned to their
// size. Thread-safe for calls about different slots.
class SwapBackend {
 public:
  using Slot = std::uint32_t;

  // Uses memory of this process that is excluded from core dumps and not inherited by children.
  static Result<std::unique_ptr<SwapBackend>> InMemory(std::uint64_t bytes);
  // Uses an unnamed file in the directory, which no other process can open.
  static Result<std::unique_ptr<SwapBackend>> InFile(const std::string& directory);
  SwapBackend() = default;
  SwapBackend(const SwapBackend&) = delete;
  SwapBackend& operator=(const SwapBackend&) = delete;
  virtual ~SwapBackend() = default;

  // Reserves storage for the slot's bytes, or fails with kOutOfMemory.
  virtual Status Back(Slot slot) = 0;
  // Releases the storage of an empty slot.
  virtual void Release(Slot slot) = 0;
  // Erases the slot's bytes.
  virtual void Empty(Slot slot) = 0;
  // Frees memory kept for reuse. Called only when nothing is reserved.
  virtual void DropSpare() {}

  // After an error the contents of the slot are undefined.
  virtual Status Write(Slot slot, std::span<const std::byte> step) = 0;
  virtual Status Read(Slot slot, std::span<std::byte> step) const = 0;
  // Like Write, and releases the memory of the page, which then reads as zeros.
  virtual Status Take(Slot slot, std::span<std::byte> step) = 0;
  // Like Read, and empties the slot.
  virtual Status Return(Slot slot, std::span<std::byte> step) = 0;

  // Returns the size of the allocated memory or disk blocks, for tests.
  virtual std::uint64_t populated_bytes() const = 0;
  // Returns the file descriptor, or -1 for host memory. For tests.
  virtual int fd() const { return -1; }
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_SWAP_BACKEND_H_
