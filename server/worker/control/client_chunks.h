// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_CLIENT_CHUNKS_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_CLIENT_CHUNKS_H_

#include <cstdint>
#include <map>
#include <memory>

#include "gpushared/status.h"

#include "server/device/device.h"

namespace gpushared::server {

// A session's memory chunks, by the numbers that the client assigned, and their mappings. Validates
// the client's requests; the caller makes the device calls.
//
// Thread-compatible.
class ClientChunks {
 public:
  struct Mapping {
    std::uint32_t chunk = 0;
    std::uint64_t bytes = 0;
  };

  // The checks cover numbers, addresses, existing mappings and their limit. A lack of device memory
  // is reported only by the device call.
  Status CheckMake(std::uint32_t number) const;
  Status CheckFree(std::uint32_t number) const;
  Status CheckMap(std::uint32_t number, std::uint64_t address,
                  const device::MemoryPiece& area) const;
  Status CheckUnmap(std::uint64_t address) const;

  void Add(std::uint32_t number, std::unique_ptr<device::Chunk> chunk, std::uint64_t bytes);
  // The functions up to RemoveMapping require that the corresponding check has passed.
  device::Chunk& chunk(std::uint32_t number) const { return *chunks_.at(number).chunk; }
  std::uint64_t bytes_of(std::uint32_t number) const { return chunks_.at(number).bytes; }
  // Removes the chunk and returns it, so that the caller can destroy it on a thread that may block.
  std::unique_ptr<device::Chunk> Take(std::uint32_t number);
  void AddMapping(std::uint64_t address, std::uint32_t number);
  const Mapping& mapping(std::uint64_t address) const { return mappings_.at(address); }
  void RemoveMapping(std::uint64_t address);

  std::uint64_t bytes() const { return bytes_; }
  std::uint32_t mappings() const { return static_cast<std::uint32_t>(mappings_.size()); }
  // Unmaps one mapping or, if none remains, frees one chunk. Must not be called while work may use
  // them. Returns false if nothing remains.
  bool ReturnPart(device::Space& space);

 private:
  struct Entry {
    std::unique_ptr<device::Chunk> chunk;
    std::uint64_t bytes = 0;
    std::uint32_t mappings = 0;
  };
  std::map<std::uint32_t, Entry> chunks_;      // By number.
  std::map<std::uint64_t, Mapping> mappings_;  // By address; disjoint.
  std::uint64_t bytes_ = 0;                    // Sum over all chunks.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_CLIENT_CHUNKS_H_
