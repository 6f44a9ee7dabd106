// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_SESSION_TALLY_H_
#define GPUSHARED_SERVER_WORKER_STATE_SESSION_TALLY_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::server {

// Adds up time by session. Sessions count from 1, so those that are here have mostly places of
// their own, and adding costs the same however many there are.
//
// Thread-compatible; allocates on construction only.
template <std::size_t kSessionsMax>
class SessionTally {
 public:
  SessionTally() : sums_(kPlaces) { used_.reserve(kSessionsMax); }

  // At most kSessionsMax different ones until TakeAll.
  void Add(std::uint64_t session, scheduler::Duration time) {
    Sum& sum = sums_[PlaceFor(session)];
    (sum.session == session ? sum : Find(session)).time += time;
  }

  // Calls `tell(session, time)` for each, the one that was added first first, and forgets them.
  template <typename Tell>
  void TakeAll(Tell tell) {
    for (const std::size_t place : used_) {
      tell(sums_[place].session, sums_[place].time);
      sums_[place] = {};
    }
    used_.clear();
  }

 private:
  struct Sum {
    std::uint64_t session = 0;  // 0: none.
    scheduler::Duration time{};
  };
  // Where it is, or the first free place behind the one that it should have. Apart from Add, which
  // a walk over many stays calls.
  [[gnu::noinline]] Sum& Find(std::uint64_t session) {
    std::size_t place = PlaceFor(session);
    while (sums_[place].session != session && sums_[place].session != 0) {
      place = PlaceFor(place + 1);
    }
    Sum& sum = sums_[place];
    if (sum.session == 0) {
      sum.session = session;
      used_.push_back(place);
    }
    return sum;
  }
  static constexpr std::size_t kPlaces = std::bit_ceil(2 * kSessionsMax);
  static std::size_t PlaceFor(std::uint64_t number) {
    return static_cast<std::size_t>(number % kPlaces);
  }

  std::vector<Sum> sums_;  // At most half of them are used.
  std::vector<std::size_t> used_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_SESSION_TALLY_H_
