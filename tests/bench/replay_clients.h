// SPDX-License-Identifier: Apache-2.0
// Real client processes that run the jobs of the simulator on a real server's cpu device.

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

// Ends the program with the status when it is an error.
void Must(const Status& status);
template <typename T>
T Must(Result<T> result) {
  Must(result.status());
  return std::move(result).value();
}

enum class Hold {
  kAsleep,  // Most of the time, so that other work on the cores disturbs it little.
  kAwake,  // Always: a core of a virtual machine that has nothing to do may be given away, and come
           // back tens of milliseconds late.
};

// Launches kernels whose blocks hold their executor thread for a given time: they look at the
// device's clock until it has passed.
class HoldingClient {
 public:
  explicit HoldingClient(const ClientOptions& options, Hold hold = Hold::kAsleep);
  // Blocks of `kernel` hold a thread for its block time each. Launches of another `number` are
  // another kernel to whoever predicts their time.
  void Launch(const simulation::Kernel& kernel, std::size_t number) const;
  void Launch(const simulation::Job& job) const;

  const Client client;
  const Stream stream;

 private:
  const Kernel hold_;
  const bool is_awake_;
};

// Processes forked from this one, which end with the object, and with this process however that
// ends. The thread that starts them has to stay.
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
  // Throws when one has failed; it has said why.
  void CheckAlive() const;

 private:
  static void EndWith(pid_t parent);

  std::vector<pid_t> pids_;
};

struct ReplayPlan {
  simulation::Job high, low;
  std::vector<double> arrivals_s;  // Empty: no high client.
  bool has_low = true;
  std::optional<std::chrono::nanoseconds> target;
  std::chrono::nanoseconds length{};  // Where there is no high client.
};

struct ReplayOutcome {
  std::vector<std::chrono::nanoseconds> latencies;  // From arrival to the client knowing its end.
  double low_jobs_per_s = 0;
  // KeptFromCores of the worker as a part of the time: what the machine added, which no simulator
  // knows.
  double worker_waited = 0;
};

// Starts a server with that policy and one executor thread, and both clients as processes of
// their own; returns when all requests have been answered.
ReplayOutcome Replay(const std::string& policy, const ReplayPlan& plan);

// Costs of the server and the cpu device when nothing disturbs them.
struct ReplayCosts {
  std::chrono::nanoseconds round_trip{};  // A launch between idle ends, without its block.
  std::chrono::nanoseconds kernel_gap{};  // From one kernel of a stream to the next.
  std::chrono::nanoseconds block{};       // Each block beyond the time for which it is to hold.
};
ReplayCosts MeasureCosts();

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_REPLAY_CLIENTS_H_
