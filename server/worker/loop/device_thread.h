// SPDX-License-Identifier: Apache-2.0
// The thread that every command passes through, from the ring to the device and back.

#ifndef GPUSHARED_SERVER_WORKER_LOOP_DEVICE_THREAD_H_
#define GPUSHARED_SERVER_WORKER_LOOP_DEVICE_THREAD_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gpushared/result.h"

#include "ipc/doorbell.h"
#include "scheduler/policy.h"
#include "scheduler/types.h"
#include "server/device/device.h"
#include "server/platform/numa.h"
#include "server/platform/thread_priority.h"
#include "server/telemetry/totals/device_totals.h"
#include "server/worker/dispatch/dispatcher.h"
#include "server/worker/dispatch/kernel_limiter.h"
#include "server/worker/dispatch/memory_manager.h"
#include "server/worker/dispatch/staging_watch.h"
#include "server/worker/dispatch/submitter.h"
#include "server/worker/intake/command_pump.h"
#include "server/worker/intake/ring_visits.h"
#include "server/worker/loop/device_signal.h"
#include "server/worker/output/doorbells.h"
#include "server/worker/output/mailbox.h"
#include "server/worker/output/messages.h"
#include "server/worker/output/publisher.h"
#include "server/worker/output/requests.h"
#include "server/worker/output/tracer.h"
#include "server/worker/output/waiter_wakes.h"
#include "server/worker/state/client_registry.h"
#include "server/worker/state/client_state.h"
#include "server/worker/state/keyed_hash.h"
#include "server/worker/state/per_client.h"
#include "server/worker/state/spin_times.h"

namespace gpushared::server {

struct DeviceThreadOptions {
  scheduler::LaneOptions lane;
  scheduler::Duration slice = std::chrono::milliseconds(2);
  scheduler::Duration kill_after = std::chrono::milliseconds(100);
  KernelLimiterOptions kernels;
  std::shared_ptr<DeviceTotals> totals;  // Null if totals are not recorded.
  HashSeed secret{};                     // See CostModel.
  SpinTimes spin;
  // Whether to run as a real-time thread if the machine allows it, see RealtimeBudget.
  bool is_realtime = false;
  NumaPlace place;                                // Processors on which the thread runs.
  std::vector<scheduler::KnownCost> known_costs;  // Learnt by another worker.
  // Set if memory is oversubscribed.
  std::optional<scheduler::ResidencyOptions> residency;
  // Called on the thread when the first urgent request begins (true) and when the last one ends
  // (false).
  std::function<void(bool are_open)> on_urgent_requests = [](bool) {};
};

// Runs a loop. Each iteration handles mail, completions, a bounded batch of records from each ring
// and the lane's decisions, and ends with one publication per client. An iteration takes
// microseconds regardless of the clients' behaviour, and blocks only if a driver call does. Without
// work, the thread spins for its budget and then sleeps, which it announces on the worker page. It
// is woken by a client's eventfd, the device, mail, or a deadline.
//
// Confined to the thread itself, except Create, Start, Stop, the destructor, TakeCosts, mailbox()
// and turn_steps().
class DeviceThread {
 public:
  // `device`, `signal` and `control` must outlive the returned object.
  static Result<std::unique_ptr<DeviceThread>> Create(device::Device& device,
                                                      std::unique_ptr<scheduler::Policy> policy,
                                                      DeviceSignal& signal,
                                                      Mailbox<ControlMessage>& control,
                                                      const DeviceThreadOptions& options);
  // Stops and joins the thread.
  ~DeviceThread();
  DeviceThread(const DeviceThread&) = delete;
  DeviceThread& operator=(const DeviceThread&) = delete;

  // Returns the scheduling priority that the thread got.
  ThreadPriority Start();
  // Alternative to Start: runs on the calling thread until StopThread is received.
  void Run();
  // Idempotent; also called by the destructor.
  void Stop();
  // Returns all known costs; empty if nothing was learnt since the last report. Must be called
  // after Stop.
  std::vector<scheduler::KnownCost> TakeCosts();
  static scheduler::TimePoint Now();
  Mailbox<DeviceMessage>& mailbox() { return mailbox_; }
  // Number of beginnings and ends of iterations, so it is odd during an iteration. If it stays odd
  // at the same value, the thread is blocked in a call.
  std::uint64_t turn_steps() const { return turn_steps_.load(std::memory_order_relaxed); }

 private:
  DeviceThread(device::Device& device, std::unique_ptr<scheduler::Policy> policy,
               DeviceSignal& signal, Mailbox<ControlMessage>& control,
               const DeviceThreadOptions& options, Doorbells doorbells);

  void KeepWithinBudget();
  // A load and a store instead of an atomic addition, because only this thread writes it.
  void CountTurnStep() { turn_steps_.store(turn_steps() + 1, std::memory_order_relaxed); }
  bool Iterate();
  // Whether completions must be detected soon although the device does not report them.
  bool MustPoll() const;
  std::uint64_t GetMemory(const ClientState& client) const;
  bool TakeMail(scheduler::TimePoint now);
  // Whether commands may have ended: the device must be polled, has reported completions since the
  // last call, or a gated client's turn is on it.
  bool MayHaveEnded();
  bool VisitRings(scheduler::TimePoint now);
  void MakeHot(ClientState& client);
  static bool HasSomething(ClientState& client);
  bool VisitHot(ClientState& client, bool visits_all, scheduler::TimePoint now);
  // Whether the policy keeps other clients' work short for the sake of this client's latency.
  bool IsUrgent(const ClientState& client) const { return lane_.rules().IsUrgent(client.spec()); }
  // Updates the totals of the whole device.
  void CountTotals();
  void FinishBarriers();
  // Detaches or keeps paused clients whose commands have ended or whose time is up.
  void FinishReleases(scheduler::TimePoint now);
  // Returns false while the release must wait.
  bool TryRelease(const ReleaseClient& release, scheduler::TimePoint now);
  void Report();
  void ReportReleased();
  void ReportOverload(scheduler::TimePoint now);
  void ReportKernelsEnded(scheduler::TimePoint now);
  // Sends the next batch of kernel costs to the control thread.
  void ReportCosts();
  void Sleep();
  // Checks the mailbox, completions and all rings. Sets waits_for_credit_ if all work found is
  // waiting for credit.
  bool HasWork();
  bool SpinsOn();
  // Whether the thread rests after an iteration that found work.
  bool LeavesItsCore() const;
  void Rest();
  ThreadSnapshot TakeSnapshot(scheduler::TimePoint now);
  // Null unless the client is connected and not leaving.
  ClientState* FindConnected(std::uint64_t session) const;

  void Handle(StopThread message, scheduler::TimePoint now);
  void Handle(AttachClient message, scheduler::TimePoint now);
  void Handle(DetachClient message, scheduler::TimePoint now);
  void Handle(ReleaseClient message, scheduler::TimePoint now);
  void Handle(ResumeClient message, scheduler::TimePoint now);
  void Handle(AddModule message, scheduler::TimePoint now);
  void Handle(RemoveModule message, scheduler::TimePoint now);
  void Handle(AddStagingBuffer message, scheduler::TimePoint now);
  void Handle(SetMapped message, scheduler::TimePoint now);
  void Handle(AddMapping message, scheduler::TimePoint now);
  void Handle(RemoveMapping message, scheduler::TimePoint now);
  void Handle(MemoryChanged message, scheduler::TimePoint now);
  void Handle(MemoryFreed message, scheduler::TimePoint now);
  void Handle(RequestMemory message, scheduler::TimePoint now);
  void Handle(MemorySwapped message, scheduler::TimePoint now);
  void Handle(ChangeClient message, scheduler::TimePoint now);
  void Handle(ParkClient message, scheduler::TimePoint now);
  void Handle(AskStreamError message, scheduler::TimePoint now);
  void Handle(AskStats message, scheduler::TimePoint now);
  void Handle(AskRequest message, scheduler::TimePoint now);
  void Handle(AskCosts message, scheduler::TimePoint now);
  void Handle(SetTrace message, scheduler::TimePoint now);
  void Handle(CountGpu message, scheduler::TimePoint now);

  // How often a client's ring is visited.
  struct Visits {
    bool is_hot = false;
    std::uint32_t quiet = 0;  // Visits in a row without a record, while hot.
  };

  const DeviceThreadOptions options_;
  device::Device& device_;
  DeviceSignal& signal_;
  Mailbox<ControlMessage>& control_;
  Mailbox<DeviceMessage> mailbox_;
  Doorbells doorbells_;
  ipc::WorkerSleep sleep_;
  const std::shared_ptr<DeviceTotals> totals_;
  // The parts of this worker's counts that are already in the totals.
  struct Counted {
    std::uint64_t gap_ns = 0, gap_used_ns = 0, host_steal_ns = 0;
    std::array<std::uint64_t, scheduler::kSchedulingClasses> abandoned{};
  };
  Counted counted_;
  scheduler::DeviceLane lane_;
  ClientRegistry registry_;
  Tracer tracer_;
  Requests requests_;
  KernelLimiter limiter_;
  StagingWatch staging_watch_;
  Turns turns_;
  Submitter submitter_;
  Publisher publisher_;
  Dispatcher dispatcher_;
  CommandPump pump_;
  std::optional<MemoryManager> memory_;
  WaiterWakes waiter_wakes_;

  std::vector<DeviceMessage> mail_;
  // Clients whose rings are visited in every iteration, unless they have plenty of commands in the
  // lane. The other clients are visited less often.
  std::vector<ClientState*> hot_;
  PerClient<Visits> visits_of_;
  RingVisits visits_;
  std::uint32_t turns_to_cold_visit_ = 0;
  std::uint32_t barriers_ = 0;  // Clients with a pending barrier.
  std::vector<ReleaseClient> releases_;
  // Set by HasWork: all work found is waiting for credit.
  bool waits_for_credit_ = false;
  std::uint64_t next_module_serial_ = 1;
  std::uint64_t samples_reported_ = 0;         // The cost model's sample count at the last report.
  std::optional<std::size_t> costs_reported_;  // Next part to report, during a report.
  // The cost model's sample count at the beginning of the report.
  std::uint64_t samples_in_report_ = 0;
  std::optional<std::chrono::steady_clock::time_point> quiet_since_;
  std::chrono::nanoseconds quiet_for_{0};  // Time since quiet_since_ at the last call of SpinsOn.
  bool has_reported_loss_ = false;
  bool ended_late_ = false;  // Commands ended after memory was last reviewed.
  bool urgent_requests_reported_ = false;
  std::array<std::uint64_t, scheduler::kSchedulingClasses> abandoned_reported_{};
  std::optional<scheduler::TimePoint> overload_reported_, kernels_ended_reported_;
  bool is_stopping_ = false;
  bool is_realtime_ = false;
  scheduler::TimePoint waited_at_;  // End of the last sleep or rest.
  RealtimeBudget realtime_budget_;
  ThreadCounters counters_;
  std::atomic<std::uint64_t> turn_steps_ = 0;
  std::thread thread_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_LOOP_DEVICE_THREAD_H_
