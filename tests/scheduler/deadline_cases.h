// SPDX-License-Identifier: Apache-2.0
// Shared parts of the deadline policy's tests.

#ifndef GPUSHARED_TESTS_SCHEDULER_DEADLINE_CASES_H_
#define GPUSHARED_TESTS_SCHEDULER_DEADLINE_CASES_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>

#include "scheduler/deadline_policy.h"
#include "tests/support/policy_timeline.h"

namespace gpushared::scheduler {

inline constexpr ClientSpec kHigh{.scheduling_class = SchedulingClass::kHigh};
inline constexpr ClientSpec kLow{.scheduling_class = SchedulingClass::kLow};

inline ClientSpec Promised(Duration target, SchedulingClass of_class = SchedulingClass::kHigh) {
  return {.scheduling_class = of_class, .latency_target = target};
}

inline std::unique_ptr<Policy> Deadline(PolicyOptions options = {}) {
  return std::make_unique<DeadlinePolicy>(options);
}

// Posts requests at equal intervals until their needs and their headroom are known. Commands that
// other clients have posted run in the meantime.
inline void Teach(testing::PolicyTimeline& timeline, ClientId client,
                  const testing::PolicyTimeline::Command& command,
                  Duration gap = std::chrono::milliseconds(20), int count = 20) {
  for (int i = 0; i < count; ++i) {
    timeline.PostRequest(client, command);
    timeline.RunFor(gap);
  }
}

// Requests of 1 ms with a target of 1.05 ms, at irregular intervals of 2 to 12 ms. A preemption
// that takes more than 50 us makes them late.
class TightRequests {
 public:
  TightRequests(testing::PolicyTimeline& timeline, ClientId client)
      : timeline_(timeline), client_(client) {}

  static constexpr ClientSpec kSpec{.scheduling_class = SchedulingClass::kHigh,
                                    .latency_target = std::chrono::microseconds(1050)};

  void Post(int count) {
    using namespace std::chrono_literals;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t request = timeline_.PostRequest(client_, {.time = 1ms});
      timeline_.RunFor(Duration(2ms) + Duration(10us) * (random_() % 1000));
      if (timeline_.Latency(request).value_or(1h) > kSpec.latency_target) ++late_;
    }
  }

  int late() const { return late_; }

 private:
  testing::PolicyTimeline& timeline_;
  const ClientId client_;
  std::minstd_rand random_;
  int late_ = 0;
};

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_TESTS_SCHEDULER_DEADLINE_CASES_H_
