// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_MEMORY_POOL_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_MEMORY_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <variant>

#include "gpushared/client.h"
#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// A pool as the program sees it: what it has set, and counts. The memory itself is in the session.
//
// Thread-safe.
class MemoryPool {
 public:
  // A pool has whole steps of this; so sizes that differ little are used for each other.
  static constexpr std::size_t kStepBytes = 512;
  // The ordinal of a pool of host memory, which programs reach as they reach page-locked memory.
  static constexpr int kHost = -1;

  struct Counts {
    std::uint64_t reserved_bytes = 0, reserved_bytes_high = 0;  // In use, or kept for the next use.
    std::uint64_t used_bytes = 0, used_bytes_high = 0;          // By the program.
  };

  // `bytes_max`: of reserved memory; 0: no bound but the session's.
  MemoryPool(int ordinal, std::uint64_t bytes_max) : ordinal_(ordinal), bytes_max_(bytes_max) {}

  int ordinal() const { return ordinal_; }  // Of its device, or kHost.
  bool is_host() const { return ordinal_ == kHost; }
  std::uint64_t bytes_max() const { return bytes_max_; }
  PoolHandle handle() const { return handle_.load(std::memory_order_relaxed); }
  void set_handle(PoolHandle handle) { handle_.store(handle, std::memory_order_relaxed); }

  // CUmemPool_attribute; `value` points to an int or a std::uint64_t as CUDA says.
  Code GetAttribute(int attribute, void* value) const;
  Code SetAttribute(int attribute, const void* value);

  // What the program has said about devices and a pool of host memory. It changes nothing: all of
  // them reach it.
  void SetAccess(int device, int access);
  int GetAccess(int device) const;  // 0: the program has said nothing.

  // Whether memory may change streams as soon as the work in front of its free has ended.
  bool is_opportunistic() const { return reuse_[1].load(std::memory_order_relaxed) != 0; }
  // Whether it holds more than it shall hold on to; always so once the program has let go of it.
  bool HoldsTooMuch() const;
  void LetGo() { is_let_go_.store(true, std::memory_order_relaxed); }
  bool is_let_go() const { return is_let_go_.load(std::memory_order_relaxed); }

  // False: the pool's bound allows no more. Whoever reserved takes back by Unreserve.
  bool Reserve(std::uint64_t bytes);
  void Unreserve(std::uint64_t bytes);
  void Use(std::uint64_t bytes);
  void Unuse(std::uint64_t bytes);
  Counts counts() const;

 private:
  const int ordinal_;
  const std::uint64_t bytes_max_;
  std::atomic<PoolHandle> handle_{nullptr};
  // Event dependencies, opportunistic, internal dependencies. Permissions, of which one is used.
  std::atomic<int> reuse_[3] = {1, 1, 1};
  std::atomic<std::uint64_t> threshold_bytes_{0};
  std::atomic<bool> is_let_go_{false};
  mutable Mutex mutex_;
  Counts counts_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<int, int> access_ GPUSHARED_GUARDED_BY(mutex_);  // By ordinal.
};

// One allocation of a pool: in use until it is kept, and reserved until it ends.
class PooledMemory {
 public:
  using Buffer = std::variant<DeviceBuffer, HostBuffer>;
  // `pool` has reserved the buffer's bytes.
  PooledMemory(std::shared_ptr<MemoryPool> pool, Buffer buffer);
  ~PooledMemory();
  PooledMemory(const PooledMemory&) = delete;
  PooledMemory& operator=(const PooledMemory&) = delete;

  const std::shared_ptr<MemoryPool>& pool() const { return pool_; }
  std::uint64_t address() const;
  std::size_t bytes() const;
  void SetUsed(bool is_used);
  // How many of its first bytes had been used before the pool got it; 0 from the second use on.
  std::size_t TakeUsedBytes() { return std::exchange(used_bytes_, 0); }

 private:
  const std::shared_ptr<MemoryPool> pool_;
  const Buffer buffer_;
  bool is_used_ = false;
  std::size_t used_bytes_ = 0;
};

// Freed memory of a session's pools. The same stream uses it again at once, others when the work in
// front of the free has ended. A call that waits for work gives it back.
//
// Thread-safe.
class KeptMemory {
 public:
  // `client` outlives this.
  explicit KeptMemory(const Client& client) : client_(client) {}

  // Memory for commands that come later in the stream of this number.
  Result<std::unique_ptr<PooledMemory>> Take(const std::shared_ptr<MemoryPool>& pool,
                                             std::size_t bytes, std::uint64_t stream_id);
  // `freed`: where the free stands in the stream of this number.
  void Keep(std::unique_ptr<PooledMemory> memory, std::uint64_t stream_id, Event freed);
  // Gives back what no work needs, from pools that hold too much.
  void GiveBack();
  // The same from this pool, until it holds no more than `bytes`.
  void TrimTo(const MemoryPool& pool, std::uint64_t bytes);
  // Gives back all memory of a pool that the program has let go of. Commands in front still use it.
  void Drop(const MemoryPool& pool);

 private:
  struct Kept {
    std::unique_ptr<PooledMemory> memory;
    std::uint64_t stream_id;
    Event freed;
  };
  using Key = std::pair<const MemoryPool*, std::size_t>;  // Pool and bytes.

  std::unique_ptr<PooledMemory> TakeKept(const MemoryPool& pool, std::size_t bytes,
                                         std::uint64_t stream_id);
  // The next two let go of kept memory where there is no more else.
  Status Reserve(MemoryPool& pool, std::size_t bytes);
  Result<PooledMemory::Buffer> Allocate(const MemoryPool& pool, std::size_t bytes);

  const Client& client_;
  std::atomic<bool> has_any_{false};  // Never false again.
  Mutex mutex_;
  std::multimap<Key, Kept> kept_ GPUSHARED_GUARDED_BY(mutex_);  // Equals in order of their frees.
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_MEMORY_POOL_H_
