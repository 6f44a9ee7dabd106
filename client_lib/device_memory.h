// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DEVICE_MEMORY_H_
#define GPUSHARED_CLIENT_LIB_DEVICE_MEMORY_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_set>

#include "gpushared/client.h"
#include "gpushared/limits.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "client_lib/progress.h"
#include "client_lib/range_allocator.h"

namespace gpushared::client {

// Device memory of one session. Allocates buffers from the mapped part of the session's address
// range. The mapped part grows on demand and shrinks when trimmed.
//
// Submitted commands may still use freed memory, so a freed block is reused only after every
// command that was submitted before the free has ended.
//
// Thread-safe. Growing, a round trip to the server, happens under the lock, because other threads
// that allocate would need the same growth.
class DeviceMemory {
 public:
  static constexpr std::uint64_t kGrowthBytesMax = 64u << 20;

  struct Surroundings {
    // Asks the server to map [base, base + bytes); returns the number of bytes mapped now.
    std::function<Result<std::uint64_t>(std::uint64_t bytes)> resize;
    // Blocks until the commands of `fence` have ended or the session has ended.
    std::function<Status(const Fence& fence)> wait;
    // Announce a buffer to the server, and withdraw it. Both are empty if the server does not track
    // buffers. The announcements are submitted to the same ring as commands, so they keep their
    // order.
    std::function<void(std::uint64_t address, std::uint64_t bytes)> name_buffer = {};
    std::function<void(std::uint64_t address)> forget_buffer = {};
  };
  // `progress` must outlive this object.
  DeviceMemory(std::uint64_t base, std::uint64_t quota_bytes, const Progress& progress,
               Surroundings surroundings);

  // Allocates `bytes`. `*used_bytes` receives the length of the block's initial part that may hold
  // data of an earlier buffer; the bytes after that part are zero.
  Result<std::uint64_t> Allocate(std::uint64_t bytes, std::uint64_t* used_bytes = nullptr);
  // Frees a block of Allocate; ignores any other address.
  void Free(std::uint64_t address);
  MemoryInfo Info();
  // Releases free memory at the end of the mapped part to the device. Returns how many bytes were
  // released.
  Result<std::uint64_t> Trim();
  // Returns whether commands still use freed memory.
  bool HasRetired();

 private:
  struct Retired {
    Fence fence;
    std::uint64_t address;
  };

  // Sets `*used_bytes`, and announces the block to the server, if the server tracks buffers, before
  // a command can access the block. Returns `address`.
  std::uint64_t Named(std::uint64_t address, std::uint64_t* used_bytes) GPUSHARED_REQUIRES(mutex_);
  void Forget(std::uint64_t address) GPUSHARED_REQUIRES(mutex_);
  void Reap() GPUSHARED_REQUIRES(mutex_);
  // Maps at least `bytes` more, and a reserve for later allocations if the server grants it.
  Status Grow(std::uint64_t bytes) GPUSHARED_REQUIRES(mutex_);
  Status GrowTo(std::uint64_t mapped_bytes) GPUSHARED_REQUIRES(mutex_);
  Status Exhausted(std::uint64_t bytes, const Status& reason) const GPUSHARED_REQUIRES(mutex_);

  const std::uint64_t quota_bytes_;
  const Progress& progress_;
  const Surroundings surroundings_;
  Mutex mutex_;
  RangeAllocator ranges_ GPUSHARED_GUARDED_BY(mutex_);
  std::deque<Retired> retired_ GPUSHARED_GUARDED_BY(mutex_);  // Oldest first.
  // Addresses of the announced buffers.
  std::unordered_set<std::uint64_t> named_ GPUSHARED_GUARDED_BY(mutex_);
  std::uint64_t growth_bytes_ GPUSHARED_GUARDED_BY(mutex_) = kMapPageBytes;
  // Address from which on no buffer has used the memory since it was mapped.
  std::uint64_t unused_from_ GPUSHARED_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_DEVICE_MEMORY_H_
