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

// The device memory of one session: buffers carved out of the mapped part of its address
// range, which grows as needed and shrinks when it is trimmed.
//
// Commands on their way may still use freed memory. So it waits behind a fence of everything that
// was submitted before the free.
//
// Thread-safe. Growth, a round trip to the server, happens under the lock: other threads that
// allocate would need it too.
class DeviceMemory {
 public:
  static constexpr std::uint64_t kGrowthBytesMax = 64u << 20;

  struct Surroundings {
    // Asks the server to map [base, base + bytes); returns what is mapped now.
    std::function<Result<std::uint64_t>(std::uint64_t bytes)> resize;
    // Blocks until the fence's commands have ended or the session has.
    std::function<Status(const Fence& fence)> wait;
    // Tells the server of a buffer, and that there is none any more. Empty where it need not know.
    // Ordered with commands as they are submitted.
    std::function<void(std::uint64_t address, std::uint64_t bytes)> name_buffer = {};
    std::function<void(std::uint64_t address)> forget_buffer = {};
  };
  // `progress` outlives this.
  DeviceMemory(std::uint64_t base, std::uint64_t quota_bytes, const Progress& progress,
               Surroundings surroundings);

  // `used_bytes`: so many of the first bytes may hold what an earlier buffer left; the others are
  // zero.
  Result<std::uint64_t> Allocate(std::uint64_t bytes, std::uint64_t* used_bytes = nullptr);
  // `address` came from Allocate; ignored otherwise.
  void Free(std::uint64_t address);
  MemoryInfo Info();
  // Gives what is free at the end of the range back to the device; how much.
  Result<std::uint64_t> Trim();
  // Whether something that was freed is still used by commands.
  bool HasRetired();

 private:
  struct Retired {
    Fence fence;
    std::uint64_t address;
  };

  // The server is to know the buffer before a command names it, and before it lies elsewhere.
  std::uint64_t Named(std::uint64_t address, std::uint64_t* used_bytes) GPUSHARED_REQUIRES(mutex_);
  void Forget(std::uint64_t address) GPUSHARED_REQUIRES(mutex_);
  void Reap() GPUSHARED_REQUIRES(mutex_);
  // Maps enough for `bytes` more, with room for the next ones where that can be had.
  Status Grow(std::uint64_t bytes) GPUSHARED_REQUIRES(mutex_);
  Status GrowTo(std::uint64_t mapped_bytes) GPUSHARED_REQUIRES(mutex_);
  Status Exhausted(std::uint64_t bytes, const Status& reason) const GPUSHARED_REQUIRES(mutex_);

  const std::uint64_t quota_bytes_;
  const Progress& progress_;
  const Surroundings surroundings_;
  Mutex mutex_;
  RangeAllocator ranges_ GPUSHARED_GUARDED_BY(mutex_);
  std::deque<Retired> retired_ GPUSHARED_GUARDED_BY(mutex_);              // Oldest first.
  std::unordered_set<std::uint64_t> named_ GPUSHARED_GUARDED_BY(mutex_);  // By address.
  std::uint64_t growth_bytes_ GPUSHARED_GUARDED_BY(mutex_) = kMapPageBytes;
  std::uint64_t unused_from_ GPUSHARED_GUARDED_BY(mutex_) = 0;  // Behind all buffers so far.
};

}  // namespace gpushared::client

#endif  // GPUSHARED_CLIENT_LIB_DEVICE_MEMORY_H_
