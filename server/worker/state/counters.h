// SPDX-License-Identifier: Apache-2.0
// Counters of the device thread, and snapshots of them for other threads.

#ifndef GPUSHARED_SERVER_WORKER_STATE_COUNTERS_H_
#define GPUSHARED_SERVER_WORKER_STATE_COUNTERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/residency.h"
#include "scheduler/types.h"
#include "server/telemetry/totals/figures.h"
#include "server/telemetry/trace/event.h"
#include "server/worker/state/activity_meter.h"
#include "server/worker/state/cost_model.h"
#include "server/worker/state/log_histogram.h"

namespace gpushared::server {

// Counters of one client since its session began. Updated by the device thread.
struct ClientCounters {
  scheduler::Duration device_time{};  // Charged by the lane, including running work.
  Total energy_mj;                    // See EnergyMeter.
  std::uint64_t commands_taken = 0;
  std::uint64_t launches = 0;  // Finished without an error, like `copies` and `fills`.
  std::uint64_t copies = 0;
  std::uint64_t fills = 0;
  std::uint64_t marks = 0;
  std::uint64_t bytes_in = 0;           // Host to device.
  std::uint64_t bytes_out = 0;          // Device to host.
  std::uint64_t bytes_on_device = 0;    // Device to device, and filled.
  std::uint64_t commands_rejected = 0;  // Well-formed but invalid, each a stream error.
  std::uint64_t commands_failed = 0;    // Ended by the device with an error.
  std::uint64_t commands_skipped = 0;   // Because of an earlier error of their stream.
  std::uint64_t stops = 0;              // Times a command was preempted.
  std::uint64_t passes = 0;             // Launches of a gated client that did not await the gate.
  scheduler::Duration stop_time{};      // From the stop request until the command left the device.
  // Charged for commands without a result: preempted before any unit was done, or failed.
  scheduler::Duration wasted{};
  // Time for which non-preemptible commands occupied the device while the high class had work.
  scheduler::Duration nonpreemptible{};
  scheduler::Duration nonpreemptible_longest{};            // Longest such time of one launch.
  std::string nonpreemptible_kernel;                       // The kernel of that launch.
  trace::Cut nonpreemptible_cut = trace::Cut::kRanAsItIs;  // Why that launch was not preempted.
  // Times a command was charged more than a time slice while other clients were connected.
  std::uint64_t event_overruns = 0;
  // Requests that the client marked or, for a client with a latency target that marks none, the
  // periods in which it had unfinished commands.
  std::uint64_t requests = 0;
  std::uint64_t requests_target_met = 0;  // Met their latency target without an error.
  LogHistogram request_latency;           // ns.
  LogHistogram queue_wait;                // From the ring to the device, per command; ns.
};
// The counters that `ps --json` reports unchanged.
inline constexpr Figure<ClientCounters> kClientFigures[] = {
    {&ClientCounters::device_time, "device_time_s"},
    {&ClientCounters::energy_mj, "energy_j", nullptr, nullptr, true, true},
    {&ClientCounters::commands_taken, "commands"},
    {&ClientCounters::launches, "launches"},
    {&ClientCounters::copies, "copies"},
    {&ClientCounters::fills, "fills"},
    {&ClientCounters::bytes_in, "bytes_in"},
    {&ClientCounters::bytes_out, "bytes_out"},
    {&ClientCounters::bytes_on_device, "bytes_on_device"},
    {&ClientCounters::commands_rejected, "commands_rejected"},
    {&ClientCounters::commands_failed, "commands_failed"},
    {&ClientCounters::commands_skipped, "commands_skipped"},
    {&ClientCounters::stops, "stops"},
    {&ClientCounters::passes, "passes"},
    {&ClientCounters::stop_time, "stop_time_s"},
    {&ClientCounters::wasted, "wasted_s"},
    {&ClientCounters::nonpreemptible, "nonpreemptible_s"},
    {&ClientCounters::event_overruns, "event_overruns"},
};

// Memory of a client on an oversubscribed device (scheduler::Residency).
struct MemorySnapshot {
  std::uint64_t resident_bytes = 0;
  scheduler::MemorySwaps moves;
  scheduler::Duration waited{};  // Time with commands but without the memory that they need.
  scheduler::ParkingState parking;
  bool is_suspended = false;
  // The guarantees of other clients leave too little memory until one of them frees some.
  bool is_starved = false;
};

// Snapshot of one client, taken by the device thread.
struct ClientSnapshot {
  std::uint64_t session = 0;
  scheduler::ClientSpec spec;
  ClientCounters counters;
  std::uint32_t commands_pending = 0;  // Taken but not finished.
  std::uint32_t commands_in_flight = 0;
  std::uint64_t mapped_bytes = 0;
  std::optional<MemorySnapshot> memory;
  bool is_ending = false;
  ClientActivity activity;
  // From `activity`, up to the snapshot.
  scheduler::Duration waited{}, starved_for{};
};

struct ThreadCounters {
  std::uint64_t turns = 0;  // Loop iterations that found work.
  std::uint64_t spins = 0;  // Iterations that found no work, and after which the thread spun on.
  std::uint64_t sleeps = 0;
  std::uint64_t wakes_of_clients = 0;  // Futex wake calls.
  std::uint64_t commands = 0;
  scheduler::Duration busy_time{};   // Time in which the device had work.
  scheduler::Duration host_steal{};  // See Device::HostStealUntil.
  scheduler::TargetReport targets;
  CostModel::Accuracy predictions;
  std::optional<scheduler::Duration> launch_bubble;  // See CostModel.
  scheduler::Duration lookahead{};                   // See DeviceLane.
  ActivityMeter::Gaps gaps;
  std::optional<scheduler::MemoryRequestStats> memory_requests;  // If memory is oversubscribed.
};
// The counters that `status --json` reports unchanged.
inline constexpr Figure<ThreadCounters> kThreadFigures[] = {
    {&ThreadCounters::busy_time, "device_time_s"},
    {&ThreadCounters::host_steal, "host_steal_s"},
    {&ThreadCounters::commands, "commands"},
    {&ThreadCounters::turns, "turns"},
    {&ThreadCounters::spins, "spins"},
    {&ThreadCounters::sleeps, "sleeps"},
    {&ThreadCounters::wakes_of_clients, "wakes"},
};

struct ThreadSnapshot {
  ThreadCounters thread;
  std::vector<ClientSnapshot> clients;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATE_COUNTERS_H_
