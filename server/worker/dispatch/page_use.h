// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_DISPATCH_PAGE_USE_H_
#define GPUSHARED_SERVER_WORKER_DISPATCH_PAGE_USE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/device/device.h"
#include "server/device/reach.h"
#include "server/worker/state/client_streams.h"

namespace gpushared::server {

// Access set of the command.
device::Reach GetReach(const CommandSlot& command);

// Size of the access set in bytes, rounded up to whole pages; `mapped_bytes` if it is unknown.
std::uint64_t ReachBytes(const CommandSlot& command, std::uint64_t mapped_bytes);

// Whether the whole access set is resident, given that a part of the client's memory is not.
bool IsResident(const device::Space& space, const CommandSlot& command);

// Tracks which pages of a client's memory its next commands touch, and which of its other pages
// were touched longest ago. Both are based on samples, because the commands are examined only from
// time to time.
//
// Confined to the device thread.
class PageUse {
 public:
  // Maximum number of next commands examined if not all of their memory fits.
  static constexpr std::size_t kNextWhereTight = 8;

  // Examines each stream's commands on the device, and its next one. A client without commands is
  // assumed to need what it needed last. Next commands are considered in the order of arrival. Each
  // is included if the pages then fit into `requested_bytes` together, the first one regardless of
  // its size.
  void Examine(const ClientStreams& streams, const device::Space& space, std::uint64_t mapped_bytes,
               std::uint64_t requested_bytes);

  // Memory that the next commands need, in whole pages; at most `mapped_bytes`.
  struct Need {
    std::uint64_t bytes = 0;
    std::uint64_t missing_bytes = 0;  // Part of `bytes` that is swapped out.
  };
  // Returns the current need, and marks its pages as touched now.
  Need Count(const device::Space& space, std::uint64_t mapped_bytes);
  bool needs_everything() const { return needs_everything_; }

  // Returns the number of streams, commands, pieces and pages examined since the last call, which
  // approximates the cost.
  std::uint64_t TakeExamined() { return std::exchange(examined_, 0); }

  // Returns up to `count` resident pages to swap out, those touched longest ago first.
  std::vector<std::uint32_t> ToSwapOut(const device::Space& space, std::size_t count) const;
  // Returns up to `count` swapped-out pages to swap in, needed ones first.
  std::vector<std::uint32_t> ToSwapIn(const device::Space& space, std::size_t count) const;

 private:
  void Add(const device::Reach& reach);
  // Adds those commands of `next_` that fit.
  void AddFitting(const device::Space& space, std::uint64_t mapped_bytes,
                  std::uint64_t requested_bytes);
  Need Touch(const device::Space& space, std::uint64_t begin, std::uint64_t end);

  bool needs_everything_ = true;
  std::vector<device::MemoryPiece> needed_;
  // Used by Examine: for each stream, its first command that has not been submitted to the device.
  std::vector<const CommandSlot*> next_;
  std::uint64_t examined_ = 0;
  std::uint64_t count_ = 0;
  std::vector<std::uint64_t> touched_at_;  // By page: the last count that found the page needed.
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_DISPATCH_PAGE_USE_H_
