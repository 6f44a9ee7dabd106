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

// Pool of the program: its settings and statistics. The session holds the memory itself.
//
// Thread-safe.
class MemoryPool {
 public:
  // Sizes are rounded up to a multiple of this, so that memory can be reused for similar sizes.
  static constexpr std::size_t kStepBytes = 512;
  // Ordinal of a pool of host memory, which programs access like page-locked memory.
  static constexpr int kHost = -1;

  struct Counts {
    std::uint64_t reserved_bytes = 0, reserved_bytes_high = 0;  // In use, or kept for reuse.
    std::uint64_t used_bytes = 0, used_bytes_high = 0;          // In use by the program.
  };

  // `bytes_max` limits reserved memory; 0: only the session limits it.
  MemoryPool(int ordinal, std::uint64_t bytes_max) : ordinal_(ordinal), bytes_max_(bytes_max) {}

  int ordinal() const { return ordinal_; }  // Ordinal of the pool's device, or kHost.
  bool is_host() const { return ordinal_ == kHost; }
  std::uint64_t bytes_max() const { return bytes_max_; }
  PoolHandle handle() const { return handle_.load(std::memory_order_relaxed); }
  void set_handle(PoolHandle handle) { handle_.store(handle, std::memory_order_relaxed); }

  // CUmemPool_attribute. `value` points to an int or a std::uint64_t as in CUDA.
  Code GetAttribute(int attribute, void* value) const;
  Code SetAttribute(int attribute, const void* value);

  // Stores the program's access settings for a pool of host memory. They have no effect, because
  // all devices can access it.
  void SetAccess(int device, int access);
  int GetAccess(int device) const;  // 0: not set.

  // Whether another stream may reuse freed memory as soon as the work before the free has ended.
  bool is_opportunistic() const { return reuse_[1].load(std::memory_order_relaxed) != 0; }
  // Whether the pool holds more than its threshold; always true once the program has destroyed it.
  bool HoldsTooMuch() const;
  void MarkDestroyed() { is_destroyed_.store(true, std::memory_order_relaxed); }
  bool is_destroyed() const { return is_destroyed_.load(std::memory_order_relaxed); }

  // Returns false if the pool's limit does not allow it. Reserved bytes are returned with
  // Unreserve.
  bool Reserve(std::uint64_t bytes);
  void Unreserve(std::uint64_t bytes);
  void Use(std::uint64_t bytes);
  void Unuse(std::uint64_t bytes);
  Counts counts() const;

 private:
  const int ordinal_;
  const std::uint64_t bytes_max_;
  std::atomic<PoolHandle> handle_{nullptr};
  // Permissions of CUDA for reuse: event dependencies, opportunistic, internal dependencies. This
  // library uses only the second one.
  std::atomic<int> reuse_[3] = {1, 1, 1};
  std::atomic<std::uint64_t> threshold_bytes_{0};
  std::atomic<bool> is_destroyed_{false};
  mutable Mutex mutex_;
  Counts counts_ GPUSHARED_GUARDED_BY(mutex_);
  std::map<int, int> access_ GPUSHARED_GUARDED_BY(mutex_);  // By ordinal.
};

// One allocation of a pool: in use until it is kept for reuse, and reserved until it is destroyed.
class PooledMemory {
 public:
  using Buffer = std::variant<DeviceBuffer, HostBuffer>;
  // `pool` has already reserved the bytes of the buffer.
  PooledMemory(std::shared_ptr<MemoryPool> pool, Buffer buffer);
  ~PooledMemory();
  PooledMemory(const PooledMemory&) = delete;
  PooledMemory& operator=(const PooledMemory&) = delete;

  const std::shared_ptr<MemoryPool>& pool() const { return pool_; }
  std::uint64_t address() const;
  std::size_t bytes() const;
  void SetUsed(bool is_used);
  // Returns how many bytes at the start of the memory were in use before the pool received it, and
  // may therefore hold old data. Returns 0 from the second call on.
  std::size_t TakeUsedBytes() { return std::exchange(used_bytes_, 0); }

 private:
  const std::shared_ptr<MemoryPool> pool_;
  const Buffer buffer_;
  bool is_used_ = false;
  std::size_t used_bytes_ = 0;
};

// Freed memory of a session's pools, kept for reuse. The stream that freed the memory can reuse it
// immediately. Other streams can do so once the work before the free has ended, if the pool is
// opportunistic. Calls that wait for work release kept memory of pools above their threshold.
//
// Thread-safe.
class KeptMemory {
 public:
  // `client` must outlive this object.
  explicit KeptMemory(const Client& client) : client_(client) {}

  // Returns memory for later commands of the stream with this number.
  Result<std::unique_ptr<PooledMemory>> Take(const std::shared_ptr<MemoryPool>& pool,
                                             std::size_t bytes, std::uint64_t stream_id);
  // `freed` is the position of the free in the stream with this number.
  void Keep(std::unique_ptr<PooledMemory> memory, std::uint64_t stream_id, Event freed);
  // Releases memory that no work needs, from pools above their threshold.
  void GiveBack();
  // Releases memory of this pool until it holds at most `bytes`.
  void TrimTo(const MemoryPool& pool, std::uint64_t bytes);
  // Releases all kept memory of a pool. Earlier commands may still use the memory.
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
  // The next two release kept memory if no other memory is left.
  Status Reserve(MemoryPool& pool, std::size_t bytes);
  Result<PooledMemory::Buffer> Allocate(const MemoryPool& pool, std::size_t bytes);

  const Client& client_;
  std::atomic<bool> has_any_{false};  // Never reset.
  Mutex mutex_;
  // Equal keys in the order of their frees.
  std::multimap<Key, Kept> kept_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_MEMORY_POOL_H_
