// SPDX-License-Identifier: Apache-2.0
#include "client_lib/staging_buffer_set.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ipc/wire/layout.h"

namespace gpushared::client {
namespace {

// For requests below kLittleBytes, the first staging buffer has kFirstBufferBytes, and each further
// one is as large as all before it together, at most kStagingBufferBytesDefault. Does not apply to
// pieces of large copies, which have exactly kLittleBytes.
constexpr std::size_t kLittleBytes = std::size_t{256} << 10;
constexpr std::uint64_t kFirstBufferBytes = std::uint64_t{1} << 20;

}  // namespace

StagingBufferSet::StagingBufferSet(const Progress& progress, Surroundings surroundings)
    : progress_(progress), surroundings_(std::move(surroundings)) {}

Result<StagingBlock> StagingBufferSet::Allocate(std::size_t bytes) {
  if (bytes == 0) {
    return Status(StatusCode::kInvalidArgument,
                  "host allocation rejected: 0 bytes asked, at least 1 is needed");
  }
  const MutexLock lock(mutex_);
  for (;;) {
    Reap();
    if (auto block = AllocateFromExisting(bytes)) return *block;
    Result<StagingBlock> block = AllocateFromNew(bytes);
    if (block.ok() || retired_.empty()) return block;
    const StatusCode code = block.status().code();
    if (code != StatusCode::kOutOfMemory && code != StatusCode::kLimitExceeded) return block;
    if (Status waited = surroundings_.wait(retired_.front().fence); !waited.ok()) return waited;
  }
}

Result<std::optional<StagingBlock>> StagingBufferSet::TryAllocateStaging(std::size_t bytes) {
  const MutexLock lock(mutex_);
  Reap();
  if (auto block = AllocateFromExisting(bytes)) return block;
  if (!retired_.empty() && total_bytes_ >= ipc::kStagingBufferBytesDefault) {
    return std::optional<StagingBlock>();
  }
  Result<StagingBlock> block = AllocateFromNew(bytes);
  if (block.ok()) return std::optional<StagingBlock>(*block);
  if (!retired_.empty()) return std::optional<StagingBlock>();
  return block.status();
}

Status StagingBufferSet::WaitForOldest() {
  Fence fence;
  {
    const MutexLock lock(mutex_);
    if (retired_.empty()) return Status::Ok();
    fence = retired_.front().fence;
  }
  return surroundings_.wait(fence);
}

void StagingBufferSet::Free(std::byte* block) {
  const MutexLock lock(mutex_);
  FreeLocked(block);
}

void StagingBufferSet::Retire(std::byte* block, Fence fence) {
  const MutexLock lock(mutex_);
  if (progress_.HasEnded(fence)) {
    FreeLocked(block);
  } else {
    retired_.push_back({.fence = std::move(fence), .block = block});
  }
}

std::optional<StagingPlace> StagingBufferSet::Find(const void* first, std::size_t bytes) const {
  const MutexLock lock(mutex_);
  for (const std::unique_ptr<StagingBuffer>& staging_buffer : staging_buffers_) {
    if (staging_buffer->Contains(first, bytes)) {
      return StagingPlace{.staging_buffer = staging_buffer->number(),
                          .offset = staging_buffer->GetOffset(first)};
    }
  }
  return {};
}

void StagingBufferSet::Abandon() {
  for (std::unique_ptr<StagingBuffer>& staging_buffer : staging_buffers_)
    static_cast<void>(staging_buffer.release());
  staging_buffers_.clear();
  retired_.clear();
}

void StagingBufferSet::Reap() {
  std::erase_if(retired_, [&](const Retired& retired) GPUSHARED_REQUIRES(mutex_) {
    if (!progress_.HasEnded(retired.fence)) return false;
    FreeLocked(retired.block);
    return true;
  });
}

std::optional<StagingBlock> StagingBufferSet::AllocateFromExisting(std::size_t bytes) {
  for (const std::unique_ptr<StagingBuffer>& staging_buffer : staging_buffers_) {
    if (std::byte* const data = staging_buffer->Allocate(bytes)) {
      return StagingBlock{.data = data,
                          .place = {.staging_buffer = staging_buffer->number(),
                                    .offset = staging_buffer->GetOffset(data)}};
    }
  }
  return {};
}

Result<StagingBlock> StagingBufferSet::AllocateFromNew(std::size_t bytes) {
  constexpr std::size_t kBytesMax = ipc::kStagingBufferBytesMax;
  static_assert(ipc::kStagingBytesStep % StagingBuffer::kAlignmentBytes == 0);
  if (bytes > kBytesMax) {
    return Status(StatusCode::kOutOfMemory, "host allocation rejected: " + std::to_string(bytes) +
                                                " bytes asked, one allocation may have " +
                                                std::to_string(kBytesMax));
  }
  constexpr std::uint64_t kStep = ipc::kStagingBytesStep;
  const std::uint64_t rounded = (bytes + kStep - 1) / kStep * kStep;
  // Small requests start with small buffers, because the server needs 0.4 ms per MiB to allocate
  // memory, during which other clients wait. If memory is short, uses what is available.
  std::uint64_t asked = std::max<std::uint64_t>(rounded, ipc::kStagingBufferBytesDefault);
  if (bytes < kLittleBytes) {
    asked =
        std::clamp(total_bytes_, kFirstBufferBytes, std::uint64_t{ipc::kStagingBufferBytesDefault});
  }
  Result<std::unique_ptr<StagingBuffer>> added = surroundings_.add(asked);
  while (!added.ok() && added.status().code() == StatusCode::kOutOfMemory && asked > rounded) {
    asked = std::max(asked / 2, rounded);
    added = surroundings_.add(asked);
  }
  if (!added.ok()) return added.status();
  staging_buffers_.push_back(std::move(*added));
  total_bytes_ += asked;
  if (auto block = AllocateFromExisting(bytes)) return *block;
  return Status(StatusCode::kInternal, "host allocation failed: a staging buffer made for " +
                                           std::to_string(bytes) + " bytes does not hold them");
}

void StagingBufferSet::FreeLocked(std::byte* block) {
  for (const std::unique_ptr<StagingBuffer>& staging_buffer : staging_buffers_) {
    if (staging_buffer->Contains(block, 1)) return staging_buffer->Free(block);
  }
}

}  // namespace gpushared::client
