// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_REQUEST_HISTORY_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_REQUEST_HISTORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/worker/output/request_report.h"

namespace gpushared::server {

// The latest completed requests of a client. Fixed size; adding one allocates nothing.
//
// Thread-compatible.
class RequestHistory {
 public:
  static constexpr std::size_t kReportsMax = 64;

  RequestHistory() : reports_(kReportsMax) {}

  void Add(const RequestReport& report) { reports_[added_++ % kReportsMax] = report; }

  // Null if the request is unknown: too old, or not completed.
  const RequestReport* Find(std::uint64_t number) const {
    const auto found = std::ranges::find(Known(), number, &RequestReport::number);
    return found == Known().end() ? nullptr : &*found;
  }
  // Null if no request is known.
  const RequestReport* Slowest() const {
    if (added_ == 0) return nullptr;
    return &*std::ranges::max_element(Known(), {}, &RequestReport::latency);
  }
  // Oldest and latest known number, in the order of completion. Zero if no request is known.
  std::uint64_t first_number() const {
    if (added_ <= kReportsMax) return reports_[0].number;
    return reports_[added_ % kReportsMax].number;
  }
  std::uint64_t last_number() const {
    return added_ == 0 ? 0 : reports_[(added_ - 1) % kReportsMax].number;
  }

 private:
  std::span<const RequestReport> Known() const {
    return std::span(reports_).first(std::min(added_, kReportsMax));
  }

  std::vector<RequestReport> reports_;
  std::size_t added_ = 0;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_REQUEST_HISTORY_H_
