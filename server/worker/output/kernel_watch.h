// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_OUTPUT_KERNEL_WATCH_H_
#define GPUSHARED_SERVER_WORKER_OUTPUT_KERNEL_WATCH_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/types.h"
#include "server/device/device.h"

namespace gpushared::server {

// Time limit of one kernel, by class; none if unlimited.
using KernelLimits = std::array<std::optional<scheduler::Duration>, scheduler::kSchedulingClasses>;
// By class: whether a kernel that exceeds its limit and cannot be ended individually is ended
// together with its device, and hence with every session on it. Otherwise the kernel continues, and
// its excess is logged.
using LimitEndsDevice = std::array<bool, scheduler::kSchedulingClasses>;

// Periodic report to the operator: the number of kernels ended since the last report, and the
// message sent to the client of the latest one.
struct KernelsEnded {
  std::uint64_t count = 0;
  std::string latest;
};

// Message to the operator about a kernel of the session; see KernelLimiter::noted.
struct KernelNoted {
  std::uint64_t session = 0;
  std::string text;
};

// Measures how long work has occupied the device, and compares the time of kernels with their
// limits.
//
// A device serves work of the highest priority first and, within a priority, in the order of
// submission. Only the time of the work being served is counted, so a kernel is never blamed for
// time that it spent waiting for another client's work, and of two endless kernels the one
// submitted first is ended first. If kernels run concurrently, the time of the later one is counted
// only after the earlier one has ended, so the later one may run longer than its limit but never
// has less time.
//
// Confined to the device thread.
class KernelWatch {
 public:
  // `ran`: time of earlier submissions. Without a `limit` the work may run indefinitely.
  void OnSubmitted(device::WorkId id, std::uint8_t priority, scheduler::Duration ran,
                   std::optional<scheduler::Duration> limit, scheduler::TimePoint now);
  // Reports the total time up to now for which the host kept the device from running.
  void SetHostSteal(scheduler::Duration total, scheduler::TimePoint now);
  // Returns how long the work has run, including earlier submissions.
  scheduler::Duration OnCompleted(device::WorkId id, scheduler::TimePoint now);

  struct Overdue {
    device::WorkId id = 0;
    scheduler::Duration ran{};
    scheduler::Duration limit{};
  };
  // Returns work that has exceeded its limit; each is returned only once.
  std::optional<Overdue> TakeOverdue(scheduler::TimePoint now);
  // Time at which TakeOverdue returns work if nothing else happens.
  std::optional<scheduler::TimePoint> wake_at() const;

 private:
  struct Entry {
    device::WorkId id = 0;
    std::uint8_t priority = 0;
    bool ended_on_request = false;
    scheduler::Duration ran{};  // For the work being served, excludes the time since `since_`.
    std::optional<scheduler::Duration> limit;
  };
  // Charges the time up to now to the work being served.
  void Charge(scheduler::TimePoint now);

  std::vector<Entry> entries_;  // In the order in which they are served.
  scheduler::TimePoint since_{};
  scheduler::Duration host_steal_{};
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_KERNEL_WATCH_H_
