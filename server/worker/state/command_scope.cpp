// SPDX-License-Identifier: Apache-2.0
#include "server/worker/state/command_scope.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "gpushared/check.h"

#include "ipc/wire/command.h"
#include "ipc/wire/validate.h"

namespace gpushared::server {

void CommandScope::AddModule(std::uint32_t number, const ModuleEntry& entry) {
  constexpr std::size_t kModulesMin = 64;
  if (number >= modules_.size()) {
    modules_.resize(std::min<std::size_t>(ipc::kModulesMax,
                                          std::max(kModulesMin, 2 * std::size_t{number} + 1)));
  }
  Check(modules_[number].module == nullptr, "a module number is used once at a time");
  modules_[number] = entry;
  for (const device::MemoryPiece& piece : entry.module->variable_memory()) {
    variables_[piece.base] = {.bytes = piece.bytes, .module = number};
  }
}

std::optional<std::uint32_t> CommandScope::ModuleWithVariables(std::uint64_t address,
                                                               std::uint64_t bytes) const {
  const auto behind = variables_.upper_bound(address);
  if (behind == variables_.begin()) return std::nullopt;
  const auto& [begin, found] = *std::prev(behind);
  const bool holds = ipc::RangeInside(address - begin, bytes, found.bytes);
  if (!holds || modules_[found.module].is_leaving) return std::nullopt;
  return found.module;
}

bool CommandScope::TryRelease(std::uint32_t number) {
  ModuleEntry& entry = modules_[number];
  if (!entry.is_leaving || entry.in_use > 0) return false;
  for (const device::MemoryPiece& piece : entry.module->variable_memory()) {
    variables_.erase(piece.base);
  }
  entry = ModuleEntry{};
  return true;
}

void CommandScope::Set(const Barrier& barrier) {
  Check(!barrier_, "one change of a session at a time");
  barrier_ = barrier;
}

void CommandScope::RemoveModuleAfter(std::uint32_t number, std::uint64_t position) {
  Set({.module = number, .mapping = std::nullopt, .position = position});
}

void CommandScope::ReadStagingBuffer(std::uint32_t number, std::uint64_t offset,
                                     std::span<std::byte> into) const {
  const StagingBuffer& staging_buffer = staging_buffers_[number];
  while (staging_buffer.fd >= 0 && !into.empty()) {
    const ssize_t count =
        ::pread(staging_buffer.fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    offset += static_cast<std::uint64_t>(count);
    into = into.subspan(static_cast<std::size_t>(count));
  }
  if (!into.empty()) std::memcpy(into.data(), staging_buffer.bytes.data() + offset, into.size());
}

void CommandScope::AddMapping(std::uint64_t address, std::uint64_t bytes) {
  mappings_[address] = bytes;
  std::uint64_t begin = address, end = address + bytes;
  if (const auto behind = stretches_.find(end); behind != stretches_.end()) {
    end = behind->second;
    stretches_.erase(behind);
  }
  if (const auto next = stretches_.lower_bound(begin); next != stretches_.begin()) {
    if (const auto before = std::prev(next); before->second == begin) begin = before->first;
  }
  stretches_[begin] = end;
}

void CommandScope::RemoveMapping(std::uint64_t address) {
  const auto mapping = mappings_.find(address);
  const std::uint64_t end = address + mapping->second;
  mappings_.erase(mapping);
  const auto stretch = std::prev(stretches_.upper_bound(address));
  if (stretch->second > end) stretches_[end] = stretch->second;
  if (stretch->first < address) {
    stretch->second = address;
  } else {
    stretches_.erase(stretch);
  }
}

bool CommandScope::IsInMappings(std::uint64_t address, std::uint64_t bytes) const {
  const auto behind = stretches_.upper_bound(address);
  if (behind == stretches_.begin()) return false;
  const std::uint64_t end = std::prev(behind)->second;
  return address < end && bytes <= end - address;
}

void CommandScope::RemoveMappingAfter(std::uint64_t address, std::uint64_t position) {
  Set({.module = std::nullopt, .mapping = address, .position = position});
}

bool CommandScope::MakeLess(const Barrier& barrier) {
  if (barrier.mapping) {
    if (!mappings_.contains(*barrier.mapping)) return false;
    RemoveMapping(*barrier.mapping);
    return true;
  }
  return std::exchange(mapped_bytes_, barrier.mapped_bytes) != barrier.mapped_bytes;
}

void CommandScope::ShrinkAfter(std::uint64_t mapped_bytes, std::uint64_t position) {
  Set({.module = std::nullopt,
       .mapping = std::nullopt,
       .mapped_bytes = mapped_bytes,
       .position = position});
}

std::optional<CommandScope::Passed> CommandScope::TryPassBarrier(std::uint32_t taken) {
  if (!barrier_ || !barrier_->is_reached) return std::nullopt;
  Passed passed;
  if (barrier_->module) {
    modules_[*barrier_->module].is_leaving = true;
    ++losses_;
    if (TryRelease(*barrier_->module)) passed.released = barrier_->module;
  } else {
    if (MakeLess(*barrier_)) {
      // From here on no command that names the removed memory is accepted, and the barrier waits
      // for those already accepted.
      ++epoch_;
      ++losses_;
      of_earlier_epochs_ = taken;
    }
    if (of_earlier_epochs_ > 0) return std::nullopt;
  }
  barrier_.reset();
  return passed;
}

}  // namespace gpushared::server
