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

// A device keeps paused runs of all clients up to so much memory, and of one client a quarter.
// Blocks beyond it are not paused: they go on to their end.
inline constexpr std::uint64_t kPausedBytesMax = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kPausedBytesPerSpaceMax = kPausedBytesMax / 4;

// Executors of one device that no thread has: those of paused runs are counted, spare ones kept.
// Memory that somebody drops is freed by an executor thread, not by whoever drops it.
//
// Thread-safe.
class RunStore {
 public:
  // Room for a run of this client with so much memory. False: there is none.
  bool Reserve(const Space* space, std::uint64_t bytes);
  void Release(const Space* space, std::uint64_t bytes);
  // Memory of the runs and of spare executors.
  std::uint64_t bytes() const;

  // An executor for a thread that has none. Frees one that was dropped beyond those.
  std::unique_ptr<executor::BlockExecutor> Take();
  void Drop(std::unique_ptr<executor::BlockExecutor> executor);
  // Frees all spare ones. For a thread that has nothing to do.
  void Clear();

 private:
  mutable Mutex mutex_;
  std::uint64_t bytes_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  std::unordered_map<const Space*, std::uint64_t> by_space_ GPUSHARED_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<executor::BlockExecutor>> spare_ GPUSHARED_GUARDED_BY(mutex_);
};

// An executor inside of blocks that have begun, and the room that was reserved for it. Its end
// gives both back.
class PausedRun {
 public:
  PausedRun() = default;
  // `bytes` were reserved for this space.
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
    if (executor_ != nullptr) store_->Drop(Take());
  }

  bool empty() const { return executor_ == nullptr; }
  // To go on.
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
