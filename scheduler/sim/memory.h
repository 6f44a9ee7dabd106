// SPDX-License-Identifier: Apache-2.0
// Memory oversubscription: the cost of swapping for low-class clients without guarantees and for
// clients with guarantees.

#ifndef GPUSHARED_SCHEDULER_SIM_MEMORY_H_
#define GPUSHARED_SCHEDULER_SIM_MEMORY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/types.h"

namespace gpushared::simulation {

// Low clients that always have work, and a high one that arrives with its memory and leaves again.
struct MemoryScenario {
  std::uint64_t device_bytes = std::uint64_t{80} << 30;
  std::size_t low_clients = 2;
  double low_part = 0.6;  // Memory of each low client, relative to the device's.
  // Number of equal parts of each low client's memory. The client works on one part after the
  // other, for part_takes of its running time each. With 1, the access set is unknown.
  std::size_t low_parts = 1;
  scheduler::Duration part_takes = std::chrono::seconds(10);
  double high_part = 0.25;  // Memory of the high client, relative to the device's; guaranteed.
  scheduler::Duration high_every = std::chrono::seconds(60);  // Mean time between two visits.
  // How long the high client stays, counted from when its memory is resident.
  scheduler::Duration high_residency = std::chrono::seconds(10);
  double bytes_per_s = 25e9;  // Swap bandwidth, in one direction at a time.
  // Time until a suspended client has left the device.
  scheduler::Duration stop = std::chrono::milliseconds(1);
  scheduler::Duration length = std::chrono::hours(10);
  std::uint32_t seed = 1;
};

struct MemoryReport {
  // Fraction of the time in which at least one low client ran; `least_runs` is the fraction of the
  // client that ran least.
  double low_runs = 0;
  double least_runs = 0;
  std::vector<scheduler::Duration> waits;  // Waits of the high client for its memory, ascending.
  double moved_bytes = 0;
};

// Simulates scheduler::Residency.
MemoryReport SimulateResidency(const MemoryScenario& scenario);

// Simulates clients that have the whole device in turn, in order of request. The pages of the
// others are swapped out while those of the client whose turn it is are swapped in, as in nvshare,
// whose README (github.com/grgalex/nvshare) names turns of 30 s that an idle client ends early.
MemoryReport SimulateWholeDeviceTurns(const MemoryScenario& scenario,
                                      scheduler::Duration turn = std::chrono::seconds(30));

// Simulates unified memory without turns: pages are swapped in on access, and the least recently
// used ones are evicted. Each low client touches all its memory once in `pass` of its running time.
// If the memory of the low clients exceeds the device's memory, each page has been evicted by the
// time it is touched again; if not, there are no faults. Clients share the link equally. A fault
// costs only its bytes in and out, which is optimistic: published slowdowns reach 78 times (arXiv
// 2512.24637, abstract).
MemoryReport SimulatePageFaults(const MemoryScenario& scenario,
                                scheduler::Duration pass = std::chrono::seconds(1));

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_MEMORY_H_
