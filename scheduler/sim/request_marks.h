// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_REQUEST_MARKS_H_
#define GPUSHARED_SCHEDULER_SIM_REQUEST_MARKS_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "scheduler/device_lane.h"
#include "scheduler/types.h"

namespace gpushared::simulation {

// Reports a client's requests to the lane, at most kOpenRequestsMax at a time; later ones follow
// when these have ended.
class RequestMarks {
 public:
  void Begin(scheduler::DeviceLane& lane, scheduler::ClientId client,
             const scheduler::RequestMark& request, scheduler::TimePoint now) {
    waiting_.push_back(request);
    Report(lane, client, now);
  }
  void End(scheduler::DeviceLane& lane, scheduler::ClientId client, std::uint64_t number,
           scheduler::TimePoint now) {
    lane.EndRequest(client, number, now);
    --reported_;
    Report(lane, client, now);
  }

 private:
  void Report(scheduler::DeviceLane& lane, scheduler::ClientId client, scheduler::TimePoint now) {
    for (; !waiting_.empty() && reported_ < kOpenRequestsMax; ++reported_) {
      lane.BeginRequest(client, waiting_.front(), now);
      waiting_.pop_front();
    }
  }

  std::deque<scheduler::RequestMark> waiting_;
  std::size_t reported_ = 0;
};

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_REQUEST_MARKS_H_
