// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_STEP_USE_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_STEP_USE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/device/device.h"
#include "server/device/reach.h"
#include "server/worker/state/client_streams.h"

namespace gpushared::server {

// Memory that the command may touch.
device::Reach GetReach(const CommandSlot& command);

// Bytes of the mapping steps of that, of `mapped_bytes`.
std::uint64_t ReachBytes(const CommandSlot& command, std::uint64_t mapped_bytes);

// Whether all of that is on the device, where a part of the client's memory is not.
bool IsThere(const device::Space& space, const CommandSlot& command);

// Which steps of a client's memory its next commands touch, and which of the others were touched
// longest ago: who asks seldom enough, asks for a sample.
//
// Confined to the device thread.
class PageUse {
 public:
  // Where there is no room for all that the next commands touch, at most so many are looked at.
  static constexpr std::size_t kNextWhereTight = 8;

  // Looks at the commands of each stream that are on the device, and at the next one. A client
  // without commands will need what it needed last. Of what the next ones touch no more is needed
  // than fits into `requested_bytes` at one time: those go first that wait longest, and the first
  // of them whatever it touches.
  void Look(const ClientStreams& streams, const device::Space& space, std::uint64_t mapped_bytes,
            std::uint64_t requested_bytes);

  // Bytes of steps, of `mapped_bytes`.
  struct Need {
    std::uint64_t bytes = 0;
    std::uint64_t missing_bytes = 0;  // Of those: moved out.
  };
  // They were touched now.
  Need Count(const device::Space& space, std::uint64_t mapped_bytes);
  bool needs_everything() const { return needs_everything_; }

  // Streams, commands, pieces and steps since the last call: about what looks and counts have cost.
  std::uint64_t TakeLookedAt() { return std::exchange(looked_at_, 0); }

  // Numbers of steps, at most so many, of those that are on the device: untouched ones first.
  std::vector<std::uint32_t> ToSwapOut(const device::Space& space, std::size_t count) const;
  // Of those that are not: what is needed first.
  std::vector<std::uint32_t> ToSwapIn(const device::Space& space, std::size_t count) const;

 private:
  void Add(const device::Reach& reach);
  // Adds of `next_` what fits.
  void AddWhatFits(const device::Space& space, std::uint64_t mapped_bytes,
                   std::uint64_t requested_bytes);
  Need Touch(const device::Space& space, std::uint64_t begin, std::uint64_t end);

  bool needs_everything_ = true;
  std::vector<device::MemoryPiece> needed_;
  std::vector<const CommandSlot*> next_;  // During a look: of each stream, not on the device.
  std::uint64_t looked_at_ = 0;
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> touched_at_;  // By step: the last count that found it needed.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_STEP_USE_H_
