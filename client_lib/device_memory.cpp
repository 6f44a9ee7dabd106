// SPDX-License-Identifier: Apache-2.0
#include "client_lib/device_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ipc/wire/layout.h"

namespace gpushared::client {

DeviceMemory::DeviceMemory(std::uint64_t base, std::uint64_t quota_bytes, const Progress& progress,
                           Surroundings surroundings)
    : quota_bytes_(quota_bytes),
      progress_(progress),
      surroundings_(std::move(surroundings)),
      ranges_(base) {}

Result<std::uint64_t> DeviceMemory::Allocate(std::uint64_t bytes, std::uint64_t* used_bytes) {
  if (bytes == 0) {
    return Status(StatusCode::kInvalidArgument,
                  "device allocation rejected: 0 bytes asked, at least 1 is needed");
  }
  const MutexLock lock(mutex_);
  Reap();
  if (const auto address = ranges_.Allocate(bytes)) return Named(*address, used_bytes);

  // Rejected here, because no buffer can exceed the quota and the sums below must not overflow.
  const std::optional<std::uint64_t> rounded = RangeAllocator::RoundUp(bytes);
  if (!rounded || *rounded > quota_bytes_) {
    return Exhausted(bytes, Status(StatusCode::kOutOfMemory, ""));
  }
  for (;;) {
    Status grown = Grow(*rounded);
    if (grown.ok()) return Named(*ranges_.Allocate(bytes), used_bytes);
    if (grown.code() != StatusCode::kOutOfMemory) return grown;
    // Freed memory becomes available when its commands have ended. The oldest block is awaited
    // first, because its commands end first.
    if (retired_.empty()) return Exhausted(bytes, grown);
    if (Status waited = surroundings_.wait(retired_.front().fence); !waited.ok()) return waited;
    Reap();
    if (const auto address = ranges_.Allocate(bytes)) return Named(*address, used_bytes);
  }
}

std::uint64_t DeviceMemory::Named(std::uint64_t address, std::uint64_t* used_bytes) {
  const std::uint64_t end = address + ranges_.BlockBytes(address);
  if (used_bytes != nullptr) *used_bytes = std::clamp(unused_from_, address, end) - address;
  unused_from_ = std::max(unused_from_, end);
  // The server tracks at most kBuffersMax buffers. A launch that accesses a buffer beyond that
  // limit requires all memory of the client to be resident.
  if (surroundings_.name_buffer && named_.size() < ipc::kBuffersMax) {
    surroundings_.name_buffer(address, ranges_.BlockBytes(address));
    named_.insert(address);
  }
  return address;
}

void DeviceMemory::Forget(std::uint64_t address) {
  if (named_.erase(address) > 0) surroundings_.forget_buffer(address);
}

void DeviceMemory::Free(std::uint64_t address) {
  Fence fence = progress_.Unfinished();
  const MutexLock lock(mutex_);
  if (ranges_.BlockBytes(address) == 0) return;
  Forget(address);
  if (fence.empty()) {
    ranges_.Release(address);
  } else {
    retired_.push_back({.fence = std::move(fence), .address = address});
  }
}

Result<std::uint64_t> DeviceMemory::Trim() {
  const MutexLock lock(mutex_);
  // A command that only reports a free to the server ends soon. Trim waits for such commands, so
  // that memory freed just now is returned as well.
  for (const Retired& retired : retired_) {
    if (!progress_.HasOnlyNotices(retired.fence)) continue;
    if (Status waited = surroundings_.wait(retired.fence); !waited.ok()) return waited;
  }
  Reap();
  const std::uint64_t asked = ranges_.TailBytes() / kMapPageBytes * kMapPageBytes;
  if (asked == 0) return std::uint64_t{0};
  // The server may keep a part of the memory mapped, so the returned number of bytes is computed
  // from the sizes before and after.
  const std::uint64_t before = ranges_.range_bytes();
  const Result<std::uint64_t> resized = surroundings_.resize(before - asked);
  if (!resized.ok()) return resized.status();
  if (*resized > before || *resized < before - asked) {
    return Status(StatusCode::kProtocolViolation,
                  "memory trim failed: server mapped " + std::to_string(*resized) +
                      " bytes, asked were " + std::to_string(before - asked));
  }
  ranges_.Shrink(before - *resized);
  // Memory that the server has unmapped is zero when it is mapped again.
  unused_from_ = std::min(unused_from_, ranges_.end());
  growth_bytes_ = kMapPageBytes;
  return before - *resized;
}

bool DeviceMemory::HasRetired() {
  const MutexLock lock(mutex_);
  return !retired_.empty();
}

MemoryInfo DeviceMemory::Info() {
  const MutexLock lock(mutex_);
  Reap();
  return {.total_bytes = quota_bytes_,
          .mapped_bytes = ranges_.range_bytes(),
          .used_bytes = ranges_.used_bytes()};
}

void DeviceMemory::Reap() {
  // Searches all blocks: streams are independent, so a later block may become free before an
  // earlier one.
  std::erase_if(retired_, [&](const Retired& retired) GPUSHARED_REQUIRES(mutex_) {
    if (!progress_.HasEnded(retired.fence)) return false;
    ranges_.Release(retired.address);
    return true;
  });
}

Status DeviceMemory::Grow(std::uint64_t bytes) {
  const std::uint64_t mapped = ranges_.range_bytes();
  const std::uint64_t missing = ranges_.GrowthFor(bytes);
  const std::uint64_t steps = (missing + kMapPageBytes - 1) / kMapPageBytes;
  const std::uint64_t needed = steps * kMapPageBytes;
  const std::uint64_t generous = std::max(needed, growth_bytes_);
  Status grown = GrowTo(std::min(mapped + generous, std::max(quota_bytes_, mapped + needed)));
  if (!grown.ok() && grown.code() == StatusCode::kOutOfMemory && generous != needed) {
    grown = GrowTo(mapped + needed);
  }
  if (grown.ok()) growth_bytes_ = std::min(growth_bytes_ * 2, kGrowthBytesMax);
  return grown;
}

Status DeviceMemory::GrowTo(std::uint64_t mapped_bytes) {
  const Result<std::uint64_t> resized = surroundings_.resize(mapped_bytes);
  if (!resized.ok()) return resized.status();
  if (*resized < mapped_bytes) {
    return Status(StatusCode::kProtocolViolation,
                  "memory growth failed: server mapped " + std::to_string(*resized) +
                      " bytes, asked were " + std::to_string(mapped_bytes));
  }
  ranges_.Grow(*resized - ranges_.range_bytes());
  return Status::Ok();
}

Status DeviceMemory::Exhausted(std::uint64_t bytes, const Status& reason) const {
  std::string message = "device allocation rejected: " + std::to_string(bytes) +
                        " bytes asked, quota " + std::to_string(quota_bytes_) + " bytes, used " +
                        std::to_string(ranges_.used_bytes()) + " bytes, mapped " +
                        std::to_string(ranges_.range_bytes()) + " bytes";
  if (!reason.message().empty()) message += "; server: " + reason.message();
  return Status(StatusCode::kOutOfMemory, std::move(message));
}

}  // namespace gpushared::client
