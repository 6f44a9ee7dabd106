// SPDX-License-Identifier: Apache-2.0
// Counts of the device thread, and a copy of them for other threads.

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

// Of one client since its session began. Counted by the device thread.
struct ClientCounters {
  scheduler::Duration device_time{};  // Charged by the lane, running work included.
  std::uint64_t commands_taken = 0;
  std::uint64_t launches = 0;  // Finished, with or without success; as the next three.
  std::uint64_t copies = 0;
  std::uint64_t fills = 0;
  std::uint64_t marks = 0;
  std::uint64_t bytes_in = 0;           // Host to device.
  std::uint64_t bytes_out = 0;          // Device to host.
  std::uint64_t bytes_on_device = 0;    // Device to device, and filled.
  std::uint64_t commands_rejected = 0;  // Well-formed, but not possible: a stream error each.
  std::uint64_t commands_failed = 0;    // Ended by the device with an error.
  std::uint64_t commands_skipped = 0;   // Because of an earlier error of their stream.
  std::uint64_t stops = 0;              // Times a command was taken off the device unfinished.
  scheduler::Duration stop_time{};      // From being asked to stop until off the device.
  // Charged for what left nothing behind: stopped before anything was done, or failed.
  scheduler::Duration wasted{};
  // Commands that could not be stopped had the device for so long beside work of the high class.
  scheduler::Duration uncut{};
  scheduler::Duration uncut_longest{};            // At once,
  std::string nonpreemptible_kernel;              // by this kernel,
  trace::Cut uncut_cut = trace::Cut::kRanAsItIs;  // for this reason.
  // Times a command was charged more than a slice while other clients were present.
  std::uint64_t event_overruns = 0;
  // What it marked as requests; else, of a client with a latency promise, what it asked between
  // two synchronisations.
  std::uint64_t requests = 0;
  std::uint64_t requests_target_met = 0;  // Within the promise, and without an error.
  LogHistogram request_latency;           // ns.
  LogHistogram queue_wait;                // From the ring to the device, per command; ns.
};
// Those of them that `ps --json` tells as they are.
inline constexpr Figure<ClientCounters> kClientFigures[] = {
    {&ClientCounters::device_time, "device_time_s"},
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
    {&ClientCounters::stop_time, "stop_time_s"},
    {&ClientCounters::wasted, "wasted_s"},
    {&ClientCounters::uncut, "nonpreemptible_s"},
    {&ClientCounters::event_overruns, "event_overruns"},
};

// Memory of a client where it moves (scheduler::Residency).
struct MemorySnapshot {
  std::uint64_t resident_bytes = 0;
  scheduler::MemorySwaps moves;
  scheduler::Duration waited{};  // With commands, and without its memory.
  bool is_suspended = false;
  bool is_starved = false;  // Until guarantees of others are free again.
};

// One client at one moment, as the device thread sees it.
struct ClientSnapshot {
  std::uint64_t session = 0;
  scheduler::ClientSpec spec;
  ClientCounters counters;
  std::uint32_t commands_pending = 0;  // Taken and not finished.
  std::uint32_t commands_in_flight = 0;
  std::uint64_t mapped_bytes = 0;
  std::optional<MemorySnapshot> memory;
  bool is_ending = false;
  ClientActivity activity;
  // Of the activity, up to this moment.
  scheduler::Duration waited{}, starved_for{};
};

struct ThreadCounters {
  std::uint64_t turns = 0;  // Passes that found something to do.
  std::uint64_t spins = 0;  // Passes that found nothing while the spin budget lasted.
  std::uint64_t sleeps = 0;
  std::uint64_t wakes_of_clients = 0;  // Futex calls.
  std::uint64_t commands = 0;
  scheduler::Duration busy_time{};   // In which the device had work.
  scheduler::Duration host_steal{};  // See Device::HostStealUntil.
  scheduler::TargetReport targets;
  CostModel::Accuracy predictions;
  std::optional<scheduler::Duration> launch_bubble;  // See CostModel.
  scheduler::Duration lookahead{};                   // See DeviceLane.
  ActivityMeter::Gaps gaps;
  std::optional<scheduler::MemoryRequestStats> memory_requests;  // Where memory moves.
};
// The same of `status --json`.
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
