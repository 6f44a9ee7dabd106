// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_EXECUTION_LOG_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_EXECUTION_LOG_H_

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <vector>

#include "scheduler/types.h"
#include "server/telemetry/trace/execution_record.h"
#include "server/worker/output/request_report.h"
#include "server/worker/state/session_tally.h"

namespace gpushared::server {

// The latest commands that left the device, in the order in which they left. Fixed size, so that
// adding a record allocates nothing and queries take bounded time.
//
// Confined to the device thread.
class ExecutionLog {
 public:
  static constexpr std::size_t kRecordsMax = 1024;  // Must be a power of two.

  ExecutionLog() : records_(kRecordsMax) {}

  void Add(const trace::ExecutionRecord& record) {
    Add([&] { return record; });
  }
  // Adds the record that `make()` returns, constructing it in place.
  template <typename Make>
  const trace::ExecutionRecord& Add(
      Make make) requires std::is_invocable_r_v<trace::ExecutionRecord, Make> {
    return *::new (static_cast<void*>(&records_[added_++ % kRecordsMax]))
        trace::ExecutionRecord(make());
  }

  // Returns the record that occupied the device for the longest part of the interval, among records
  // of other sessions; null if there is none.
  const trace::ExecutionRecord* LongestOfOthers(std::uint64_t session, scheduler::TimePoint from,
                                                scheduler::TimePoint to) const;

  // Fills in the parts of a report that come from the log: commands, stops, other clients,
  // execution records, and the longest command except for its name. Returns the record of that
  // command, or null if there is none.
  const trace::ExecutionRecord* Summarise(std::uint64_t session, RequestReport& report);

 private:
  // Calls `visit` for each record that ended after `from`, latest first. Returns false if the log
  // does not go back that far.
  template <typename Visit>
  bool VisitSince(scheduler::TimePoint from, Visit visit) const {
    const std::uint64_t known = added_ < kRecordsMax ? added_ : kRecordsMax;
    const trace::ExecutionRecord* const first = records_.data();
    const trace::ExecutionRecord* record = first + added_ % kRecordsMax;
    for (std::uint64_t left = known; left > 0; --left) {
      if (record == first) record += kRecordsMax;
      --record;
      if (record->ended <= from) return true;
      visit(*record);
    }
    return known < kRecordsMax;
  }

  std::vector<trace::ExecutionRecord> records_;
  SessionTally<kRecordsMax> charged_;  // Used by Summarise.
  std::uint64_t added_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_EXECUTION_LOG_H_
