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

// Where bytes lie for the worker.
struct StagingPlace {
  std::uint32_t staging_buffer = 0;
  std::uint32_t offset = 0;
};

struct StagingBlock {
  std::byte* data = nullptr;
  StagingPlace place;
};

// All staging memory of one session. Arenas are added as needed and stay until the end.
//
// Thread-safe. Adding a staging buffer, a round trip to the server, happens under the lock.
class StagingBufferSet {
 public:
  struct Surroundings {
    // Asks the server for a staging buffer of `bytes` bytes.
    std::function<Result<std::unique_ptr<StagingBuffer>>(std::uint64_t bytes)> add;
    // Blocks until the fence's commands have ended or the session has.
    std::function<Status(const Fence& fence)> wait;
  };
  // `progress` outlives this.
  StagingBufferSet(const Progress& progress, Surroundings surroundings);

  // For long: rather adds a staging buffer than waits for retired bytes.
  Result<StagingBlock> Allocate(std::size_t bytes);

  // Memory for a copy in between. Takes what is free now. If blocks are retired, it is empty, and
  // the caller calls WaitForOldest. Adds a staging buffer only when nothing will become free by
  // itself, or while all staging buffers together have less than the usual one
  // (ipc::kArenaBytesDefault).
  Result<std::optional<StagingBlock>> TryAllocateStaging(std::size_t bytes);
  Status WaitForOldest();

  // Gives a block back now, or once `fence` has passed.
  void Free(std::byte* block);
  void Retire(std::byte* block, Fence fence);

  // Where [first, first + bytes) lies, if all of it lies in one staging buffer.
  std::optional<StagingPlace> Find(const void* first, std::size_t bytes) const;

  // Without side effects on memory: for a forked child, where the staging buffers are not mapped.
  // No lock is taken: a thread that the child does not have may hold it.
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
  std::uint64_t total_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // All staging buffers together.
  std::deque<Retired> retired_ GPUSHARED_GUARDED_BY(mutex_);    // Oldest first.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_STAGING_BUFFER_SET_H_
