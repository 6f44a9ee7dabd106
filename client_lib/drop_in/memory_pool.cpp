// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/memory_pool.h"

#include <algorithm>
#include <limits>
#include <string>

namespace gpushared::drop_in {
namespace {

// CUmemPool_attribute.
enum PoolAttribute : int {
  kFollowEventDependencies = 1,
  kAllowInternalDependencies = 3,
  kReleaseThreshold = 4,
  kReservedCurrent = 5,
  kReservedHigh = 6,
  kUsedCurrent = 7,
  kUsedHigh = 8,
};

// Returns whether the work before the event has ended or failed; after a failure, nothing else
// runs.
bool HasEnded(const Event& event) { return event.Query().code() != StatusCode::kNotReady; }

Code Put(void* to, std::uint64_t value) {
  *static_cast<std::uint64_t*>(to) = value;
  return Code::kSuccess;
}

}  // namespace

// ---- pools

Code MemoryPool::GetAttribute(int attribute, void* value) const {
  const Counts now = counts();
  switch (attribute) {
    case kReleaseThreshold:
      return Put(value, threshold_bytes_.load(std::memory_order_relaxed));
    case kReservedCurrent:
      return Put(value, now.reserved_bytes);
    case kReservedHigh:
      return Put(value, now.reserved_bytes_high);
    case kUsedCurrent:
      return Put(value, now.used_bytes);
    case kUsedHigh:
      return Put(value, now.used_bytes_high);
    default:
      break;
  }
  if (attribute < kFollowEventDependencies || attribute > kAllowInternalDependencies) {
    return Code::kInvalidValue;
  }
  *static_cast<int*>(value) = reuse_[attribute - kFollowEventDependencies].load();
  return Code::kSuccess;
}

Code MemoryPool::SetAttribute(int attribute, const void* value) {
  if (attribute >= kFollowEventDependencies && attribute <= kAllowInternalDependencies) {
    const int flag = *static_cast<const int*>(value);
    if (flag != 0 && flag != 1) return Code::kInvalidValue;
    reuse_[attribute - kFollowEventDependencies].store(flag);
    return Code::kSuccess;
  }
  if (attribute != kReleaseThreshold && attribute != kReservedHigh && attribute != kUsedHigh) {
    return Code::kInvalidValue;
  }
  const std::uint64_t number = *static_cast<const std::uint64_t*>(value);
  if (attribute == kReleaseThreshold) {
    threshold_bytes_.store(number, std::memory_order_relaxed);
    return Code::kSuccess;
  }
  // A high-water mark restarts at the current value.
  if (number != 0) return Code::kInvalidValue;
  const MutexLock lock(mutex_);
  if (attribute == kReservedHigh) {
    counts_.reserved_bytes_high = counts_.reserved_bytes;
  } else {
    counts_.used_bytes_high = counts_.used_bytes;
  }
  return Code::kSuccess;
}

bool MemoryPool::HoldsTooMuch() const {
  if (is_destroyed()) return true;
  const std::uint64_t threshold_bytes = threshold_bytes_.load(std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  return counts_.reserved_bytes > threshold_bytes;
}

bool MemoryPool::Reserve(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (bytes_max_ != 0 && bytes > bytes_max_ - std::min(counts_.reserved_bytes, bytes_max_)) {
    return false;
  }
  counts_.reserved_bytes += bytes;
  counts_.reserved_bytes_high = std::max(counts_.reserved_bytes_high, counts_.reserved_bytes);
  return true;
}

void MemoryPool::Unreserve(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  counts_.reserved_bytes -= bytes;
}

void MemoryPool::Use(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  counts_.used_bytes += bytes;
  counts_.used_bytes_high = std::max(counts_.used_bytes_high, counts_.used_bytes);
}

void MemoryPool::Unuse(std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  counts_.used_bytes -= bytes;
}

void MemoryPool::SetAccess(int device, int access) {
  const MutexLock lock(mutex_);
  access_[device] = access;
}

int MemoryPool::GetAccess(int device) const {
  const MutexLock lock(mutex_);
  const auto found = access_.find(device);
  return found == access_.end() ? 0 : found->second;
}

MemoryPool::Counts MemoryPool::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

// ---- allocations

PooledMemory::PooledMemory(std::shared_ptr<MemoryPool> pool, Buffer buffer)
    : pool_(std::move(pool)), buffer_(std::move(buffer)) {
  const auto* const device = std::get_if<DeviceBuffer>(&buffer_);
  used_bytes_ = device == nullptr ? 0 : device->used_bytes();
}

PooledMemory::~PooledMemory() {
  SetUsed(false);
  pool_->Unreserve(bytes());
}

std::uint64_t PooledMemory::address() const {
  const auto* const host = std::get_if<HostBuffer>(&buffer_);
  return host != nullptr ? reinterpret_cast<std::uint64_t>(host->data())
                         : std::get<DeviceBuffer>(buffer_).address();
}

std::size_t PooledMemory::bytes() const {
  return std::visit([](const auto& buffer) { return buffer.size(); }, buffer_);
}

void PooledMemory::SetUsed(bool is_used) {
  if (is_used == is_used_) return;
  is_used_ = is_used;
  is_used ? pool_->Use(bytes()) : pool_->Unuse(bytes());
}

// ---- kept memory of a session

Result<std::unique_ptr<PooledMemory>> KeptMemory::Take(const std::shared_ptr<MemoryPool>& pool,
                                                       std::size_t bytes, std::uint64_t stream_id) {
  if (bytes > std::numeric_limits<std::size_t>::max() - MemoryPool::kStepBytes) {
    return Status(StatusCode::kOutOfMemory,
                  "allocation rejected: its size exceeds the address space");
  }
  bytes = (bytes + MemoryPool::kStepBytes - 1) / MemoryPool::kStepBytes * MemoryPool::kStepBytes;
  std::unique_ptr<PooledMemory> memory = TakeKept(*pool, bytes, stream_id);
  if (memory == nullptr) {
    if (Status reserved = Reserve(*pool, bytes); !reserved.ok()) return reserved;
    Result<PooledMemory::Buffer> buffer = Allocate(*pool, bytes);
    if (!buffer.ok()) {
      pool->Unreserve(bytes);
      return buffer.status();
    }
    memory = std::make_unique<PooledMemory>(pool, std::move(*buffer));
  }
  memory->SetUsed(true);
  return memory;
}

std::unique_ptr<PooledMemory> KeptMemory::TakeKept(const MemoryPool& pool, std::size_t bytes,
                                                   std::uint64_t stream_id) {
  if (!has_any_.load(std::memory_order_relaxed)) return nullptr;
  const MutexLock lock(mutex_);
  const auto [first, last] = kept_.equal_range({&pool, bytes});
  auto found = std::find_if(first, last,
                            [&](const auto& entry) { return entry.second.stream_id == stream_id; });
  if (found == last) {
    // Checks only the first entry, which was freed earliest and is the most likely to have ended.
    if (first == last || !pool.is_opportunistic() || !HasEnded(first->second.freed)) return nullptr;
    found = first;
  }
  std::unique_ptr<PooledMemory> memory = std::move(found->second.memory);
  kept_.erase(found);
  return memory;
}

Status KeptMemory::Reserve(MemoryPool& pool, std::size_t bytes) {
  if (pool.Reserve(bytes)) return Status::Ok();
  Drop(pool);
  if (pool.Reserve(bytes)) return Status::Ok();
  return Status(StatusCode::kOutOfMemory,
                "allocation rejected: " + std::to_string(bytes) + " bytes asked, the pool holds " +
                    std::to_string(pool.counts().reserved_bytes) +
                    " bytes, allowed: " + std::to_string(pool.bytes_max()));
}

Result<PooledMemory::Buffer> KeptMemory::Allocate(const MemoryPool& pool, std::size_t bytes) {
  const auto allocate = [&]() -> Result<PooledMemory::Buffer> {
    if (pool.is_host()) {
      Result<HostBuffer> buffer = client_.AllocateHost(bytes);
      if (!buffer.ok()) return buffer.status();
      return PooledMemory::Buffer(std::move(*buffer));
    }
    Result<DeviceBuffer> buffer = client_.AllocateDevice(bytes);
    if (!buffer.ok()) return buffer.status();
    return PooledMemory::Buffer(std::move(*buffer));
  };
  Result<PooledMemory::Buffer> buffer = allocate();
  if (buffer.ok() || buffer.status().code() != StatusCode::kOutOfMemory) return buffer;
  // The session has no memory left except kept memory.
  std::multimap<Key, Kept> dropped;
  {
    const MutexLock lock(mutex_);
    dropped.swap(kept_);
  }
  if (dropped.empty()) return buffer;
  dropped.clear();
  return allocate();
}

void KeptMemory::Keep(std::unique_ptr<PooledMemory> memory, std::uint64_t stream_id, Event freed) {
  memory->SetUsed(false);
  if (memory->pool()->is_destroyed()) return;
  const MutexLock lock(mutex_);
  const Key key = {memory->pool().get(), memory->bytes()};
  kept_.emplace(key, Kept{std::move(memory), stream_id, std::move(freed)});
  has_any_.store(true, std::memory_order_relaxed);
}

void KeptMemory::GiveBack() {
  if (!has_any_.load(std::memory_order_relaxed)) return;
  const MutexLock lock(mutex_);
  std::erase_if(kept_, [](const auto& entry) {
    return entry.second.memory->pool()->HoldsTooMuch() && HasEnded(entry.second.freed);
  });
}

void KeptMemory::TrimTo(const MemoryPool& pool, std::uint64_t bytes) {
  const MutexLock lock(mutex_);
  std::erase_if(kept_, [&](const auto& entry) {
    return entry.first.first == &pool && pool.counts().reserved_bytes > bytes &&
           HasEnded(entry.second.freed);
  });
}

void KeptMemory::Drop(const MemoryPool& pool) {
  const MutexLock lock(mutex_);
  std::erase_if(kept_, [&](const auto& entry) { return entry.first.first == &pool; });
}

}  // namespace gpushared::drop_in
