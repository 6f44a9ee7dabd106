// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_OPEN_REQUESTS_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_OPEN_REQUESTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "gpushared/check.h"

#include "ipc/wire/layout.h"
#include "scheduler/types.h"
#include "server/worker/output/request_report.h"

namespace gpushared::server {

// A request in progress.
struct OpenRequest {
  // Stream of a request that the client did not mark. Such a request spans all streams, from the
  // first command after an idle period until all commands have finished.
  static constexpr std::uint32_t kAllStreams = 0xffffffff;

  scheduler::RequestMark mark;
  std::uint32_t stream = kAllStreams;
  bool is_reported = false;  // The policy was notified of it.
  std::uint8_t row = 0;      // Lowest row that no other open request of the client uses.
  scheduler::TimePoint begun{};
  // The client's totals at the beginning of the request.
  scheduler::Duration waited_before{}, on_device_before{}, charged_before{}, throttled_before{},
      held_before{}, host_steal_before{};
  std::uint64_t evicted_before = 0, swapped_in_before = 0, wakes_before = 0,
                wakes_in_time_before = 0;
  Wait longest_wait;
  // The command that caused the longest wait, among those that had left the device when that wait
  // ended.
  Blocker blocker;
  Largest<Wait, Waterfall::kWaitsMax> waits;
};

// A client's open requests, ordered by their beginnings. The requests of one stream end in the
// order in which they began.
//
// Thread-compatible value; allocates nothing.
class OpenRequests {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == list_.size(); }
  std::span<OpenRequest> all() { return std::span(list_).first(count_); }

  // Assigns the row. Must not be called if full.
  OpenRequest& Add(const OpenRequest& request) {
    Check(!full(), "a client's open requests are bounded");
    std::uint8_t row = 0;
    while (std::ranges::find(all(), row, &OpenRequest::row) != all().end()) ++row;
    list_[count_] = request;
    list_[count_].row = row;
    return list_[count_++];
  }
  // Returns the oldest request of that stream; null if there is none.
  OpenRequest* Find(std::uint32_t stream) {
    const auto found = std::ranges::find(all(), stream, &OpenRequest::stream);
    return found == all().end() ? nullptr : &*found;
  }
  // Returns the request with that number or, for 0, the one that arrived first; null if there is
  // none.
  const OpenRequest* FindNumber(std::uint64_t number) const {
    const std::span<const OpenRequest> open = std::span(list_).first(count_);
    const auto found =
        number == 0 ? std::ranges::min_element(
                          open, {}, [](const OpenRequest& each) { return each.mark.arrived; })
                    : std::ranges::find_if(open, [number](const OpenRequest& each) {
                        return each.mark.number == number;
                      });
    return found == open.end() ? nullptr : &*found;
  }
  // Returns the number of the request to which a command that ends on that stream belongs; 0 if
  // none.
  std::uint64_t NumberFor(std::uint32_t stream) const {
    for (const OpenRequest& each : std::span(list_).first(count_)) {
      if (each.stream == stream || each.stream == OpenRequest::kAllStreams) {
        return each.mark.number;
      }
    }
    return 0;
  }
  void Remove(OpenRequest* request) {
    std::move(request + 1, list_.data() + count_, request);
    --count_;
  }

 private:
  // First, so that it is adjacent to the single request that most clients have.
  std::size_t count_ = 0;
  std::array<OpenRequest, kOpenRequestsMax> list_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_OPEN_REQUESTS_H_
