// SPDX-License-Identifier: Apache-2.0
#include "server/worker/device_thread/stay_log.h"

#include <algorithm>

namespace gpushared::server {

namespace {

using scheduler::Duration;
using Others = std::array<RequestReport::Other, RequestReport::kOthersMax>;

// The smallest gives way to one that is not in the list: what it had goes to the rest.
void Charge(Others& others, Duration& rest, std::uint64_t session, Duration charged) {
  auto found = std::ranges::find(others, session, &RequestReport::Other::session);
  if (found == others.end()) {
    found = std::ranges::min_element(others, {}, &RequestReport::Other::charged);
    if (found->charged >= charged && found->session != 0) {
      rest += charged;
      return;
    }
    rest += found->charged;
    *found = {.session = session};
  }
  found->charged += charged;
}

}  // namespace

const Stay* StayLog::LongestOfOthers(std::uint64_t session, scheduler::TimePoint from,
                                     scheduler::TimePoint to) const {
  const Stay* longest = nullptr;
  Duration most{};
  VisitSince(from, [&](const Stay& stay) {
    if (stay.session == session) return;
    const Duration together = std::min(stay.ended, to) - std::max(stay.submitted, from);
    if (together <= most) return;
    most = together;
    longest = &stay;
  });
  return longest;
}

const Stay* StayLog::Summarise(std::uint64_t session, RequestReport& report) const {
  const Stay* longest = nullptr;
  const bool is_whole = VisitSince(report.begun, [&](const Stay& stay) {
    // The log is ordered by ends; what ended before the request is not visited.
    const Duration inside =
        std::min(stay.ended, report.ended) - std::max(stay.started, report.begun);
    if (inside > Duration::zero()) report.waterfall.stays.Add(stay, inside);
    if (stay.session != session) {
      return Charge(report.others, report.charged_to_rest, stay.session, stay.charged);
    }
    ++report.commands;
    if (stay.was_stopped) ++report.stops;
    const Duration took = stay.ended - stay.submitted;
    if (longest != nullptr && took <= report.longest_command) return;
    report.longest_command = took;
    longest = &stay;
  });
  report.is_cut = !is_whole;
  std::ranges::sort(report.others, std::ranges::greater{}, &RequestReport::Other::charged);
  return longest;
}

}  // namespace gpushared::server
