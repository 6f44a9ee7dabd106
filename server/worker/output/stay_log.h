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

// Execution log: the latest commands that left the device, in that order. Fixed size, so that
// adding a record allocates nothing and queries take bounded time.
//
// Confined to the device thread.
class StayLog {
 public:
  static constexpr std::size_t kStaysMax = 1024;  // Power of two.

  StayLog() : stays_(kStaysMax) {}

  void Add(const Stay& stay) {
    Add([&] { return stay; });
  }
  // Adds the record that `make()` returns, constructing it in place.
  template <typename Make>
  const Stay& Add(Make make) requires std::is_invocable_r_v<Stay, Make> {
    return *::new (static_cast<void*>(&stays_[added_++ % kStaysMax])) Stay(make());
  }

  // Returns the record of another session that occupied the device for most of the interval; null
  // if there is none.
  const Stay* LongestOfOthers(std::uint64_t session, scheduler::TimePoint from,
                              scheduler::TimePoint to) const;

  // Fills in the parts of a report that come from the log: commands, stops, other clients,
  // execution records, and the longest command except for its name. Returns the record of that
  // command, or null if there is none.
  const Stay* Summarise(std::uint64_t session, RequestReport& report);

 private:
  // Calls `visit` for each record that ended after `from`, latest first. Returns false if the log
  // does not go back that far.
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
  SessionTally<kStaysMax> charged_;  // Used by Summarise.
  std::uint64_t added_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_STAY_LOG_H_
