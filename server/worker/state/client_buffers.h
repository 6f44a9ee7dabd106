// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_CLIENT_BUFFERS_H_
#define GPUSHARED_SERVER_WORKER_STATE_CLIENT_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "server/device/device.h"
#include "server/device/reach.h"
#include "server/worker/state/rejection.h"

namespace gpushared::server {

// Buffers that a client has declared, and the memory that a launch can reach through its
// parameters. A client that declares them incorrectly makes only its own launches fault or wait for
// all of its memory.
//
// Confined to the device thread. Changes may allocate, because clients make them only when they
// create or free buffers.
class ClientBuffers {
 public:
  // `space` must outlive this.
  explicit ClientBuffers(const device::Space* space) : space_(space) {}

  // Null unless the buffer is rejected.
  MaybeRejected Add(std::uint64_t address, std::uint64_t bytes, std::uint64_t mapped_bytes);
  MaybeRejected Remove(std::uint64_t address);
  // True if no buffer is declared.
  bool empty() const { return bytes_at_.empty(); }
  // Sizes by address.
  const std::map<std::uint64_t, std::uint64_t>& all() const { return bytes_at_; }
  // Number of changes so far. As long as it stays the same, equal parameters give a launch the same
  // access set.
  std::uint64_t changes() const { return changes_; }

  // Returns the memory that a launch of `kernel` with these parameters may touch: the declared
  // buffers that its pointers point into, in whole pages. Everything if that is not known.
  device::Reach GetReach(const device::KernelInfo& kernel,
                         std::span<const std::byte> parameters) const;

 private:
  // Adds the buffers that contain the address or end right before it. Returns false if the address
  // may belong to the client and points to no buffer.
  bool AddPointedTo(std::uint64_t address, device::Reach& reach) const;

  const device::Space* const space_;
  std::map<std::uint64_t, std::uint64_t> bytes_at_;  // By address; disjoint.
  std::uint64_t changes_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_BUFFERS_H_
