// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_STAGING_BUFFER_H_
#define GPUSHARED_CLIENT_LIB_STAGING_BUFFER_H_

#include <cstddef>
#include <cstdint>

#include "client_lib/range_allocator.h"
#include "ipc/shared_segment.h"

namespace gpushared::client {

// Memory shared with the worker, which copies from and to it. The worker receives only offsets and
// trusts none of the contents. Allocator metadata is kept outside the buffer, because the worker
// can write to it and empties it after the session has ended.
//
// Thread-compatible.
class StagingBuffer {
 public:
  static constexpr std::size_t kAlignmentBytes = RangeAllocator::kAlignmentBytes;

  // The size of the segment is a multiple of kAlignmentBytes.
  StagingBuffer(std::uint32_t number, ipc::SharedSegment segment);
  ~StagingBuffer() = default;
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  std::uint32_t number() const { return number_; }
  std::size_t size() const { return segment_.size(); }

  // Returns a block aligned to kAlignmentBytes; null if no free block is large enough.
  std::byte* Allocate(std::size_t bytes);
  void Free(std::byte* block);

  bool Contains(const void* first, std::size_t bytes) const;
  // Returns the offset of a byte in the buffer.
  std::uint32_t GetOffset(const void* byte) const;

 private:
  const std::uint32_t number_;
  ipc::SharedSegment segment_;
  RangeAllocator blocks_;
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_STAGING_BUFFER_H_
