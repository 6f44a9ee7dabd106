// SPDX-License-Identifier: Apache-2.0
// One device, one context, its sessions: the process that does the work.

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
#include "server/modules/loader/module_reader.h"
#include "server/worker/control/slow_calls.h"
#include "server/worker/control/worker_settings.h"
#include "server/worker/state/session_limits.h"
#include "server/worker/state/spin_times.h"

namespace gpushared::server {

struct WorkerOptions {
  // Makes the device; called once, on the thread that calls Run. Any thread may call the functions
  // handed in until the device is destroyed. `await_quiet` waits for a moment without urgent
  // requests (SlowCallRules); it may be called once there is a session.
  std::function<Result<std::unique_ptr<device::Device>>(
      device::WakeFunction wake, device::OutputFunction output, std::function<void()> await_quiet)>
      make_device;
  WorkerSettings settings;
  scheduler::LaneOptions lane_options;
  std::uint32_t generation = 1;  // Counts the workers of this device since the broker started.
  SessionLimits limits;
  scheduler::ResidencyOptions residency;
  SlowCallRules slow_calls;
  // Makes what reads modules; called once, on the thread that calls Run.
  std::function<Result<std::unique_ptr<loader::ModuleReader>>()> make_reader;
  // Where what is learnt of kernels is kept for the next worker of this device; empty: nowhere.
  std::string cost_file;
  // Where the device's totals are, see DeviceTotals; empty: nobody reads them.
  std::string totals_file;
  std::chrono::nanoseconds keep_costs_every = std::chrono::seconds(60);
  // How long a kernel beyond its limit may take to end by itself where the device can only tell it
  // to; then the worker
  // ends all the same. It looks once in thousands of turns of its loops.
  std::chrono::nanoseconds leaves_within = std::chrono::seconds(2);
  // How long the device thread may be inside of one call of the device: so long, or as long as the
  // longest kernel limit. Then kernels that look for it are told to end, and if that does not bring
  // it back, the worker ends as for a lost device.
  std::chrono::nanoseconds call_max = std::chrono::seconds(5);
  // Without an own compiler: whether the device's driver compiles for every client. Otherwise it
  // compiles only for root and the server's own user, who could harm this process anyway.
  bool driver_compiles_for_all = false;
  // stdout of this process is a GPU driver's alone: what comes there is what kernels print.
  bool takes_stdout = false;
  std::optional<SpinTimes> spin;  // Unset: what this machine can afford.
  // Whether the threads on which requests wait go before other threads of the machine, as far as it
  // allows that (server/platform/thread_priority.h).
  bool prefers_threads = false;
  // Where the kernel describes the machine: threads and memory are kept near the device.
  std::string sysfs = "/sys";
  // Running work of a session that ended is asked to stop at once, and killed when it
  // has not ended by then.
  std::chrono::nanoseconds kill_after = std::chrono::milliseconds(100);
  // The directory of the socket at which the next broker finds this worker (ipc/registry_socket.h);
  // empty: it ends with its last session when its broker dies.
  std::string registry_directory;
  std::uint64_t made_by = 0;  // See ipc::Registry.
  // How long a worker without a broker waits for one after its last client has gone; at most twice
  // that.
  std::chrono::nanoseconds alone_max = std::chrono::seconds(10);
  // In a drain, the worker ends within this time after its last client has gone, whatever that
  // one's kernels and the driver do.
  std::chrono::nanoseconds left_behind_max = std::chrono::seconds(5);
};

inline constexpr int kWorkerLostDevice = 3;
inline constexpr int kWorkerStuck = 4;

// Runs until it was told to drain and the last session has ended. When its broker dies it serves
// its sessions on, and waits for another broker, which takes it over with them. Without one it ends
// some time after its last session (WorkerOptions::alone_max).
//
// Run is called once. The channel speaks ipc/wire/channel.h with the broker.
class Worker {
 public:
  Worker(WorkerOptions options, ipc::UniqueFd channel);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The process's exit code. 0 after a drain. 1 if the device or the policy could not be made; the
  // reason is logged, and told to the broker if it listens. kWorkerLostDevice when the device died,
  // kWorkerStuck when a drain would never have ended.
  int Run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// What `gpushared --worker` does: a Worker in a process of its own. Ignores SIGINT, SIGTERM,
// SIGPIPE and SIGXFSZ: the broker decides when a worker ends, by the channel or by SIGKILL.
int RunWorker(WorkerOptions options, ipc::UniqueFd channel);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_WORKER_H_
