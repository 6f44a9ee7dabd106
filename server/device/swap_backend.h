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

// What a SwapStore keeps its slots in: host memory or a file. A slot is one mapping step (2 MiB).
//
// A step that is taken or returned is memory of this process: private, without a file, aligned to
// its size. Thread-safe for calls about different slots.
class SwapBackend {
 public:
  using Slot = std::uint32_t;

  // In this process's memory, which is no other's: it is in no core dump and in no child.
  static Result<std::unique_ptr<SwapBackend>> InMemory(std::uint64_t bytes);
  // In a file without a name in that directory, which nobody else can open.
  static Result<std::unique_ptr<SwapBackend>> InFile(const std::string& directory);
  SwapBackend() = default;
  SwapBackend(const SwapBackend&) = delete;
  SwapBackend& operator=(const SwapBackend&) = delete;
  virtual ~SwapBackend() = default;

  // Has room for the slot's bytes from then on; kOutOfMemory.
  virtual Status Back(Slot slot) = 0;
  // The slot is empty, and needs no room any more.
  virtual void Release(Slot slot) = 0;
  // Nothing is left of its bytes.
  virtual void Empty(Slot slot) = 0;
  // Nothing is reserved. What was kept for further bytes goes.
  virtual void DropSpare() {}

  // An error leaves the slot in any state.
  virtual Status Write(Slot slot, std::span<const std::byte> step) = 0;
  virtual Status Read(Slot slot, std::span<std::byte> step) const = 0;
  // As Write; then the step has no memory and reads as zeros.
  virtual Status Take(Slot slot, std::span<std::byte> step) = 0;
  // As Read; the slot is empty then.
  virtual Status Return(Slot slot, std::span<std::byte> step) = 0;

  // Memory or blocks that it has now, for tests.
  virtual std::uint64_t populated_bytes() const = 0;
  // -1: in memory. For tests.
  virtual int fd() const { return -1; }
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_SWAP_BACKEND_H_
