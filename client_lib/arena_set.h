// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_ARENA_SET_H_
#define GPUSHARED_CLIENT_LIB_ARENA_SET_H_

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

#include "client_lib/arena.h"
#include "client_lib/progress.h"

namespace gpushared::client {

// Where bytes lie for the worker.
struct ArenaPlace {
  std::uint32_t arena = 0;
  std::uint32_t offset = 0;
};

struct ArenaBlock {
  std::byte* data = nullptr;
  ArenaPlace place;
};

// All staging memory of one session. Arenas are added as needed and stay until the end.
//
// Thread-safe. Adding an arena, a round trip to the server, happens under the lock.
class ArenaSet {
 public:
  struct Surroundings {
    // Asks the server for an arena of `bytes` bytes.
    std::function<Result<std::unique_ptr<Arena>>(std::uint64_t bytes)> add;
    // Blocks until the fence's commands have ended or the session has.
    std::function<Status(const Fence& fence)> wait;
  };
  // `progress` outlives this.
  ArenaSet(const Progress& progress, Surroundings surroundings);

  // For long: rather adds an arena than waits for retired bytes.
  Result<ArenaBlock> Allocate(std::size_t bytes);

  // Memory for a copy in between. Takes what is free now. If blocks are retired, it is empty, and
  // the caller calls WaitForOldest. Adds an arena only when nothing will become free by itself, or
  // while all arenas together have less than the usual one (ipc::kArenaBytesDefault).
  Result<std::optional<ArenaBlock>> TryAllocateStaging(std::size_t bytes);
  Status WaitForOldest();

  // Gives a block back now, or once `fence` has passed.
  void Free(std::byte* block);
  void Retire(std::byte* block, Fence fence);

  // Where [first, first + bytes) lies, if all of it lies in one arena.
  std::optional<ArenaPlace> Find(const void* first, std::size_t bytes) const;

  // Without side effects on memory: for a forked child, where the arenas are not mapped. No lock
  // is taken: a thread that the child does not have may hold it.
  void Abandon() GPUSHARED_UNCHECKED_LOCKING;

 private:
  struct Retired {
    Fence fence;
    std::byte* block;
  };

  void Reap() GPUSHARED_REQUIRES(mutex_);
  std::optional<ArenaBlock> AllocateFromExisting(std::size_t bytes) GPUSHARED_REQUIRES(mutex_);
  Result<ArenaBlock> AllocateFromNew(std::size_t bytes) GPUSHARED_REQUIRES(mutex_);
  void FreeLocked(std::byte* block) GPUSHARED_REQUIRES(mutex_);

  const Progress& progress_;
  const Surroundings surroundings_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t total_bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // All arenas together.
  std::deque<Retired> retired_ GPUSHARED_GUARDED_BY(mutex_);    // Oldest first.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_ARENA_SET_H_
