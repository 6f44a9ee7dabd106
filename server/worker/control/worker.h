// SPDX-License-Identifier: Apache-2.0
// Worker process: one device, one context and its sessions.

#ifndef GPUSHARED_SERVER_WORKER_CONTROL_WORKER_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_WORKER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpushared/result.h"

#include "ipc/unique_fd.h"
#include "scheduler/device_lane.h"
#include "scheduler/residency.h"
#include "server/device/device.h"
#include "server/device/inventory/gpu_readings.h"
#include "server/modules/loader/module_reader.h"
#include "server/worker/control/slow_calls.h"
#include "server/worker/control/worker_settings.h"
#include "server/worker/state/session_limits.h"
#include "server/worker/state/spin_times.h"

namespace gpushared::server {

struct WorkerOptions {
  // Creates the device; called once, on the thread that calls Run. Until the device is destroyed,
  // any thread may call the three arguments. `await_quiet` waits for a moment without urgent
  // requests (SlowCallRules); it must not be called before a session exists.
  std::function<Result<std::unique_ptr<device::Device>>(
      device::WakeFunction wake, device::OutputFunction output, std::function<void()> await_quiet)>
      make_device;
  WorkerSettings settings;
  scheduler::LaneOptions lane_options;
  // Counts the workers of this device from 1. A broker that takes over a worker continues the
  // count.
  std::uint32_t generation = 1;
  SessionLimits limits;
  scheduler::ResidencyOptions residency;
  SlowCallRules slow_calls;
  // Reads the device's sensors, on a thread of its own. May block forever. Empty if the device has
  // none.
  std::function<device::GpuReadings()> read_gpu;
  // Creates the module reader; called once, on the thread that calls Run.
  std::function<Result<std::unique_ptr<loader::ModuleReader>>()> make_reader;
  // File in which kernel costs are persisted for the next worker of this device. If empty, they are
  // not persisted.
  std::string cost_file;
  // File of the device's totals, see DeviceTotals; empty if they are not recorded.
  std::string totals_file;
  std::chrono::nanoseconds keep_costs_every = std::chrono::seconds(60);
  std::chrono::nanoseconds read_gpu_every = std::chrono::seconds(1);
  // On devices that cannot kill a kernel: time within which a kernel beyond its limit must end
  // after the request; otherwise the worker ends. Kernels check for the request only once in
  // thousands of iterations of their loops.
  std::chrono::nanoseconds leaves_within = std::chrono::seconds(2);
  // Maximum time of one device call on the device thread, unless the longest kernel limit is
  // longer. When a call exceeds this time, kernels that poll for a request to end receive one. If
  // that does not unblock the thread, the worker ends as for a lost device.
  std::chrono::nanoseconds call_max = std::chrono::seconds(5);
  // Applies only without a separate compiler. If true, the device's driver compiles for every
  // client. If false, it compiles only for root and the server's own user, who could harm this
  // process in any case.
  bool driver_compiles_for_all = false;
  // Whether stdout is redirected to the log as kernel output. Requires that only a GPU driver uses
  // stdout of this process.
  bool takes_stdout = false;
  std::optional<SpinTimes> spin;  // If unset, chosen for this machine.
  // Whether threads that requests wait for get priority over other threads of the machine, as far
  // as the machine allows (server/platform/thread_priority.h).
  bool prefers_threads = false;
  // Where the kernel describes the machine's topology, so that threads and memory can be placed
  // near the device.
  std::string sysfs = "/sys";
  // When a session ends, preemption of its running work is requested at once, and work that has not
  // ended within this time is killed.
  std::chrono::nanoseconds kill_after = std::chrono::milliseconds(100);
  // Directory of the socket through which the next broker finds this worker
  // (ipc/registry_socket.h). If empty, the worker of a dead broker ends with its last session.
  std::string registry_directory;
  std::uint64_t made_by = 0;  // See ipc::Registry.
  // How long a worker without a broker waits for one after its last client has left. The actual
  // wait is at most twice as long.
  std::chrono::nanoseconds alone_max = std::chrono::seconds(10);
  // When draining, the worker ends within this time after its last client has left, even if kernels
  // of clients or the driver never return.
  std::chrono::nanoseconds left_behind_max = std::chrono::seconds(5);
};

inline constexpr int kWorkerLostDevice = 3;
inline constexpr int kWorkerStuck = 4;

// Runs until it has been drained, that is, until its last session has ended after a drain request.
// If its broker dies, it keeps serving its sessions and waits for another broker, which adopts it
// together with them. If none comes, it ends some time after its last session
// (WorkerOptions::alone_max).
//
// Run is called once. The channel to the broker uses ipc/wire/channel.h.
class Worker {
 public:
  Worker(WorkerOptions options, ipc::UniqueFd channel);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Returns the exit code of the process: 0 after a drain; 1 if the worker could not start (the log
  // has the reason); kWorkerLostDevice if the device was lost; kWorkerStuck if a drain would never
  // have ended.
  int Run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Body of `gpushared --worker`: runs a Worker in this process. Ignores SIGINT, SIGTERM, SIGPIPE and
// SIGXFSZ, because the broker decides when a worker ends, through the channel or with SIGKILL.
int RunWorker(WorkerOptions options, ipc::UniqueFd channel);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_WORKER_H_
