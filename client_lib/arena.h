// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_ARENA_H_
#define GPUSHARED_CLIENT_LIB_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "ipc/shared_segment.h"

namespace gpushared::client {

// One staging arena: memory that the worker copies from and to, and an allocator in it. The
// worker gets offsets only and trusts nothing of the content.
//
// Thread-compatible.
class Arena {
 public:
  static constexpr std::size_t kAlignmentBytes = 256;
  // The allocator keeps at most so much of a fresh arena for itself.
  static constexpr std::size_t kOverheadBytes = 4096;

  Arena(std::uint32_t number, ipc::SharedSegment segment);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::uint32_t number() const { return number_; }
  std::size_t size() const { return segment_.size(); }

  // Aligned to kAlignmentBytes; null when no free block is large enough.
  std::byte* Allocate(std::size_t bytes);
  void Free(std::byte* block);

  bool Contains(const void* first, std::size_t bytes) const;
  // The offset of a byte inside the arena.
  std::uint32_t OffsetOf(const void* byte) const;

 private:
  class Allocator;  // Boost.Interprocess.

  const std::uint32_t number_;
  ipc::SharedSegment segment_;
  std::unique_ptr<Allocator> allocator_;
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_ARENA_H_
