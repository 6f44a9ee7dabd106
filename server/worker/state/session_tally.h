// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_STATE_SESSION_TALLY_H_
#define GPUSHARED_SERVER_WORKER_STATE_SESSION_TALLY_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::server {

// Sums of time per session, in an open-addressing hash table. Sessions are numbered consecutively
// from 1, so concurrent sessions rarely collide, and adding takes the same time for any number of
// sessions.
//
// Thread-compatible; allocates on construction only.
template <std::size_t kSessionsMax>
class SessionTally {
 public:
  SessionTally() : sums_(kPlaces) { used_.reserve(kSessionsMax); }

  // Must not be called for more than kSessionsMax different sessions between two calls of TakeAll.
  void Add(std::uint64_t session, scheduler::Duration time) {
    Sum& sum = sums_[PlaceFor(session)];
    (sum.session == session ? sum : Find(session)).time += time;
  }

  // Calls `report(session, time)` for each session, in the order in which they were first added,
  // and clears the sums.
  template <typename Report>
  void TakeAll(Report report) {
    for (const std::size_t place : used_) {
      report(sums_[place].session, sums_[place].time);
      sums_[place] = {};
    }
    used_.clear();
  }

 private:
  struct Sum {
    std::uint64_t session = 0;  // 0: none.
    scheduler::Duration time{};
  };
  // Returns the session's sum or, if there is none, the first free slot from PlaceFor(session) on.
  // Separate from Add to keep Add small, because it is called for each of many execution records.
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
