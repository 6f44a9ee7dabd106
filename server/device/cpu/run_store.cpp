// SPDX-License-Identifier: Apache-2.0
#include "server/device/cpu/run_store.h"

namespace gpushared::device {

bool RunStore::Reserve(const Space* space, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (bytes > kPausedBytesMax - bytes_) return false;
  std::uint64_t& of_space = by_space_[space];
  if (bytes > kPausedBytesPerSpaceMax - of_space) {
    if (of_space == 0) by_space_.erase(space);
    return false;
  }
  of_space += bytes;
  bytes_ += bytes;
  return true;
}

void RunStore::Release(const Space* space, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  bytes_ -= bytes;
  const auto found = by_space_.find(space);
  found->second -= bytes;
  if (found->second == 0) by_space_.erase(found);
}

std::uint64_t RunStore::bytes() const {
  const MutexLock lock(mutex_);
  std::uint64_t sum = bytes_;
  for (const auto& executor : spare_) sum += executor->memory_bytes();
  return sum;
}

std::unique_ptr<executor::BlockExecutor> RunStore::Take() {
  std::unique_ptr<executor::BlockExecutor> taken, surplus;
  {
    const MutexLock lock(mutex_);
    if (!spare_.empty()) {
      taken = std::move(spare_.back());
      spare_.pop_back();
    }
    if (!spare_.empty()) {
      surplus = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  return taken != nullptr ? std::move(taken) : std::make_unique<executor::BlockExecutor>();
}

void RunStore::Return(std::unique_ptr<executor::BlockExecutor> executor) {
  const MutexLock lock(mutex_);
  spare_.push_back(std::move(executor));
}

void RunStore::Clear() {
  std::vector<std::unique_ptr<executor::BlockExecutor>> freed;
  const MutexLock lock(mutex_);
  freed.swap(spare_);
}

}  // namespace gpushared::device
