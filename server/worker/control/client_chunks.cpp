// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/client_chunks.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "ipc/wire/layout.h"

namespace gpushared::server {

namespace {

Status NoChunk(const char* what, std::uint32_t number) {
  return {StatusCode::kNotFound, fmt::format("{} rejected: there is no chunk {}", what, number)};
}

}  // namespace

Status ClientChunks::CheckMake(std::uint32_t number) const {
  if (!chunks_.contains(number)) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          fmt::format("memory rejected: chunk {} already exists", number)};
}

Status ClientChunks::CheckFree(std::uint32_t number) const {
  const auto found = chunks_.find(number);
  if (found == chunks_.end()) return NoChunk("freeing", number);
  if (found->second.mappings == 0) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          fmt::format("freeing rejected: chunk {} is mapped at {} places; unmap it first", number,
                      found->second.mappings)};
}

Status ClientChunks::CheckMap(std::uint32_t number, std::uint64_t address,
                              const device::MemoryPiece& area) const {
  const auto found = chunks_.find(number);
  if (found == chunks_.end()) return NoChunk("mapping", number);
  if (mappings_.size() >= ipc::kMappingsMax) {
    return {StatusCode::kLimitExceeded,
            fmt::format("mapping rejected: {} places are mapped, allowed: {}", mappings_.size(),
                        ipc::kMappingsMax)};
  }
  const std::uint64_t bytes = found->second.bytes;
  // For an address below the area the offset wraps around and is too large as well.
  const std::uint64_t offset = address - area.base;
  if (offset > area.bytes || bytes > area.bytes - offset) {
    return {StatusCode::kInvalidArgument,
            fmt::format("mapping rejected: {} bytes at {:#x} leave the mapping area, {} bytes at "
                        "{:#x}",
                        bytes, address, area.bytes, area.base)};
  }
  const auto next = mappings_.lower_bound(address);
  const bool meets_next = next != mappings_.end() && next->first - address < bytes;
  const bool meets_before =
      next != mappings_.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes;
  if (!meets_next && !meets_before) return Status::Ok();
  return {StatusCode::kInvalidArgument,
          fmt::format("mapping rejected: a part of the {} bytes at {:#x} is already mapped", bytes,
                      address)};
}

Status ClientChunks::CheckUnmap(std::uint64_t address) const {
  if (mappings_.contains(address)) return Status::Ok();
  return {StatusCode::kNotFound,
          fmt::format("unmapping rejected: no mapping begins at {:#x}", address)};
}

void ClientChunks::Add(std::uint32_t number, std::unique_ptr<device::Chunk> chunk,
                       std::uint64_t bytes) {
  chunks_[number] = {.chunk = std::move(chunk), .bytes = bytes};
  bytes_ += bytes;
}

std::unique_ptr<device::Chunk> ClientChunks::Take(std::uint32_t number) {
  const auto found = chunks_.find(number);
  std::unique_ptr<device::Chunk> chunk = std::move(found->second.chunk);
  bytes_ -= found->second.bytes;
  chunks_.erase(found);
  return chunk;
}

void ClientChunks::AddMapping(std::uint64_t address, std::uint32_t number) {
  Entry& entry = chunks_.at(number);
  ++entry.mappings;
  mappings_[address] = {.chunk = number, .bytes = entry.bytes};
}

void ClientChunks::RemoveMapping(std::uint64_t address) {
  const auto found = mappings_.find(address);
  --chunks_.at(found->second.chunk).mappings;
  mappings_.erase(found);
}

bool ClientChunks::ReturnPart(device::Space& space) {
  if (!mappings_.empty()) {
    const auto [address, mapping] = *mappings_.begin();
    space.HideMapping(address);
    // Failures are ignored: the device is lost, or the mapping is removed with the space.
    (void)space.Unmap(address, mapping.bytes);
    RemoveMapping(address);
    return true;
  }
  if (chunks_.empty()) return false;
  Take(chunks_.begin()->first).reset();
  return true;
}

}  // namespace gpushared::server
