// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_STAY_LOG_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_STAY_LOG_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

#include "scheduler/types.h"
#include "server/worker/output/request_report.h"
#include "server/worker/state/session_tally.h"
#include "server/worker/state/stay.h"

namespace gpushared::server {

// The last commands that left the device, in the order in which they did. A fixed number:
// adding one allocates nothing, and what is asked of it is bounded.
//
// Confined to the device thread.
class StayLog {
 public:
  static constexpr std::size_t kStaysMax = 1024;  // Power of two.

  StayLog() : stays_(kStaysMax) {}

  void Add(const Stay& stay) {
    Add([&] { return stay; });
  }
  // The same. `make()` returns the stay, and makes it where it is kept.
  template <typename Make>
  const Stay& Add(Make make) requires std::is_invocable_r_v<Stay, Make> {
    return *::new (static_cast<void*>(&stays_[added_++ % kStaysMax])) Stay(make());
  }

  // Of other sessions than this, the one that was on the device for most of the time between
  // the two; null when there was none.
  const Stay* LongestOfOthers(std::uint64_t session, scheduler::TimePoint from,
                              scheduler::TimePoint to) const;

  // Fills in what the log knows of a request of that session: commands, stops, others, stays, and
  // of the longest command all but its name; that one is returned, null when there was none.
  const Stay* Summarise(std::uint64_t session, RequestReport& report);

 private:
  // Calls `visit` with those that ended after `from`, the last first. False when the log does not
  // go back that far.
  template <typename Visit>
  bool VisitSince(scheduler::TimePoint from, Visit visit) const {
    const std::uint64_t known = added_ < kStaysMax ? added_ : kStaysMax;
    const Stay* const first = stays_.data();
    const Stay* stay = first + added_ % kStaysMax;
    for (std::uint64_t left = known; left > 0; --left) {
      if (stay == first) stay += kStaysMax;
      --stay;
      if (stay->ended <= from) return true;
      visit(*stay);
    }
    return known < kStaysMax;
  }

  std::vector<Stay> stays_;
  SessionTally<kStaysMax> charged_;  // Within Summarise.
  std::uint64_t added_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_STAY_LOG_H_
