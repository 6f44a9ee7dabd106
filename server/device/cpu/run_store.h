// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CPU_RUN_STORE_H_
#define GPUSHARED_SERVER_DEVICE_CPU_RUN_STORE_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpushared/mutex.h"

#include "server/device/cpu/executor/block_executor.h"
#include "server/device/device.h"

namespace gpushared::device {

// Limit of the memory of paused runs of all clients of a device; one client may use a quarter.
// Blocks beyond the limit are not paused but run to their end.
inline constexpr std::uint64_t kPausedBytesMax = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kPausedBytesPerSpaceMax = kPausedBytesMax / 4;

// Pool of idle block executors; also accounts for the memory of paused runs. Executor threads free
// the memory of surplus executors, because freeing may take long.
//
// Thread-safe.
class RunStore {
 public:
  // Reserves memory for a paused run of this client. Returns false if the limit is reached.
  bool Reserve(const Space* space, std::uint64_t bytes);
  void Release(const Space* space, std::uint64_t bytes);
  // Returns the memory of paused runs and idle executors.
  std::uint64_t bytes() const;

  // Returns an idle executor, or a new one. Also frees one further idle executor, so that the pool
  // shrinks.
  std::unique_ptr<executor::BlockExecutor> Take();
  // Puts an executor back into the pool.
  void Return(std::unique_ptr<executor::BlockExecutor> executor);
  // Frees all idle executors. Called by a thread without work.
  void Clear();

 private:
  mutable Mutex mutex_;
  std::uint64_t bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::unordered_map<const Space*, std::uint64_t> by_space_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<executor::BlockExecutor>> spare_ GPUSHARED_GUARDED_BY(mutex_);
};

// An executor whose blocks have started, and its memory reservation. The destructor returns both to
// the store.
class PausedRun {
 public:
  PausedRun() = default;
  // `bytes` is the amount that was reserved for this space.
  PausedRun(std::unique_ptr<executor::BlockExecutor> executor, std::shared_ptr<RunStore> store,
            const Space* space, std::uint64_t bytes)
      : executor_(std::move(executor)), store_(std::move(store)), space_(space), bytes_(bytes) {}
  PausedRun(PausedRun&& other) noexcept = default;
  PausedRun& operator=(PausedRun&& other) noexcept {
    std::swap(executor_, other.executor_);
    std::swap(store_, other.store_);
    std::swap(space_, other.space_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PausedRun() {
    if (executor_ != nullptr) store_->Return(Take());
  }

  bool empty() const { return executor_ == nullptr; }
  // Returns the executor, to continue the run, and releases the memory reservation.
  std::unique_ptr<executor::BlockExecutor> Take() {
    store_->Release(space_, bytes_);
    return std::move(executor_);
  }

 private:
  std::unique_ptr<executor::BlockExecutor> executor_;
  std::shared_ptr<RunStore> store_;
  const Space* space_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CPU_RUN_STORE_H_
