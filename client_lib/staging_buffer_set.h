// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_STAGING_BUFFER_SET_H_
#define GPUSHARED_CLIENT_LIB_STAGING_BUFFER_SET_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "client_lib/progress.h"
#include "client_lib/staging_buffer.h"

namespace gpushared::client {

// Location of bytes in the form in which the worker addresses them.
struct StagingPlace {
  std::uint32_t staging_buffer = 0;
  std::uint32_t offset = 0;
};

struct StagingBlock {
  std::byte* data = nullptr;
  StagingPlace place;
};

// All staging memory of one session. Buffers are added on demand and remain until the session ends.
//
// Thread-safe. Adding a buffer, a round trip to the server, happens under the lock.
class StagingBufferSet {
 public:
  struct Surroundings {
    // Asks the server for a staging buffer of `bytes`.
    std::function<Result<std::unique_ptr<StagingBuffer>>(std::uint64_t bytes)> add;
    // Blocks until the commands of `fence` have ended or the session has ended.
    std::function<Status(const Fence& fence)> wait;
  };
  // `progress` must outlive this object.
  StagingBufferSet(const Progress& progress, Surroundings surroundings);

  // Allocates long-lived memory. Adds a staging buffer rather than waiting for retired blocks.
  Result<StagingBlock> Allocate(std::size_t bytes);

  // Allocates short-lived memory for a staged copy. Returns no value if no memory is free now, but
  // retired blocks will become free; the caller then calls WaitForOldest. Adds a staging buffer
  // only if no retired block can become free, or while all buffers together are smaller than
  // ipc::kStagingBufferBytesDefault.
  Result<std::optional<StagingBlock>> TryAllocateStaging(std::size_t bytes);
  Status WaitForOldest();

  // Free releases a block now; Retire releases it once the commands of `fence` have ended.
  void Free(std::byte* block);
  void Retire(std::byte* block, Fence fence);

  // Returns the location of [first, first + bytes) if one staging buffer contains all of it.
  std::optional<StagingPlace> Find(const void* first, std::size_t bytes) const;

  // Drops the buffers without unmapping them, for a forked child, in which they are not mapped.
  // Takes no lock, because a thread that does not exist in the child may hold it.
  void Abandon() GPUSHARED_UNCHECKED_LOCKING;

 private:
  struct Retired {
    Fence fence;
    std::byte* block;
  };

  void Reap() GPUSHARED_REQUIRES(mutex_);
  std::optional<StagingBlock> AllocateFromExisting(std::size_t bytes) GPUSHARED_REQUIRES(mutex_);
  Result<StagingBlock> AllocateFromNew(std::size_t bytes) GPUSHARED_REQUIRES(mutex_);
  void FreeLocked(std::byte* block) GPUSHARED_REQUIRES(mutex_);

  const Progress& progress_;
  const Surroundings surroundings_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<StagingBuffer>> staging_buffers_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t total_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // Size of all staging buffers.
  std::deque<Retired> retired_ GPUSHARED_GUARDED_BY(mutex_);    // Oldest first.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_STAGING_BUFFER_SET_H_
