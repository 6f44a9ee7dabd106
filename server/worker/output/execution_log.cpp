// SPDX-License-Identifier: Apache-2.0
#include "server/worker/output/execution_log.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gpushared::server {

namespace {

using scheduler::Duration;
using trace::ExecutionRecord;
using Others = std::array<RequestReport::Other, RequestReport::kOthersMax>;

// Inserts into a list in descending order; the entry that drops out is added to the rest.
void Insert(Others& others, Duration& rest, const RequestReport::Other& other) {
  auto place = others.end() - 1;
  if (place->session != 0 && place->charged >= other.charged) {
    rest += other.charged;
    return;
  }
  rest += place->charged;
  *place = other;
  for (; place != others.begin(); --place) {
    RequestReport::Other& before = *(place - 1);
    if (before.session != 0 && before.charged >= place->charged) break;
    std::swap(before, *place);
  }
}

}  // namespace

const ExecutionRecord* ExecutionLog::LongestOfOthers(std::uint64_t session,
                                                     scheduler::TimePoint from,
                                                     scheduler::TimePoint to) const {
  const ExecutionRecord* longest = nullptr;
  Duration most{};
  VisitSince(from, [&](const ExecutionRecord& record) {
    if (record.session == session) return;
    const Duration together = std::min(record.ended, to) - std::max(record.submitted, from);
    if (together <= most) return;
    most = together;
    longest = &record;
  });
  return longest;
}

const ExecutionRecord* ExecutionLog::Summarise(std::uint64_t session, RequestReport& report) {
  const ExecutionRecord* longest = nullptr;
  auto& largest = report.waterfall.executions;
  // Local copies keep the loop fast: for most records, nothing else of the report is accessed.
  const scheduler::TimePoint begun = report.begun, ended = report.ended;
  Duration least = largest.least();
  std::uint64_t rest_count = 0;
  Duration rest{};
  const bool is_whole = VisitSince(begun, [&](const ExecutionRecord& record) {
    // The log is ordered by end times, so records that ended before the request are not visited.
    const Duration inside = std::min(record.ended, ended) - std::max(record.started, begun);
    if (inside > least) {
      largest.Add(record, inside);
      least = largest.least();
    } else if (inside > Duration::zero()) {
      ++rest_count;
      rest += inside;
    }
    if (record.session != session) return charged_.Add(record.session, record.charged);
    ++report.commands;
    if (record.was_stopped) ++report.stops;
    // Excludes the time that a command spent waiting on the device for another command of its
    // client.
    const Duration took = record.ended - record.started;
    if (longest != nullptr && took <= report.longest_command) return;
    report.longest_command = took;
    longest = &record;
  });
  largest.rest_count += rest_count;
  largest.rest += rest;
  report.is_cut = !is_whole;
  charged_.TakeAll([&](std::uint64_t other, Duration charged) {
    Insert(report.others, report.charged_to_rest, {.session = other, .charged = charged});
  });
  return longest;
}

}  // namespace gpushared::server
