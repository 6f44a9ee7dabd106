// SPDX-License-Identifier: Apache-2.0
#include "client_lib/arena_set.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ipc/wire/layout.h"

namespace gpushared::client {
namespace {

// An arena for so much or less is as large as all before it together, and the first one as this.
constexpr std::size_t kLittleBytes = std::size_t{256} << 10;
constexpr std::uint64_t kFirstArenaBytes = std::uint64_t{1} << 20;

}  // namespace

ArenaSet::ArenaSet(const Progress& progress, Surroundings surroundings)
    : progress_(progress), surroundings_(std::move(surroundings)) {}

Result<ArenaBlock> ArenaSet::Allocate(std::size_t bytes) {
  if (bytes == 0) {
    return Status(StatusCode::kInvalidArgument,
                  "host allocation refused: 0 bytes asked, at least 1 is needed");
  }
  const MutexLock lock(mutex_);
  for (;;) {
    Reap();
    if (auto block = AllocateFromExisting(bytes)) return *block;
    Result<ArenaBlock> block = AllocateFromNew(bytes);
    if (block.ok() || retired_.empty()) return block;
    const StatusCode code = block.status().code();
    if (code != StatusCode::kOutOfMemory && code != StatusCode::kLimitExceeded) return block;
    if (Status waited = surroundings_.wait(retired_.front().fence); !waited.ok()) return waited;
  }
}

Result<std::optional<ArenaBlock>> ArenaSet::TryAllocateStaging(std::size_t bytes) {
  const MutexLock lock(mutex_);
  Reap();
  if (auto block = AllocateFromExisting(bytes)) return block;
  if (!retired_.empty() && total_bytes_ >= ipc::kArenaBytesDefault) {
    return std::optional<ArenaBlock>();
  }
  Result<ArenaBlock> block = AllocateFromNew(bytes);
  if (block.ok()) return std::optional<ArenaBlock>(*block);
  if (!retired_.empty()) return std::optional<ArenaBlock>();
  return block.status();
}

Status ArenaSet::WaitForOldest() {
  Fence fence;
  {
    const MutexLock lock(mutex_);
    if (retired_.empty()) return Status::Ok();
    fence = retired_.front().fence;
  }
  return surroundings_.wait(fence);
}

void ArenaSet::Free(std::byte* block) {
  const MutexLock lock(mutex_);
  FreeLocked(block);
}

void ArenaSet::Retire(std::byte* block, Fence fence) {
  const MutexLock lock(mutex_);
  if (progress_.HasEnded(fence)) {
    FreeLocked(block);
  } else {
    retired_.push_back({.fence = std::move(fence), .block = block});
  }
}

std::optional<ArenaPlace> ArenaSet::Find(const void* first, std::size_t bytes) const {
  const MutexLock lock(mutex_);
  for (const std::unique_ptr<Arena>& arena : arenas_) {
    if (arena->Contains(first, bytes)) {
      return ArenaPlace{.arena = arena->number(), .offset = arena->OffsetOf(first)};
    }
  }
  return {};
}

void ArenaSet::Abandon() {
  for (std::unique_ptr<Arena>& arena : arenas_) static_cast<void>(arena.release());
  arenas_.clear();
  retired_.clear();
}

void ArenaSet::Reap() {
  std::erase_if(retired_, [&](const Retired& retired) GPUSHARED_REQUIRES(mutex_) {
    if (!progress_.HasEnded(retired.fence)) return false;
    FreeLocked(retired.block);
    return true;
  });
}

std::optional<ArenaBlock> ArenaSet::AllocateFromExisting(std::size_t bytes) {
  for (const std::unique_ptr<Arena>& arena : arenas_) {
    if (std::byte* const data = arena->Allocate(bytes)) {
      return ArenaBlock{.data = data,
                        .place = {.arena = arena->number(), .offset = arena->OffsetOf(data)}};
    }
  }
  return {};
}

Result<ArenaBlock> ArenaSet::AllocateFromNew(std::size_t bytes) {
  constexpr std::size_t kBytesMax = ipc::kArenaBytesMax;
  static_assert(ipc::kArenaBytesStep % Arena::kAlignmentBytes == 0);
  if (bytes > kBytesMax) {
    return Status(StatusCode::kOutOfMemory, "host allocation refused: " + std::to_string(bytes) +
                                                " bytes asked, one allocation may have " +
                                                std::to_string(kBytesMax));
  }
  constexpr std::uint64_t kStep = ipc::kArenaBytesStep;
  const std::uint64_t rounded = (bytes + kStep - 1) / kStep * kStep;
  // Whoever needs little begins with little: taking memory costs the server 0.4 ms for each MiB,
  // which others wait for. Where memory is short, as much as there is.
  std::uint64_t asked = std::max<std::uint64_t>(rounded, ipc::kArenaBytesDefault);
  if (bytes <= kLittleBytes) {
    asked = std::clamp(total_bytes_, kFirstArenaBytes, std::uint64_t{ipc::kArenaBytesDefault});
  }
  Result<std::unique_ptr<Arena>> added = surroundings_.add(asked);
  while (!added.ok() && added.status().code() == StatusCode::kOutOfMemory && asked > rounded) {
    asked = std::max(asked / 2, rounded);
    added = surroundings_.add(asked);
  }
  if (!added.ok()) return added.status();
  arenas_.push_back(std::move(*added));
  total_bytes_ += asked;
  if (auto block = AllocateFromExisting(bytes)) return *block;
  return Status(StatusCode::kInternal, "host allocation failed: an arena made for " +
                                           std::to_string(bytes) + " bytes does not hold them");
}

void ArenaSet::FreeLocked(std::byte* block) {
  for (const std::unique_ptr<Arena>& arena : arenas_) {
    if (arena->Contains(block, 1)) return arena->Free(block);
  }
}

}  // namespace gpushared::client
