// SPDX-License-Identifier: Apache-2.0
// Clients that hold more memory than there is: what moving it costs them, and those with
// guarantees.

#ifndef GPUSHARED_SCHEDULER_SIM_MEMORY_H_
#define GPUSHARED_SCHEDULER_SIM_MEMORY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::simulation {

// Low clients that always have work, and a high one that comes with its memory and leaves again.
struct MemoryScenario {
  std::uint64_t device_bytes = std::uint64_t{80} << 30;
  std::size_t low_clients = 2;
  double low_part = 0.6;  // Each holds so much of the device.
  // Each works on its memory in so many parts, on one for so long as it runs, then on the next. 1:
  // nobody knows what it touches.
  std::size_t low_parts = 1;
  scheduler::Duration part_takes = std::chrono::seconds(10);
  double high_part = 0.25;                                        // Of the device; guaranteed.
  scheduler::Duration high_every = std::chrono::seconds(60);      // On average.
  scheduler::Duration high_residency = std::chrono::seconds(10);  // Once it has its memory.
  double bytes_per_s = 25e9;                                      // In one direction at a time.
  scheduler::Duration stop = std::chrono::milliseconds(1);        // Until a held client is off.
  scheduler::Duration length = std::chrono::hours(10);
  std::uint32_t seed = 1;
};

struct MemoryReport {
  // Of the time: a low client had its memory and could run. The least of them had this alone.
  double low_runs = 0;
  double least_runs = 0;
  std::vector<scheduler::Duration> waits;  // For its memory, by the high client; ascending.
  double moved_bytes = 0;
};

// scheduler::Residency decides.
MemoryReport SimulateResidency(const MemoryScenario& scenario);

// One client has the whole device for a turn, in the order in which they ask. The pages of the
// others go out as its own come in: nvshare's way. Its README (github.com/grgalex/nvshare) names
// turns of 30 s, given back early by whoever has nothing to do.
MemoryReport SimulateWholeDeviceTurns(const MemoryScenario& scenario,
                                      scheduler::Duration turn = std::chrono::seconds(30));

// Pages come as they are touched, and those go that were touched longest ago: unified memory
// without turns. Each low client touches all that it has once in `pass` of its time. Together that
// is more than there is, so a page has gone by the time it is touched again. Clients share the link
// alike. A fault costs its bytes in and out and nothing else, which flatters it: published
// slowdowns are up to 78 times (arXiv 2512.24637, abstract).
MemoryReport SimulatePageFaults(const MemoryScenario& scenario,
                                scheduler::Duration pass = std::chrono::seconds(1));

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_MEMORY_H_
