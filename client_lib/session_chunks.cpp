// SPDX-License-Identifier: Apache-2.0
// Chunks of a session: device memory that the program places itself.
#include <algorithm>
#include <string>

#include "client_lib/session.h"

namespace gpushared::client {

namespace {

Status BadSize(std::uint64_t bytes) {
  return {StatusCode::kInvalidArgument,
          "chunk rejected: " + std::to_string(bytes) + " bytes asked, allowed: " +
              std::to_string(ipc::kChunkBytesStep) + " to " + std::to_string(ipc::kChunkBytesMax) +
              " bytes, in steps of " + std::to_string(ipc::kChunkBytesStep)};
}

Status NoPlace(DeviceAddress address) {
  return {StatusCode::kInvalidArgument, "mapping rejected: address " + std::to_string(address) +
                                            " is no multiple of " +
                                            std::to_string(ipc::kChunkBytesStep)};
}

bool IsPlace(DeviceAddress address) {
  return address % ipc::kChunkBytesStep == 0 && address >> 63 == 0;
}

}  // namespace

Result<std::uint32_t> Session::MakeChunk(std::uint64_t bytes) {
  if (Status status = Usable(); !status.ok()) return status;
  if (bytes == 0 || bytes % ipc::kChunkBytesStep != 0 || bytes > ipc::kChunkBytesMax) {
    return BadSize(bytes);
  }
  const MutexLock lock(chunks_mutex_);
  const auto free = std::ranges::find(chunk_bytes_, std::uint64_t{0});
  if (free == chunk_bytes_.end()) {
    return Status(StatusCode::kLimitExceeded, "chunk rejected: " + std::to_string(ipc::kChunksMax) +
                                                  " chunks exist, no more are allowed");
  }
  const auto number = static_cast<std::uint32_t>(free - chunk_bytes_.begin());
  const Status made = Ask({.action = ipc::ChunkAction::kMake, .chunk = number, .bytes = bytes});
  if (!made.ok()) return made;
  *free = bytes;
  return number;
}

void Session::FreeChunk(std::uint32_t number) {
  if (!Usable().ok()) return;
  const MutexLock lock(chunks_mutex_);
  if (Ask({.action = ipc::ChunkAction::kFree, .chunk = number}).ok()) chunk_bytes_[number] = 0;
}

Status Session::MapChunk(std::uint32_t number, DeviceAddress address) {
  if (Status status = Usable(); !status.ok()) return status;
  if (!IsPlace(address)) return NoPlace(address);
  return Ask({.action = ipc::ChunkAction::kMap, .chunk = number, .address = address});
}

Status Session::UnmapChunk(DeviceAddress address) {
  if (Status status = Usable(); !status.ok()) return status;
  if (!IsPlace(address)) return NoPlace(address);
  // Waits, because the server unmaps even while launches are queued. Errors of streams are reported
  // on those streams.
  static_cast<void>(data_->plane->Await(progress().Unfinished()));
  return Ask({.action = ipc::ChunkAction::kUnmap, .address = address});
}

Status Session::Ask(const ipc::ChangeChunk& change) {
  return data_->connection->Ask<ipc::Done>(change).status();
}

std::uint64_t Session::chunk_bytes() {
  const MutexLock lock(chunks_mutex_);
  std::uint64_t sum = 0;
  for (const std::uint64_t bytes : chunk_bytes_) sum += bytes;
  return sum;
}

}  // namespace gpushared::client
