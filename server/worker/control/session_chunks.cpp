// SPDX-License-Identifier: Apache-2.0
// Requests about chunks.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "server/worker/control/session.h"
#include "server/worker/control/session_calls.h"

namespace gpushared::server {

void Session::Handle(const ipc::ChangeChunk& request) {
  switch (request.action) {
    case ipc::ChunkAction::kMake:
      return MakeChunk(request.chunk, request.bytes);
    case ipc::ChunkAction::kFree:
      return FreeChunk(request.chunk);
    case ipc::ChunkAction::kMap:
      return MapChunk(request.chunk, request.address);
    case ipc::ChunkAction::kUnmap:
      return UnmapChunk(request.address);
  }
}

void Session::MakeChunk(std::uint32_t number, std::uint64_t bytes, int memory_requests_open) {
  if (const Status status = memory_->chunks.CheckMake(number); !status.ok()) return Reject(status);
  // True if the device has no free memory although the chunk is within the guarantee. Read after
  // the slow call has ended.
  const auto is_guaranteed = std::make_shared<bool>(false);
  MakeSlowCallFor(
      bytes,
      [space = memory_->space.get(), cover = memory_->cover.get(), bytes, is_guaranteed] {
        auto chunk = space->MakeChunk(bytes);
        if (cover != nullptr && chunk.status().code() == StatusCode::kOutOfMemory) {
          device::SpaceUse use = space->use();
          use.pinned_bytes += bytes;
          *is_guaranteed = cover->IsWithinGuarantee(use);
        }
        return chunk;
      },
      [number, bytes, memory_requests_open, is_guaranteed](
          Session& self, Result<std::unique_ptr<device::Chunk>> chunk) {
        const bool is_made = chunk.ok();
        // The chunk is added even if the session has ended, because it is then freed with the rest
        // of the memory.
        if (is_made) self.memory_->chunks.Add(number, std::move(*chunk), bytes);
        if (self.has_ended_) return self.CheckOver();
        if (is_made) {
          self.ReportMemory();
          return self.Reply(ipc::Done{});
        }
        if (!*is_guaranteed || memory_requests_open == kMemoryRequestsMax)
          return self.Reject(chunk.status());
        self.AwaitMemory(bytes, [number, bytes, memory_requests_open, why = chunk.status()](
                                    Session& again, bool is_free) {
          if (is_free) return again.MakeChunk(number, bytes, memory_requests_open + 1);
          again.Reject(why);
        });
      });
}

void Session::FreeChunk(std::uint32_t number) {
  if (const Status status = memory_->chunks.CheckFree(number); !status.ok()) return Reject(status);
  MakeSlowCall(
      [chunk = memory_->chunks.Take(number)]() mutable -> Status {
        chunk.reset();
        return {};
      },
      [](Session& self, const Status&) {
        if (self.has_ended_) return self.CheckOver();
        self.ReportMemory();
        self.Reply(ipc::Done{});
      });
}

void Session::MapChunk(std::uint32_t number, std::uint64_t address) {
  ClientChunks& chunks = memory_->chunks;
  const Status status = chunks.CheckMap(number, address, memory_->space->mapping_area());
  if (!status.ok()) return Reject(status);
  if (environment_.mappings >= environment_.limits.mappings_max) {
    return Reject({StatusCode::kLimitExceeded,
                   fmt::format("mapping rejected: all clients have {} places mapped, allowed: {}",
                               environment_.mappings, environment_.limits.mappings_max)});
  }
  const std::uint64_t bytes = chunks.bytes_of(number);
  MakeSlowCallFor(
      bytes,
      [space = memory_->space.get(), chunk = &chunks.chunk(number), address] {
        return space->MapChunk(*chunk, address);
      },
      [number, address, bytes](Session& self, const Status& mapped) {
        if (mapped.ok()) {
          self.memory_->chunks.AddMapping(address, number);
          ++self.environment_.mappings;
        }
        if (self.has_ended_) return self.CheckOver();
        if (!mapped.ok()) return self.Reject(mapped);
        self.Apply(AddMapping{self.id(), address, bytes}, [&self] { self.Reply(ipc::Done{}); });
      });
}

void Session::UnmapChunk(std::uint64_t address) {
  if (const Status status = memory_->chunks.CheckUnmap(address); !status.ok()) {
    return Reject(status);
  }
  // Launches that begin from here on cannot reach the mapping; Apply waits for those that have
  // begun.
  memory_->space->HideMapping(address);
  Apply(RemoveMapping{id(), address}, [this, address] {
    const std::uint64_t bytes = memory_->chunks.mapping(address).bytes;
    MakeSlowCallFor(
        bytes,
        [space = memory_->space.get(), address, bytes] { return space->Unmap(address, bytes); },
        [address](Session& self, const Status& unmapped) {
          // On failure the chunk stays mapped, but no launch can reach it.
          if (unmapped.ok()) {
            self.memory_->chunks.RemoveMapping(address);
            --self.environment_.mappings;
          }
          if (self.has_ended_) return self.CheckOver();
          if (!unmapped.ok()) return self.Reject(unmapped);
          self.Reply(ipc::Done{});
        });
  });
}

}  // namespace gpushared::server
