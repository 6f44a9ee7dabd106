// SPDX-License-Identifier: Apache-2.0
// What a worker counts, and how it tells: the JSON that admin requests are answered with.

#ifndef GPUSHARED_SERVER_WORKER_STATS_H_
#define GPUSHARED_SERVER_WORKER_STATS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/loader/module_loader.h"
#include "server/worker/activity_meter.h"
#include "server/worker/cost_model.h"
#include "server/worker/log_histogram.h"

namespace gpushared::server {

// Of one client since its session began. Counted by the device thread.
struct ClientCounters {
  scheduler::Duration device_time{};  // Charged by the lane; all clients add up to busy time.
  std::uint64_t commands_taken = 0;
  std::uint64_t launches = 0;  // Finished, with or without success; as the next three.
  std::uint64_t copies = 0;
  std::uint64_t fills = 0;
  std::uint64_t marks = 0;
  std::uint64_t bytes_in = 0;          // Host to device.
  std::uint64_t bytes_out = 0;         // Device to host.
  std::uint64_t bytes_on_device = 0;   // Device to device, and filled.
  std::uint64_t commands_refused = 0;  // Well-formed, but not possible: a stream error each.
  std::uint64_t commands_failed = 0;   // Ended by the device with an error.
  std::uint64_t commands_skipped = 0;  // Because of an earlier error of their stream.
  std::uint64_t stops = 0;             // Times a command was taken off the device unfinished.
  scheduler::Duration stop_time{};     // From being asked to stop until off the device.
  // Charged for what left nothing behind: stopped before anything was done, or failed.
  scheduler::Duration wasted{};
  // Times a command was charged more than a slice while other clients were present.
  std::uint64_t slice_overruns = 0;
  // What it marked as requests; else, of a client with a latency promise, what it asked between
  // two synchronisations.
  std::uint64_t requests = 0;
  std::uint64_t requests_kept = 0;  // Within the promise, and without an error.
  LogHistogram request_latency;     // ns.
  LogHistogram queue_wait;          // From the ring to the device, per command; ns.
};

// One client at one moment, as the device thread sees it.
struct ClientSnapshot {
  std::uint64_t session = 0;
  scheduler::ClientSpec spec;
  ClientCounters counters;
  std::uint32_t commands_pending = 0;  // Taken and not finished.
  std::uint32_t commands_in_flight = 0;
  std::uint64_t mapped_bytes = 0;
  bool is_ending = false;
  ClientActivity activity;
};

struct ThreadCounters {
  std::uint64_t turns = 0;  // Passes that found something to do.
  std::uint64_t spins = 0;  // Passes that found nothing while the spin budget lasted.
  std::uint64_t sleeps = 0;
  std::uint64_t wakes_of_clients = 0;  // Futex calls.
  std::uint64_t commands = 0;
  scheduler::Duration busy_time{};   // Device time charged to anybody.
  scheduler::Duration host_delay{};  // See Device::HostDelayUntil.
  scheduler::PromiseReport promises;
  CostModel::Accuracy predictions;
  std::optional<scheduler::Duration> turnaround;  // See CostModel.
  scheduler::Duration lookahead{};                // See DeviceLane.
  ActivityMeter::Gaps gaps;
};

struct ThreadSnapshot {
  ThreadCounters thread;
  std::vector<ClientSnapshot> clients;
};

// The control thread's knowledge of a session.
struct SessionFacts {
  std::uint64_t session = 0;
  std::string name;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  scheduler::ClientSpec spec;
  std::uint64_t quota_bytes = 0;
  std::uint32_t modules = 0;
  std::uint32_t arenas = 0;
  std::uint64_t arena_bytes = 0;
  double age_s = 0;
  std::string state;  // "starting", "running", "ending"
};

struct WorkerFacts {
  std::uint32_t generation = 1;
  std::int32_t pid = 0;
  std::string policy;
  double slice_ms = 0;
  double age_s = 0;
  bool is_draining = false;
  // What they have of the machine's cores, see ThreadPriority.
  std::string device_thread, control_thread;
  std::optional<loader::LoaderFacts> loader;  // Empty where there is none.
};

// {"device":"cpu:0","clients":[{"client":7,"name":"train","pid":..,"uid":..,"class":"low",
//  "weight":1,"state":"running","device_time_s":..,"launches":..,"queue_wait_p50_us":..,..}]}
std::string ClientsJson(const device::DeviceInfo& info, const std::vector<SessionFacts>& sessions,
                        const ThreadSnapshot& snapshot);

// {"device":"cpu:0","generation":1,"pid":..,"policy":"priority","clients":2,"draining":false,
//  "device_time_s":..,"commands":..,"spins":..,"sleeps":..,"wakes":..}
std::string StatusJson(const device::DeviceInfo& info, const WorkerFacts& worker,
                       const std::vector<SessionFacts>& sessions, const ThreadSnapshot& snapshot);

// {"device":"cpu:0","name":..,"kind":"cpu","memory_bytes":..,"multiprocessors":..,..}
std::string DeviceJson(const device::DeviceInfo& info, const WorkerFacts& worker);

const char* ClassName(scheduler::SchedulingClass scheduling_class);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_STATS_H_
