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

// By class; none: as long as it takes.
using KernelLimits = std::array<std::optional<scheduler::Duration>, scheduler::kSchedulingClasses>;
// By class: whether a kernel beyond its limit that cannot be ended alone is ended with its device,
// and so with every session on it. Else it goes on, and the log says so.
using LimitEndsDevice = std::array<bool, scheduler::kSchedulingClasses>;

// What an operator is told of them now and then: how many were ended since the last time, and what
// the client of the latest was told.
struct KernelsEnded {
  std::uint64_t count = 0;
  std::string latest;
};

// What an operator is to know of a kernel of that session, as a sentence; of each kernel once.
struct KernelNoted {
  std::uint64_t session = 0;
  std::string text;
};

// How long the work on a device has had it, against the limits of the kernels among it.
//
// A device serves what has the highest priority first, then what came first. The clock of that one
// work runs; the clocks of all others stand still. So a kernel is never blamed for the time that
// it waited behind somebody else's, and of two endless ones the first is ended first. Where work
// runs side by side the time of the later ones counts from when they are alone: they get more than
// their limit, never less.
//
// Confined to the device thread.
class KernelWatch {
 public:
  // `ran`: in earlier submissions. No `limit`: it may run for ever.
  void OnSubmitted(device::WorkId id, std::uint8_t priority, scheduler::Duration ran,
                   std::optional<scheduler::Duration> limit, scheduler::TimePoint now);
  // Of the time until now the device could not run anything for so long, over all.
  void SetHostSteal(scheduler::Duration total, scheduler::TimePoint now);
  // How long it has run, with earlier submissions.
  scheduler::Duration OnCompleted(device::WorkId id, scheduler::TimePoint now);

  struct Overdue {
    device::WorkId id = 0;
    scheduler::Duration ran{};
    scheduler::Duration limit{};
  };
  // A work whose limit is over; each is told once.
  std::optional<Overdue> TakeOverdue(scheduler::TimePoint now);
  // When TakeOverdue has something to tell if nothing happens until then.
  std::optional<scheduler::TimePoint> wake_at() const;

 private:
  struct Entry {
    device::WorkId id = 0;
    std::uint8_t priority = 0;
    bool was_told = false;
    scheduler::Duration ran{};  // Without the time since `since_` of the one that is served.
    std::optional<scheduler::Duration> limit;
  };
  // Charges the time up to now to the one that is served.
  void Charge(scheduler::TimePoint now);

  std::vector<Entry> entries_;  // In the order in which they are served.
  scheduler::TimePoint since_{};
  scheduler::Duration host_steal_{};
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_OUTPUT_KERNEL_WATCH_H_
