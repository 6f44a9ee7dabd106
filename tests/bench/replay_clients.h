// SPDX-License-Identifier: Apache-2.0
// Real client processes that run the simulator's jobs on a real server's cpu device.

#ifndef GPUSHARED_TESTS_BENCH_REPLAY_CLIENTS_H_
#define GPUSHARED_TESTS_BENCH_REPLAY_CLIENTS_H_

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpushared/client.h"

#include "scheduler/sim/job.h"

namespace gpushared::testing {

// Exits the program with the message if the status is an error.
void Must(const Status& status);
template <typename T>
T Must(Result<T> result) {
  Must(result.status());
  return std::move(result).value();
}

enum class Hold {
  kAsleep,  // A block sleeps most of the time, so that other work on the cores disturbs it little.
  kAwake,   // A block never sleeps, because the host of a virtual machine may use an idle core for
            // other work and return it tens of milliseconds late.
};

// Launches kernels whose blocks occupy their executor thread for a given time, by polling the
// device's clock until the time has passed.
class HoldingClient {
 public:
  explicit HoldingClient(const ClientOptions& options, Hold hold = Hold::kAsleep);
  // Blocks of `kernel` occupy a thread for its block time each. Launches with a different `number`
  // count as a different kernel for predictions.
  void Launch(const simulation::Kernel& kernel, std::size_t number) const;
  void Launch(const simulation::Job& job) const;

  const Client client;
  const Stream stream;

 private:
  const Kernel hold_;
  const bool is_awake_;
};

// Child processes that end when this object is destroyed, or when this process ends for any reason.
// The thread that starts them must keep running.
class ClientProcesses {
 public:
  ClientProcesses() = default;
  ~ClientProcesses();
  ClientProcesses(const ClientProcesses&) = delete;
  ClientProcesses& operator=(const ClientProcesses&) = delete;

  // `function` must not return.
  template <typename Function>
  void Start(Function function) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
      EndWith(parent);
      function();
    }
    pids_.push_back(pid);
  }
  // Throws if a process has failed; the process itself has printed the reason.
  void CheckAlive() const;

 private:
  static void EndWith(pid_t parent);

  std::vector<pid_t> pids_;
};

struct ReplayPlan {
  simulation::Job high, low;
  std::vector<double> arrivals_s;  // Empty if there is no high client.
  // A request starts at its arrival, or when the previous one has ended if that is later, and is
  // timed from its start.
  bool is_one_by_one = false;
  bool has_low = true;
  std::optional<std::chrono::nanoseconds> target;
  std::chrono::nanoseconds length{};  // Duration of a run without a high client.
};

struct ReplayOutcome {
  // Time of each request from its arrival (one by one: from its start) until the client learns of
  // its end.
  std::vector<std::chrono::nanoseconds> latencies;
  double low_jobs_per_s = 0;
  // KeptFromCores of the worker, as a fraction of the time: noise of the machine, which no
  // simulator models.
  double worker_waited = 0;
};

// Starts a server with that policy and one executor thread, and both clients as separate processes;
// returns when all requests have been answered.
ReplayOutcome Replay(const std::string& policy, const ReplayPlan& plan);

// Costs of the server and the cpu device on an otherwise idle machine.
struct ReplayCosts {
  // From the submission of a launch to an idle device until its client learns of its end, without
  // the time of its block.
  std::chrono::nanoseconds round_trip{};
  std::chrono::nanoseconds kernel_gap{};  // From one kernel of a stream to the next.
  std::chrono::nanoseconds block{};       // Time that a block takes beyond its requested time.
};
ReplayCosts MeasureCosts();

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_REPLAY_CLIENTS_H_
