// SPDX-License-Identifier: Apache-2.0
// JSON replies to admin requests.

#ifndef GPUSHARED_SERVER_WORKER_CONTROL_STATS_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_STATS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/owner.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/device/inventory/gpu_readings.h"
#include "server/modules/loader/module_reader.h"
#include "server/telemetry/totals/figures.h"
#include "server/worker/state/client_caps.h"
#include "server/worker/state/counters.h"

namespace gpushared::server {

// Facts about a session that are available on the control thread.
struct SessionFacts {
  std::uint64_t session = 0;
  std::string name;
  ipc::Owner owner;
  std::int32_t pid = 0;
  scheduler::ClientSpec spec;
  ClientCaps caps;
  std::uint64_t quota_bytes = 0;
  std::uint64_t guaranteed_bytes = 0;
  std::uint32_t modules = 0;
  std::uint32_t staging_buffers = 0;
  std::uint64_t staging_bytes = 0;
  // Size of all chunks, which are in addition to the memory mapped from the bottom of the space.
  std::uint64_t chunk_bytes = 0;
  bool is_gated = false;  // Whether the client submits its work to the driver itself.
  double age_s = 0;
  std::string state;  // "starting", "running", "ending"
};

struct WorkerFacts {
  std::uint32_t generation = 1;
  std::int32_t pid = 0;
  std::string policy;
  scheduler::PolicyOptions policy_options;
  double age_s = 0;
  bool is_draining = false;
  // Scheduling parameters of both threads in the operating system, see ThreadPriority.
  std::string device_thread, control_thread;
  std::uint64_t executor_bytes = 0;  // Device::executor_bytes.
  std::string numa;                  // See NumaPlace; empty if the device is not on a bus.
  std::uint64_t graphs_bytes = 0;    // Host memory of all graphs.
  std::uint64_t graphs_bytes_max = 0;
  device::GpuReadings gpu;
  loader::LoaderFacts loader;
  // Empty without oversubscription. Lacks the swap statistics.
  std::optional<OvercommitNow> overcommit;
};

// {"device":"cpu:0","clients":[{"client":7,"name":"train","state":"running","class":"low",
//  "weight":1,"device_time_s":..,"launches":..,"queue_wait_p50_us":..,..}]}
std::string ClientsJson(const device::DeviceInfo& info, const std::vector<SessionFacts>& sessions,
                        const ThreadSnapshot& snapshot);

// {"device":"cpu:0","generation":1,"pid":..,"policy":"priority","clients":2,"draining":false,
//  "device_time_s":..,"commands":..,"spins":..,"sleeps":..,"wakes":..}
std::string StatusJson(const device::DeviceInfo& info, const WorkerFacts& worker,
                       const std::vector<SessionFacts>& sessions, const ThreadSnapshot& snapshot);

// {"client":7,"parked":true,"held":false,"bytes":..,"promised_wake_s":..}
std::string ParkedJson(std::uint64_t session, std::uint64_t bytes,
                       const scheduler::ParkingState& parking);

// {"device":"cpu:0","name":..,"kind":"cpu","memory_bytes":..,"multiprocessors":..,..}
std::string DeviceJson(const device::DeviceInfo& info, const WorkerFacts& worker);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_STATS_H_
