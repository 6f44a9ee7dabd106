// SPDX-License-Identifier: Apache-2.0
// Control thread of a worker. One file per responsibility: worker.cpp starts and stops the worker,
// broker_link.cpp serves the broker, device_mail.cpp handles messages of the device thread and
// detects a blocked device thread, and admin_answers.cpp answers operators.

#ifndef GPUSHARED_SERVER_WORKER_CONTROL_WORKER_IMPL_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_WORKER_IMPL_H_

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ipc/registry_socket.h"
#include "ipc/unbounded_calls.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/channel.h"
#include "server/worker/control/cost_file.h"
#include "server/worker/control/device_watch.h"
#include "server/worker/control/driver_output.h"
#include "server/worker/control/kernel_output.h"
#include "server/worker/control/session.h"
#include "server/worker/control/stats.h"
#include "server/worker/control/trace_request_handler.h"
#include "server/worker/control/worker.h"
#include "server/worker/loop/device_signal.h"
#include "server/worker/loop/device_thread.h"
#include "server/worker/output/mailbox.h"
#include "server/worker/output/messages.h"

namespace gpushared::server {

// Maximum number of calls that may block forever. Each session needs one, which closes its socket
// and frees its memory. The rest is for the sockets of trace watchers.
inline constexpr std::size_t kEndingsMax = std::size_t{2} * kSessionsLimit;

// Runs the control thread and owns the other threads. ~Impl ends the device thread, the sessions,
// and the threads that work for the sessions, in this order, before any member is destroyed.
//
// Confined to the thread that calls Run, except control_, to which any thread may post.
class Worker::Impl {
 public:
  Impl(WorkerOptions options, ipc::UniqueFd channel)
      : options_(std::move(options)),
        control_([this] { WakeControl(); }),
        channel_(context_, channel.Release()),
        mail_(context_),
        device_watch_(WatchLimits(options_)),
        watch_timer_(context_),
        cost_timer_(context_),
        gpu_timer_(context_),
        registry_descriptor_(context_),
        alone_timer_(context_),
        drain_timer_(context_),
        report_timer_(context_) {}
  ~Impl();

  int Run();

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  Status Open();
  // Null if memory is not oversubscribed.
  Result<std::shared_ptr<device::SwapStore>> OpenStore() const;
  Result<std::unique_ptr<scheduler::Policy>> MakePolicy() const;
  void WakeControl();
  // Returns the persisted costs; if they are missing or unusable, no costs and a new seed.
  KeptCosts ReadKeptCosts() const;
  // Null if the file cannot be used.
  std::shared_ptr<DeviceTotals> OpenTotals() const;
  void WatchCosts();
  void WatchGpu();
  void OnGpuRead(const device::GpuReadings& readings);
  void WatchLog();
  void KeepCosts(std::vector<scheduler::KnownCost> costs) const;

  // Messages of the device thread.
  void WatchMail();
  void TakeMail();
  void Handle(ClientDetached message);
  void Handle(const ClientKept& message);
  void Handle(ClientBroke message);
  void Handle(const Applied& message);
  void Handle(const SwapMemory& message);
  void Handle(const PreemptSwap& message);
  void Handle(const MemoryAnswer& message);
  void Handle(const ModuleReleased& message);
  void Handle(const StreamError& message);
  void Handle(const ClientParked& message);
  void Handle(const StatsTaken& message);
  void Handle(const RequestAnswer& message);
  void Handle(CostsTaken message);
  void Handle(TraceOver message);
  void Handle(const Overloaded& message);
  void Handle(const KernelsEnded& message);
  void Handle(const CheckStagingBuffers& message);
  void Handle(const KernelNoted& message);
  void Handle(const DeviceLost& message);

  // Detection of a blocked device thread.
  static DeviceWatch::Limits WatchLimits(const WorkerOptions& options);
  void WatchDevice();
  void ReportKernelsToEnd();
  void LoseBlockedDevice(const std::string& detail);

  // Broker.
  void WatchChannel();
  void OnChannelReadable();
  void HandleFrame(ipc::Frame frame);
  void Handle(ipc::Attach attach, ipc::Frame& frame);
  Status CheckPlace(const Session& new_client) const;
  void Handle(const ipc::AdminRequest& request, ipc::Frame& frame);
  void Handle(const ipc::SetSession& change, ipc::Frame& frame);
  void Handle(const ipc::TerminateSession& session, ipc::Frame& frame);
  void Handle(const ipc::Drain& drain, ipc::Frame& frame);
  void Handle(const ipc::Resume& resume, ipc::Frame& frame);
  void Handle(const ipc::Keep& keep, ipc::Frame& frame);
  void Handle(const ipc::Forget& forget, ipc::Frame& frame);
  void Handle(const ipc::Watch& watch, ipc::Frame& frame);
  void Handle(const ipc::MoveOut& move, ipc::Frame& frame);
  void Handle(const ipc::MoveIn& move, ipc::Frame& frame);
  void OnArrived(const std::shared_ptr<Session>& session);
  void Handle(const ipc::TakeOver& take, ipc::Frame& frame);
  template <typename T>
  void SendToBroker(std::uint32_t request, const T& message, std::vector<ipc::UniqueFd> fds = {});
  void FlushChannel();
  void LoseBroker(const std::string& why);

  // Operation without a broker.
  void WatchRegistrySocket();
  void AwaitBroker();
  void WatchAlone(bool was_deserted);
  void ReportRegistry();
  bool IsDeserted() const;

  // Admin requests.
  struct Question {
    std::uint32_t request = 0;
    ipc::Admin admin;
    std::unique_ptr<boost::asio::steady_timer> timer;
  };
  std::optional<Question> TakeQuestion(std::uint64_t token);
  void Park(const ipc::Admin& asked, std::uint64_t token);
  void Answer(const Question& question, const std::string& text);
  WorkerFacts Facts() const;
  std::vector<SessionFacts> SessionRows() const;

  void FindPlace();
  Session* Find(std::uint64_t session) const;
  void BeginDrain();
  // Ends the worker if disconnected clients leave work behind that never ends.
  void WatchDrain(bool was_deserted);
  void CheckDone();
  bool is_lost() const { return exit_code_ == kWorkerLostDevice; }
  bool ends_at_once() const { return is_lost() || exit_code_ == kWorkerStuck; }

  const WorkerOptions options_;
  ipc::UnboundedCalls endings_{kEndingsMax};
  StagingBudget staging_{options_.limits.staging_bytes, options_.limits.sessions_max,
                         options_.limits.memory_kept};
  StagingBudget images_{options_.limits.images_bytes, options_.limits.sessions_max,
                        options_.limits.memory_kept};
  StagingBudget kept_images_{options_.limits.images_bytes, options_.limits.sessions_max,
                             options_.limits.memory_kept};
  const std::shared_ptr<GraphBudget> graphs_ =
      std::make_shared<GraphBudget>(options_.limits.graphs_bytes, options_.limits.sessions_max);
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  ClientLog client_log_{::geteuid()};
  KernelOutputLog kernel_output_{client_log_};
  ipc::UniqueFd mail_eventfd_;
  Mailbox<ControlMessage> control_;
  std::unique_ptr<DeviceSignal> signal_;
  std::unique_ptr<SlowCalls> slow_calls_;
  std::unique_ptr<loader::ModuleReader> reader_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<DeviceThread> device_thread_;
  ThreadPriority control_priority_, device_priority_;
  // Processors for the device thread and for the thread that allocates rings and staging buffers.
  NumaPlace place_;
  std::unique_ptr<SessionEnvironment> environment_;
  boost::asio::io_context context_{1};  // Its handlers may own references to sessions.
  HomeExecutor home_{context_};
  std::map<std::uint64_t, std::shared_ptr<Session>> sessions_;
  // Sessions that arrive from other workers. They are not in sessions_ yet.
  std::set<std::uint64_t> arriving_;
  // Sessions that have moved to other workers and whose memory here is not free yet.
  std::set<std::uint64_t> departing_;
  // Destroyed sessions whose memory is not free yet.
  std::map<std::uint64_t, ipc::RegistrySession> leaving_;
  std::uint64_t last_session_ = 0;  // Highest session number so far.
  // The latest sessions that ended and their reasons. Reported to a new broker, because the old one
  // may have died before it learned of them.
  std::deque<ipc::RegistryEnd> ends_;
  struct KeptLease {
    ipc::Keep lease;
    ipc::UniqueFd connection;
  };
  std::map<std::uint32_t, KeptLease> kept_;  // Leases kept for the next broker, by endpoint.

  Descriptor channel_;
  std::uint64_t channel_number_ = 0;  // Changes with each channel; checked by late handlers.
  ipc::Outbox channel_outbox_{ipc::Outbox::Kind::kSeqpacket};
  bool is_channel_flushing_ = false;
  bool has_channel_ = true;
  // False from the loss of a broker until the next one has sent TakeOver.
  bool has_broker_ = true;
  bool is_draining_ = false;
  int exit_code_ = 0;

  std::unique_ptr<DriverOutput> driver_output_;  // Null if stdout does not belong to the driver.
  Descriptor mail_;
  DeviceWatch device_watch_;
  boost::asio::steady_timer watch_timer_;
  boost::asio::steady_timer cost_timer_;
  boost::asio::steady_timer gpu_timer_;
  device::GpuReadings gpu_;  // Latest readings.
  std::optional<ipc::RegistrySocket> registry_socket_;
  Descriptor registry_descriptor_;  // Duplicate of the registry socket's descriptor.
  boost::asio::steady_timer alone_timer_;
  boost::asio::steady_timer drain_timer_;
  boost::asio::steady_timer report_timer_;  // Writes the reports of client_log_.
  HashSeed cost_seed_{};
  std::vector<scheduler::KnownCost> costs_taken_;  // Parts of CostsTaken received so far.
  std::vector<ControlMessage> taken_;
  std::unique_ptr<TraceRequestHandler> trace_request_handler_;
  std::map<std::uint64_t, Question> questions_;
  std::uint64_t next_token_ = 1;
};

template <typename T>
void Worker::Impl::SendToBroker(std::uint32_t request, const T& message,
                                std::vector<ipc::UniqueFd> fds) {
  if (!has_broker_) return;
  const Status queued = channel_outbox_.Add(request, message, std::move(fds));
  if (!queued.ok()) return LoseBroker(queued.message());
  FlushChannel();
}

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_WORKER_IMPL_H_
