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

// A request that the client waits for.
struct OpenRequest {
  // Of requests that the client did not mark: from the first command after everything was
  // finished to when everything is again.
  static constexpr std::uint32_t kAllStreams = 0xffffffff;

  scheduler::RequestMark mark;
  std::uint32_t stream = kAllStreams;
  bool is_told = false;  // The policy knows of it.
  std::uint8_t row = 0;  // The first that no other open request of its client has.
  scheduler::TimePoint begun{};
  // Its client's sums when it began.
  scheduler::Duration waited_before{}, on_device_before{}, charged_before{}, throttled_before{},
      held_before{}, host_steal_before{};
  std::uint64_t evicted_before = 0, swapped_in_before = 0;
  Wait longest_wait;
  Blocker blocker;  // Who caused that wait, of those who had left the device at its end.
  Largest<Wait, Waterfall::kWaitsMax> waits;
};

// A client's open requests, the one begun first first. Of a stream they end in the order in
// which they began.
//
// Thread-compatible value; allocates nothing.
class OpenRequests {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == list_.size(); }
  std::span<OpenRequest> all() { return std::span(list_).first(count_); }

  // Not when full. Gives it its row.
  OpenRequest& Add(const OpenRequest& request) {
    Check(!full(), "a client's open requests are bounded");
    std::uint8_t row = 0;
    while (std::ranges::find(all(), row, &OpenRequest::row) != all().end()) ++row;
    list_[count_] = request;
    list_[count_].row = row;
    return list_[count_++];
  }
  // The oldest of that stream; null when there is none.
  OpenRequest* Find(std::uint32_t stream) {
    const auto found = std::ranges::find(all(), stream, &OpenRequest::stream);
    return found == all().end() ? nullptr : &*found;
  }
  // The one that arrived first for 0; null when there is none.
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
  // The number of the one that a command of that stream belongs to, when it ends; 0: to none.
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
  std::size_t count_ = 0;  // First, beside the one request that most clients have.
  std::array<OpenRequest, kOpenRequestsMax> list_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_OPEN_REQUESTS_H_
