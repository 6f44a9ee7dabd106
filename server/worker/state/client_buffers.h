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

// The buffers that a client has told of, and what a launch can reach by its parameters. A client
// that lies about them makes its own launches fault, or wait for all of its memory.
//
// Confined to the device thread. Lets allocate: a client tells of buffers when it makes them.
class ClientBuffers {
 public:
  // `space` outlives it.
  explicit ClientBuffers(const device::Space* space) : space_(space) {}

  // Why the buffer is rejected, or ok.
  Rejection Add(std::uint64_t address, std::uint64_t bytes, std::uint64_t mapped_bytes);
  Rejection Remove(std::uint64_t address);
  // The client tells of none, or has none.
  bool empty() const { return bytes_at_.empty(); }
  // While it is the same, launches reach the same by the same parameters.
  std::uint64_t changes() const { return changes_; }

  // What a launch of the kernel touches that has these parameters: the buffers that its pointers
  // point into, in whole mapping steps. Everything where that is not known.
  device::Reach GetReach(const device::KernelInfo& kernel,
                         std::span<const std::byte> parameters) const;

 private:
  // Adds the buffers that the address points into, or behind the last byte of. False: it points to
  // what may be the client's, and to no buffer.
  bool AddPointedTo(std::uint64_t address, device::Reach& reach) const;

  const device::Space* const space_;
  std::map<std::uint64_t, std::uint64_t> bytes_at_;  // By address; none overlapping.
  std::uint64_t changes_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_CLIENT_BUFFERS_H_
