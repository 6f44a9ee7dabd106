// SPDX-License-Identifier: Apache-2.0
#include "server/worker/dispatch/page_use.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "server/device/memory_budget.h"

namespace gpushared::server {

namespace {

constexpr std::uint64_t kUsePageBytes = kMapPageBytes;

bool IsAway(const device::Space& space, std::size_t step) {
  return space.NonResidentBytes(space.base() + step * kUsePageBytes, kUsePageBytes) > 0;
}

// Whether a command that is not device work keeps the commands after it from starting.
bool Blocks(const ClientStreams& streams, const CommandSlot& command) {
  if (command.kind != CommandKind::kWaitFor) return command.destroys_stream();
  return streams[command.target.stream].finished < command.target.sequence;
}

// Sorts by address and merges overlaps, so that a page is counted once no matter how many commands
// touch it.
void Merge(std::vector<device::MemoryPiece>& pieces) {
  std::ranges::sort(pieces, {}, &device::MemoryPiece::base);
  std::size_t kept = 0;
  for (const device::MemoryPiece& piece : pieces) {
    if (kept > 0 && piece.base <= pieces[kept - 1].base + pieces[kept - 1].bytes) {
      device::MemoryPiece& last = pieces[kept - 1];
      last.bytes = std::max(last.bytes, piece.base + piece.bytes - last.base);
    } else {
      pieces[kept++] = piece;
    }
  }
  pieces.resize(kept);
}

}  // namespace

device::Reach GetReach(const CommandSlot& command) {
  if (command.graph == nullptr) {
    if (const auto* const copy = std::get_if<device::CopyWork>(&command.work)) {
      return device::GetReach(*copy);
    }
    if (const auto* const fill = std::get_if<device::FillWork>(&command.work)) {
      return device::GetReach(*fill);
    }
  }
  return command.reach() != nullptr ? *command.reach() : device::Reach::Everything();
}

std::uint64_t ReachBytes(const CommandSlot& command, std::uint64_t mapped_bytes) {
  const device::Reach reach = GetReach(command);
  if (reach.is_everything()) return mapped_bytes;
  std::uint64_t steps = 0, counted = 0;  // Pages before `counted` are in `steps`.
  for (const device::MemoryPiece& piece : reach.pieces()) {
    const std::uint64_t begin = std::max(piece.base / kUsePageBytes, counted);
    counted = (piece.base + piece.bytes - 1) / kUsePageBytes + 1;
    steps += counted - std::min(begin, counted);
  }
  return steps * kUsePageBytes;
}

bool IsResident(const device::Space& space, const CommandSlot& command) {
  const device::Reach reach = GetReach(command);
  if (reach.is_everything()) return false;
  return std::ranges::all_of(reach.pieces(), [&](const device::MemoryPiece& piece) {
    return space.NonResidentBytes(piece.base, piece.bytes) == 0;
  });
}

void PageUse::Add(const device::Reach& reach) {
  needs_everything_ |= reach.is_everything();
  if (reach.is_everything()) return;
  needed_.insert(needed_.end(), reach.pieces().begin(), reach.pieces().end());
}

void PageUse::Examine(const ClientStreams& streams, const device::Space& space,
                      std::uint64_t mapped_bytes, std::uint64_t requested_bytes) {
  if (streams.slab().empty()) return;
  const CommandSlab& slab = streams.slab();
  bool has_any = false;
  next_.clear();
  for (std::uint32_t stream = 0; stream < ipc::kStreamsMax; ++stream) {
    if (streams[stream].has_failed) continue;
    for (std::uint32_t slot = streams[stream].front; slot != kNoSlot; slot = slab[slot].next) {
      const CommandSlot& command = slab[slot];
      ++examined_;
      if (!command.is_device_work()) {
        if (Blocks(streams, command)) break;
        continue;
      }
      if (command.failure != nullptr) break;
      if (command.state() == CommandState::kEnded) continue;
      if (!std::exchange(has_any, true)) {
        needed_.clear();
        needs_everything_ = false;
      }
      if (command.state() != CommandState::kOnDevice) {
        next_.push_back(&command);
        break;
      }
      Add(GetReach(command));
    }
  }
  examined_ += ipc::kStreamsMax;
  if (!has_any) return;
  AddFitting(space, mapped_bytes, requested_bytes);
  examined_ += needed_.size();
  Merge(needed_);
}

void PageUse::AddFitting(const device::Space& space, std::uint64_t mapped_bytes,
                         std::uint64_t requested_bytes) {
  if (mapped_bytes <= requested_bytes) {
    for (const CommandSlot* const command : next_) Add(GetReach(*command));
    return;
  }
  const auto waits_longer = [](const CommandSlot* left, const CommandSlot* right) {
    return left->taken < right->taken;
  };
  const std::size_t looked = std::min(next_.size(), kNextWhereTight);
  std::partial_sort(next_.begin(), next_.begin() + static_cast<std::ptrdiff_t>(looked), next_.end(),
                    waits_longer);
  bool has_one = !needed_.empty() || needs_everything_;
  for (const CommandSlot* const command : std::span(next_).first(looked)) {
    const device::Reach reach = GetReach(*command);
    const std::size_t before = needed_.size();
    const bool needed_everything = needs_everything_;
    Add(reach);
    const Need need = Count(space, mapped_bytes);
    if (need.bytes > requested_bytes && has_one) {
      needed_.resize(before);
      needs_everything_ = needed_everything;
    }
    has_one = true;
  }
}

PageUse::Need PageUse::Count(const device::Space& space, std::uint64_t mapped_bytes) {
  ++count_;
  touched_at_.resize(mapped_bytes / kUsePageBytes, 0);
  if (needs_everything_) {
    examined_ += touched_at_.size();
    return {.bytes = mapped_bytes,
            .missing_bytes = space.NonResidentBytes(space.base(), mapped_bytes)};
  }
  Need need;
  for (const device::MemoryPiece& piece : needed_) {
    // Pieces beyond the mapped memory are skipped, because they are module variables, which are
    // never swapped.
    const std::uint64_t begin = piece.base - space.base();
    if (begin >= mapped_bytes) continue;
    const Need more = Touch(space, begin, begin + std::min(piece.bytes, mapped_bytes - begin));
    need.bytes += more.bytes;
    need.missing_bytes += more.missing_bytes;
  }
  return need;
}

PageUse::Need PageUse::Touch(const device::Space& space, std::uint64_t begin, std::uint64_t end) {
  const bool is_there = space.NonResidentBytes(space.base() + begin, end - begin) == 0;
  Need need;
  for (std::uint64_t step = begin / kUsePageBytes; step * kUsePageBytes < end; ++step) {
    ++examined_;
    if (touched_at_[step] == count_) continue;
    touched_at_[step] = count_;
    need.bytes += kUsePageBytes;
    if (!is_there && IsAway(space, step)) need.missing_bytes += kUsePageBytes;
  }
  return need;
}

std::vector<std::uint32_t> PageUse::ToSwapOut(const device::Space& space, std::size_t count) const {
  std::vector<std::uint32_t> steps;
  for (std::size_t step = 0; step < touched_at_.size(); ++step) {
    if (!IsAway(space, step)) steps.push_back(static_cast<std::uint32_t>(step));
  }
  // Among pages of the same age, those with the highest addresses go first.
  const auto goes_before = [this](std::uint32_t left, std::uint32_t right) {
    return touched_at_[left] != touched_at_[right] ? touched_at_[left] < touched_at_[right]
                                                   : left > right;
  };
  const auto end = steps.begin() + static_cast<std::ptrdiff_t>(std::min(count, steps.size()));
  std::partial_sort(steps.begin(), end, steps.end(), goes_before);
  steps.erase(end, steps.end());
  return steps;
}

std::vector<std::uint32_t> PageUse::ToSwapIn(const device::Space& space, std::size_t count) const {
  std::vector<std::uint32_t> steps;
  for (const bool is_needed : {true, false}) {
    for (std::size_t step = 0; step < touched_at_.size() && steps.size() < count; ++step) {
      if ((touched_at_[step] == count_) != is_needed || !IsAway(space, step)) continue;
      steps.push_back(static_cast<std::uint32_t>(step));
    }
  }
  return steps;
}

}  // namespace gpushared::server
