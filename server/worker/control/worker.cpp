// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/worker.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "gpushared/check.h"

#include "ipc/roster_socket.h"
#include "ipc/unbounded_calls.h"
#include "ipc/unix_socket.h"
#include "ipc/wire/channel.h"
#include "scheduler/class_name.h"
#include "scheduler/policy_catalog.h"
#include "server/worker/control/cost_file.h"
#include "server/worker/control/driver_output.h"
#include "server/worker/control/explain.h"
#include "server/worker/control/kernel_output.h"
#include "server/worker/control/session.h"
#include "server/worker/control/session_calls.h"
#include "server/worker/control/stats.h"
#include "server/worker/control/trace_desk.h"
#include "server/worker/device_thread/device_signal.h"
#include "server/worker/device_thread/device_thread.h"
#include "server/worker/device_thread/mailbox.h"
#include "server/worker/device_thread/messages.h"

namespace gpushared::server {

namespace {

// The device thread answers within a turn; an operator is told when it does not.
constexpr auto kStatsWaitMax = std::chrono::milliseconds(500);
// One for the socket and one for the memory of each session.
constexpr std::size_t kEndingsMax = std::size_t{2} * kSessionsLimit;

}  // namespace

// Runs the control thread and owns the two others. Members are destroyed last to first: the
// sessions before the threads that work for them, those before the device.
//
// Confined to the thread that calls Run, except control_, which all post to.
class Worker::Impl {
 public:
  Impl(WorkerOptions options, ipc::UniqueFd channel)
      : options_(std::move(options)),
        control_([this] { WakeControl(); }),
        channel_(context_, channel.Release()),
        mail_(context_),
        cost_timer_(context_),
        door_(context_),
        alone_timer_(context_),
        drain_timer_(context_),
        report_timer_(context_) {}
  ~Impl();

  int Run();

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  Status Open();
  Status StartLoader();
  Result<std::unique_ptr<scheduler::Policy>> MakePolicy() const;
  void WakeControl();
  // Where none are kept that can be used: nothing, and a seed of its own.
  KeptCosts ReadKeptCosts() const;
  // Null where the file cannot be used.
  std::shared_ptr<DeviceTotals> OpenTotals() const;
  void WatchCosts();
  void WatchLog();
  void KeepCosts(std::vector<scheduler::KnownCost> costs) const;

  // Mail of the device thread.
  void WatchMail();
  void TakeMail();
  void Handle(ClientDetached message);
  void Handle(ClientBroke message);
  void Handle(const Applied& message);
  void Handle(const ModuleReleased& message);
  void Handle(const StreamError& message);
  void Handle(const StatsTaken& message);
  void Handle(const RequestTold& message);
  void Handle(CostsTaken message);
  void Handle(TraceOver message);
  void Handle(const Overloaded& message);
  void Handle(const KernelsEnded& message);
  void Handle(const KernelNoted& message);
  void Handle(const DeviceLost& message);

  // The broker.
  void WatchChannel();
  void OnChannelReadable();
  void HandleFrame(ipc::Frame frame);
  template <typename T>
  void HandleAs(ipc::Frame& frame);
  void Handle(ipc::Attach attach, ipc::Frame& frame);
  Status CheckPlace(const Session& newcomer) const;
  void Handle(const ipc::AdminRequest& request, ipc::Frame& frame);
  void Handle(const ipc::SetSession& change, ipc::Frame& frame);
  void Handle(const ipc::TerminateSession& session, ipc::Frame& frame);
  void Handle(const ipc::Drain& drain, ipc::Frame& frame);
  void Handle(const ipc::Keep& keep, ipc::Frame& frame);
  void Handle(const ipc::Forget& forget, ipc::Frame& frame);
  void Handle(const ipc::Watch& watch, ipc::Frame& frame);
  void Handle(const ipc::TakeOver& take, ipc::Frame& frame);
  template <typename T>
  void Tell(std::uint32_t request, const T& message, std::vector<ipc::UniqueFd> fds = {});
  void FlushChannel();
  void LoseBroker(const std::string& why);

  // Without a broker.
  void OpenDoor();
  void WatchDoor();
  void WatchAlone(bool was_deserted);
  void TellRoster();
  bool IsDeserted() const;

  // Admin.
  struct Question {
    std::uint32_t request = 0;
    ipc::Admin admin;
    std::unique_ptr<boost::asio::steady_timer> timer;
  };
  std::optional<Question> TakeQuestion(std::uint64_t token);
  void Answer(const Question& question, const std::string& text);
  WorkerFacts Facts() const;
  std::vector<SessionFacts> SessionRows() const;

  Session* Find(std::uint64_t session) const;
  void BeginDrain();
  // Ends the worker when clients that have gone leave something behind that does not end.
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
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  ClientLog client_log_{::geteuid()};
  KernelOutputLog kernel_output_{client_log_};
  ipc::UniqueFd mail_eventfd_;
  Mailbox<ControlMessage> control_;
  std::unique_ptr<DeviceSignal> signal_;
  std::unique_ptr<SlowCalls> slow_calls_;
  std::unique_ptr<loader::ModuleLoader> loader_;  // Null: see WorkerOptions::loader_command.
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<DeviceThread> device_thread_;
  ThreadPriority control_priority_, device_priority_;
  std::unique_ptr<SessionEnvironment> environment_;
  boost::asio::io_context context_{1};  // Its handlers may hold sessions.
  HomePost home_{context_};
  std::map<std::uint64_t, std::shared_ptr<Session>> sessions_;
  // Sessions destroyed whose memory is not back yet.
  std::map<std::uint64_t, ipc::RosterSession> leaving_;
  std::uint64_t last_session_ = 0;   // The highest number so far.
  std::deque<ipc::RosterEnd> ends_;  // The latest ones, for a broker that did not hear of them.
  struct KeptLease {
    ipc::Keep lease;
    ipc::UniqueFd connection;
  };
  std::map<std::uint32_t, KeptLease> kept_;  // For the next broker, by entrance.

  Descriptor channel_;
  std::uint64_t channel_number_ = 0;  // Counts the channels that there were.
  ipc::Outbox channel_outbox_{ipc::Outbox::Kind::kSeqpacket};
  bool is_channel_flushing_ = false;
  bool has_channel_ = true;
  bool has_broker_ = true;  // Not yet, where one has not said what it wants.
  bool is_draining_ = false;
  int exit_code_ = 0;

  std::unique_ptr<DriverOutput> driver_output_;  // Null where stdout is not the driver's.
  Descriptor mail_;
  boost::asio::steady_timer cost_timer_;
  std::optional<ipc::RosterSocket> roster_socket_;
  Descriptor door_;  // A duplicate of it.
  boost::asio::steady_timer alone_timer_;
  boost::asio::steady_timer drain_timer_;
  boost::asio::steady_timer report_timer_;  // Writes the reports of client_log_.
  HashSeed cost_seed_{};
  std::vector<scheduler::KnownCost> costs_taken_;  // The parts so far.
  std::vector<ControlMessage> taken_;
  std::unique_ptr<TraceDesk> trace_desk_;
  std::map<std::uint64_t, Question> questions_;
  std::uint64_t next_token_ = 1;
};

Worker::Impl::~Impl() {
  // After a drain all of this is empty; when Run failed or never was called, it is not made. When
  // the device was lost, the device thread still knows the sessions: it ends before them.
  device_thread_.reset();
  sessions_.clear();
  loader_.reset();  // Its last reports are dropped with context_.
  if (slow_calls_ != nullptr) slow_calls_->Finish();
  home_.Close();
}

// ---- start and end

Status Worker::Impl::StartLoader() {
  if (options_.loader_command.empty()) return {};
  Result<std::unique_ptr<loader::ModuleLoader>> loader = loader::ModuleLoader::Create(
      {.command = options_.loader_command,
       .warn = [](const std::string& what) { spdlog::warn("{}", what); }});
  if (!loader.ok()) return loader.status();
  loader_ = *std::move(loader);
  return {};
}

Result<std::unique_ptr<scheduler::Policy>> Worker::Impl::MakePolicy() const {
  const scheduler::PolicyEntry* const entry = scheduler::FindPolicy(options_.policy);
  if (entry == nullptr) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("there is no policy '{}', only {}", options_.policy, scheduler::PolicyNames()));
  }
  if (const std::string_view why = scheduler::WhyInvalid(options_.policy_options); !why.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("policy '{}' refused: {}", options_.policy, why));
  }
  return entry->make(options_.policy_options);
}

std::shared_ptr<DeviceTotals> Worker::Impl::OpenTotals() const {
  Result<std::unique_ptr<DeviceTotals>> totals = DeviceTotals::Open(options_.totals_file);
  if (totals.ok()) return *std::move(totals);
  spdlog::warn("the device's totals lack what this worker does: {}", totals.status().message());
  return nullptr;
}

Status Worker::Impl::Open() {
  Check(options_.limits.sessions_max <= kSessionsLimit, "sessions_max fits its limit");
  Result<std::unique_ptr<scheduler::Policy>> policy = MakePolicy();
  if (!policy.ok()) return policy.status();
  // Before there is a client, and before there are other threads.
  if (Status started = StartLoader(); !started.ok()) return started;
  Result<ipc::UniqueFd> mail = ipc::MakeDoorbell();
  if (!mail.ok()) return mail.status();
  mail_eventfd_ = *std::move(mail);
  Result<ipc::UniqueFd> mail_copy = ipc::DuplicateFd(mail_eventfd_.get());
  if (!mail_copy.ok()) return mail_copy.status();
  mail_.assign(mail_copy->Release());
  Result<std::unique_ptr<DeviceSignal>> signal = DeviceSignal::Create();
  if (!signal.ok()) return signal.status();
  signal_ = *std::move(signal);
  if (options_.takes_stdout) {
    Result<std::unique_ptr<DriverOutput>> output =
        DriverOutput::TakeStdout(context_, kernel_output_);
    if (!output.ok()) return output.status();
    driver_output_ = *std::move(output);
  }
  Result<std::unique_ptr<device::Device>> device = options_.make_device(
      [this] { signal_->NoteCompletions(); },
      [this](const device::KernelOutput& output) { kernel_output_.Write(output); },
      [this] { slow_calls_->AwaitQuiet(); });
  if (!device.ok()) return device.status();
  device_ = *std::move(device);

  DeviceThreadOptions thread_options;
  thread_options.dispatcher.lane = options_.lane_options;
  thread_options.dispatcher.slice = options_.policy_options.slice;
  if (!options_.totals_file.empty()) thread_options.dispatcher.totals = OpenTotals();
  thread_options.dispatcher.kill_after = options_.kill_after;
  thread_options.dispatcher.kernels = {.limits = options_.kernel_limits,
                                       .ends_device = options_.limit_ends_device,
                                       .leaves_within = options_.leaves_within};
  KeptCosts kept = ReadKeptCosts();
  cost_seed_ = kept.seed;
  thread_options.known_costs = std::move(kept.costs);
  slow_calls_ =
      std::make_unique<SlowCalls>(options_.slow_calls, [prefers = options_.prefers_threads] {
        if (prefers) PreferThisThread();
      });
  thread_options.on_urgent_requests = [this](bool are_open) {
    slow_calls_->NoteUrgentRequests(are_open);
  };
  thread_options.is_realtime = options_.prefers_threads;
  const scheduler::LaneRules lane_rules = (*policy)->rules();
  thread_options.spin_budget = options_.spin_budget.value_or(DefaultSpinBudget(device_->info()));
  Result<std::unique_ptr<DeviceThread>> thread =
      DeviceThread::Create(*device_, *std::move(policy), *signal_, control_, thread_options);
  if (!thread.ok()) return thread.status();
  device_thread_ = *std::move(thread);
  environment_ = std::make_unique<SessionEnvironment>(SessionEnvironment{
      .context = context_,
      .slow_calls = *slow_calls_,
      .loader = loader_.get(),
      .device_thread = device_thread_->mailbox(),
      .device = *device_,
      .signal = *signal_,
      .lane_rules = lane_rules,
      .limits = options_.limits,
      .shares_by_uid = options_.shares_by_uid,
      .staging = staging_,
      .images = images_,
      .home = home_,
      .endings = endings_,
      .log = client_log_,
      .kernel_output = kernel_output_,
      .generation = options_.generation,
      .client_spin = DefaultSpinBudget(device_->info()),
      .cost_seed = cost_seed_,
      .driver_compiles_for_all = options_.driver_compiles_for_all,
      .on_started =
          [this](std::uint64_t session) { Tell(0, ipc::SessionStarted{.session = session}); },
      .on_over =
          [this](std::uint64_t session) {
            if (const Session* const found = Find(session)) {
              leaving_.emplace(session, found->Row());
              sessions_.erase(session);
            }
            client_log_.Forget(session);
            kernel_output_.Forget(session);
          },
      .on_memory_returned =
          [this](std::uint64_t session, const Status& why) {
            const ipc::RosterSession left = leaving_.extract(session).mapped();
            if (ends_.size() == ipc::kRosterEndsMax) ends_.pop_front();
            ends_.push_back({session, left.peer.pid, left.peer.uid, why});
            Tell(0, ipc::SessionEnded{.session = session, .status = why});
            CheckDone();
          }});
  trace_desk_ = std::make_unique<TraceDesk>(
      TraceDesk::Surroundings{.context = context_,
                              .slow_calls = *slow_calls_,
                              .device_thread = device_thread_->mailbox(),
                              .home = home_,
                              .endings = endings_,
                              .generation = options_.generation});
  return ipc::SetNonBlocking(channel_.native_handle(), true);
}

int Worker::Impl::Run() {
  if (Status status = Open(); !status.ok()) {
    spdlog::critical("the worker can't start: {}", status.message());
    return 1;
  }
  if (options_.prefers_threads) control_priority_ = PreferThisThread();
  device_priority_ = device_thread_->Start();
  WatchMail();
  OpenDoor();
  WatchChannel();
  Tell(0, ipc::Ready{.generation = options_.generation, .device = DescribeDevice(device_->info())});
  const device::DeviceInfo& info = device_->info();
  spdlog::info("{}: {}, policy {}", info.id, info.name, options_.policy);
  if (options_.prefers_threads) {
    spdlog::info(
        "{}: beside other threads of this machine the device thread is {}, the control "
        "thread {}",
        info.id, device_priority_.ToString(), control_priority_.ToString());
  }
  for (const device::SmGrant& grant : info.sm_grants) {
    spdlog::info("{}: class {} has {} of {} multiprocessors, asked for {}", info.id,
                 scheduler::ClassName(static_cast<scheduler::SchedulingClass>(grant.of_class)),
                 grant.granted, info.multiprocessors, grant.asked);
  }
  WatchCosts();
  WatchLog();
  context_.run();
  // Threads may never come back then, see RunWorker.
  if (!ends_at_once()) {
    device_thread_->Stop();
    TakeMail();  // Its last words.
    slow_calls_->Finish();
    KeepCosts(device_thread_->TakeCosts());
  }
  return exit_code_;
}

Session* Worker::Impl::Find(std::uint64_t session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second.get();
}

// ---- costs

KeptCosts Worker::Impl::ReadKeptCosts() const {
  KeptCosts nothing{.costs = {}, .seed = MakeHashSeed()};
  if (options_.cost_file.empty()) return nothing;
  Result<std::optional<KeptCosts>> kept =
      ReadCosts(options_.cost_file, CostConditions(device_->info()));
  if (!kept.ok()) {
    spdlog::warn("{}; beginning with nothing", kept.status().message());
    return nothing;
  }
  if (!kept->has_value()) return nothing;
  spdlog::info("{} costs of kernels are known from '{}'", (*kept)->costs.size(),
               options_.cost_file);
  return **std::move(kept);
}

void Worker::Impl::WatchCosts() {
  if (options_.cost_file.empty()) return;
  cost_timer_.expires_after(options_.keep_costs_every);
  cost_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    device_thread_->mailbox().Post(AskCosts{});
    WatchCosts();
  });
}

void Worker::Impl::WatchLog() {
  report_timer_.expires_after(LogRate::Limits().report_interval);
  report_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    client_log_.Report();
    WatchLog();
  });
}

void Worker::Impl::Handle(CostsTaken message) {
  costs_taken_.insert(costs_taken_.end(), message.costs.begin(), message.costs.end());
  if (!message.is_last) return;
  // No call of the driver: no request meets it.
  slow_calls_->Post({.is_urgent = true}, [this, costs = std::exchange(costs_taken_, {})]() mutable {
    KeepCosts(std::move(costs));
  });
}

void Worker::Impl::KeepCosts(std::vector<scheduler::KnownCost> costs) const {
  if (options_.cost_file.empty() || costs.empty()) return;
  scheduler::Predictor::SortByAge(costs);
  const Status status =
      WriteCosts(options_.cost_file, CostConditions(device_->info()), cost_seed_, costs);
  if (!status.ok()) spdlog::warn("{}", status.message());
}

void Worker::Impl::BeginDrain() {
  if (std::exchange(is_draining_, true)) return;
  spdlog::info("draining: no new clients, {} to go", sessions_.size());
  WatchDrain(false);
  CheckDone();
}

void Worker::Impl::WatchDrain(bool was_deserted) {
  drain_timer_.expires_after(options_.left_behind_max / 2);
  drain_timer_.async_wait([this, was_deserted](const boost::system::error_code& error) {
    if (error) return;
    const bool is_deserted = IsDeserted();
    if (!is_deserted || !was_deserted) return WatchDrain(is_deserted);
    const std::string why = fmt::format(
        "device {} ends with what {} clients left on it: a kernel of theirs, or the driver, does "
        "not "
        "come to an end",
        device_->info().id, sessions_.size() + leaving_.size());
    spdlog::error("{}", why);
    exit_code_ = kWorkerStuck;
    Tell(0, ipc::ChannelReply{.code = StatusCode::kTimedOut, .text = why});
    CheckDone();
  });
}

void Worker::Impl::CheckDone() {
  const bool is_over = is_draining_ && sessions_.empty() && leaving_.empty();
  if (!is_over && !ends_at_once()) return;
  // The last words (sessions that ended) are worth waiting for, as long as somebody listens.
  if (has_broker_ && !channel_outbox_.empty()) return;
  context_.stop();
}

// ---- mail of the device thread

void Worker::Impl::WakeControl() {
  const std::uint64_t one = 1;
  // A full counter is as good as a write: the eventfd is readable either way.
  [[maybe_unused]] const ssize_t written = ::write(mail_eventfd_.get(), &one, sizeof one);
}

void Worker::Impl::WatchMail() {
  mail_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(mail_.native_handle(), &count, sizeof count);
    TakeMail();
    WatchMail();
  });
}

void Worker::Impl::TakeMail() {
  control_.TakeAll(taken_);
  for (ControlMessage& message : taken_) {
    std::visit([&](auto& each) { Handle(std::move(each)); }, message);
  }
  taken_.clear();
}

void Worker::Impl::Handle(ClientDetached message) {
  if (Session* const session = Find(message.client->setup.session)) {
    session->OnDetached(std::move(message.client));
  }
}

void Worker::Impl::Handle(ClientBroke message) {
  if (Session* const session = Find(message.session)) session->End(std::move(message.status));
}

void Worker::Impl::Handle(const Applied& message) {
  if (Session* const session = Find(message.session)) session->OnApplied();
}

void Worker::Impl::Handle(const ModuleReleased& message) {
  if (Session* const session = Find(message.session)) session->OnModuleReleased(message.number);
}

void Worker::Impl::Handle(const StreamError& message) {
  if (Session* const session = Find(message.session)) session->OnStreamError(message);
}

std::optional<Worker::Impl::Question> Worker::Impl::TakeQuestion(std::uint64_t token) {
  const auto found = questions_.find(token);
  if (found == questions_.end()) return {};
  Question question = std::move(found->second);
  questions_.erase(found);
  return question;
}

void Worker::Impl::Handle(const StatsTaken& message) {
  const std::optional<Question> asked = TakeQuestion(message.token);
  if (!asked) return;  // Answered already: it took too long.
  const std::string text =
      asked->admin.verb == ipc::AdminVerb::kStatus
          ? StatusJson(device_->info(), Facts(), SessionRows(), message.snapshot)
          : ClientsJson(device_->info(), SessionRows(), message.snapshot);
  Answer(*asked, text);
}

void Worker::Impl::Handle(const RequestTold& message) {
  const std::optional<Question> asked = TakeQuestion(message.token);
  if (!asked) return;
  const RequestsTold& told = *message.told;
  const std::uint64_t client = asked->admin.client;
  if (told.report.number != 0) {
    return Answer(*asked, ExplainJson(client, told, SessionRows(), DeviceThread::Now()));
  }
  const std::string why =
      told.last == 0
          ? fmt::format("client {} has no request that has ended", client)
          : fmt::format("request {} of client {} is not known: it keeps the last {}, from {} to {}",
                        asked->admin.request, client, RequestHistory::kReportsMax, told.first,
                        told.last);
  Tell(asked->request, ipc::ChannelReply{.code = StatusCode::kNotFound, .text = why});
}

void Worker::Impl::Handle(TraceOver message) { trace_desk_->Free(std::move(message.writer)); }

void Worker::Impl::Handle(const Overloaded& message) {
  spdlog::warn(
      "{}: overloaded: not all latency promises can be kept; given up so far: {} of class high, "
      "{} of class normal, {} of class low",
      device_->info().id, message.given_up[0], message.given_up[1], message.given_up[2]);
}

void Worker::Impl::Handle(const KernelsEnded& message) {
  const std::string others =
      message.count > 1 ? fmt::format(" (and {} before it)", message.count - 1) : "";
  spdlog::warn("{}: {}{}", device_->info().id, message.latest, others);
}

void Worker::Impl::Handle(const KernelNoted& message) {
  client_log_.WriteOf(spdlog::level::warn, message.session,
                      fmt::format("{}: {}", device_->info().id, message.text));
}

void Worker::Impl::Answer(const Question& question, const std::string& text) {
  std::string_view rest = text;
  do {
    const std::string_view page = ipc::TakePage(rest);
    Tell(question.request,
         ipc::ChannelReply{
             .code = StatusCode::kOk, .text = std::string(page), .is_last = rest.empty()});
  } while (!rest.empty());
}

void Worker::Impl::Handle(const DeviceLost& message) {
  // The clients hear it from us, those who ask later from the broker, and what is left goes with
  // this process. The broker first: who comes back at once is to meet our successor.
  spdlog::critical("{}", message.status.message());
  exit_code_ = kWorkerLostDevice;
  Tell(0, ipc::ChannelReply{.code = StatusCode::kDeviceLost, .text = message.status.message()});
  for (const auto& [id, session] : sessions_) {
    const std::string text = message.status.message() + " [" + session->who() + "]";
    session->End({StatusCode::kDeviceLost, text});
    Tell(0, ipc::SessionEnded{.session = id, .status = {StatusCode::kDeviceLost, text}});
  }
  CheckDone();
}

// ---- the broker

void Worker::Impl::WatchChannel() {
  // A handler may come late, when there is another channel.
  channel_.async_wait(Descriptor::wait_read,
                      [this, number = channel_number_](const boost::system::error_code& error) {
                        if (!error && has_channel_ && number == channel_number_)
                          OnChannelReadable();
                      });
}

void Worker::Impl::OnChannelReadable() {
  Result<std::optional<ipc::Frame>> frame =
      ipc::ReceiveChannelMessage(channel_.native_handle(), ipc::ChannelToWorkerRules);
  if (!frame.ok()) return LoseBroker(frame.status().message());
  if (frame->has_value()) HandleFrame(std::move(**frame));
  if (has_channel_) WatchChannel();
}

void Worker::Impl::LoseBroker(const std::string& why) {
  if (!std::exchange(has_channel_, false)) return;
  has_broker_ = false;
  boost::system::error_code ignored;
  channel_.close(ignored);
  channel_outbox_ = ipc::Outbox(ipc::Outbox::Kind::kSeqpacket);
  is_channel_flushing_ = false;
  ++channel_number_;
  if (!roster_socket_) {
    spdlog::warn("the broker is gone ({}): finishing the sessions that are here", why);
    BeginDrain();
    return CheckDone();
  }
  spdlog::warn("the broker is gone ({}): {} sessions go on, waiting for another broker", why,
               sessions_.size());
  WatchDoor();
  WatchAlone(false);
  CheckDone();
}

// ---- without a broker

void Worker::Impl::OpenDoor() {
  if (options_.roster_folder.empty()) return;
  Result<ipc::RosterSocket> socket = ipc::RosterSocket::Open(options_.roster_folder);
  Result<ipc::UniqueFd> watched =
      socket.ok() ? ipc::DuplicateFd(socket->fd()) : Result<ipc::UniqueFd>(socket.status());
  if (!watched.ok()) {
    return spdlog::warn("this worker ends with its sessions if its broker dies: {}",
                        watched.status().message());
  }
  roster_socket_.emplace(*std::move(socket));
  door_.assign(watched->Release());
}

void Worker::Impl::WatchDoor() {
  door_.async_wait(Descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error || has_channel_) return;
    Result<std::optional<ipc::UniqueFd>> channel = roster_socket_->Accept();
    if (!channel.ok()) spdlog::warn("{}", channel.status().message());
    if (!channel.ok() || !channel->has_value()) return WatchDoor();
    channel_.assign((*channel)->Release());
    has_channel_ = true;
    WatchChannel();
  });
}

bool Worker::Impl::IsDeserted() const {
  return std::ranges::all_of(sessions_, [](const auto& each) { return each.second->has_ended(); });
}

void Worker::Impl::WatchAlone(bool was_deserted) {
  alone_timer_.expires_after(options_.alone_max);
  alone_timer_.async_wait([this, was_deserted](const boost::system::error_code& error) {
    if (error || has_broker_) return;
    const bool is_deserted = IsDeserted();
    if (!is_deserted || !was_deserted) return WatchAlone(is_deserted);
    spdlog::info("no broker and no clients any more");
    BeginDrain();
  });
}

void Worker::Impl::Handle(const ipc::TakeOver& take, ipc::Frame& frame) {
  if (take.version != ipc::kChannelVersion) {
    const std::string why = fmt::format(
        "take-over refused: the broker speaks version {} of the channel, this worker version {}; "
        "it ends with its last session",
        take.version, ipc::kChannelVersion);
    spdlog::error("{}", why);
    has_broker_ = true;
    Tell(frame.request, ipc::ChannelReply{.code = StatusCode::kVersionMismatch, .text = why});
    // No further one is waited for.
    boost::system::error_code ignored;
    door_.close(ignored);
    roster_socket_.reset();
    return LoseBroker(why);
  }
  has_broker_ = true;
  alone_timer_.cancel();
  drain_timer_.cancel();
  is_draining_ = ends_at_once();
  spdlog::info("a broker has taken over, with {} sessions", sessions_.size());
  TellRoster();
}

void Worker::Impl::TellRoster() {
  Tell(0, ipc::Roster{.generation = options_.generation,
                      .made_by = options_.made_by,
                      .last_session = last_session_,
                      .sessions = static_cast<std::uint32_t>(sessions_.size() + leaving_.size()),
                      .ends = static_cast<std::uint32_t>(ends_.size()),
                      .keeps = static_cast<std::uint32_t>(kept_.size())});
  for (const auto& [id, session] : sessions_) Tell(0, session->Row());
  for (const auto& [id, row] : leaving_) Tell(0, row);
  for (const ipc::RosterEnd& end : ends_) Tell(0, end);
  for (const auto& [entrance, kept] : kept_) {
    Result<ipc::UniqueFd> copy = ipc::DuplicateFd(kept.connection.get());
    if (!copy.ok()) return LoseBroker(copy.status().message());
    std::vector<ipc::UniqueFd> fds;
    fds.push_back(*std::move(copy));
    Tell(0, ipc::Kept{kept.lease}, std::move(fds));
  }
  Tell(0, ipc::Ready{.generation = options_.generation, .device = DescribeDevice(device_->info())});
}

template <typename T>
void Worker::Impl::HandleAs(ipc::Frame& frame) {
  Result<T> message = ipc::Decode<T>(frame.payload);
  if (!message.ok()) return LoseBroker(message.status().message());
  Handle(*std::move(message), frame);
}

void Worker::Impl::HandleFrame(ipc::Frame frame) {
  const auto type = static_cast<ipc::ChannelType>(frame.type);
  // A broker that finds us takes over first, and once.
  if (has_broker_ == (type == ipc::ChannelType::kTakeOver)) {
    return LoseBroker(fmt::format("it sent a {} message", ipc::ChannelTypeName(frame.type)));
  }
  switch (type) {
    case ipc::ChannelType::kTakeOver:
      return HandleAs<ipc::TakeOver>(frame);
    case ipc::ChannelType::kKeep:
      return HandleAs<ipc::Keep>(frame);
    case ipc::ChannelType::kForget:
      return HandleAs<ipc::Forget>(frame);
    case ipc::ChannelType::kWatch:
      return HandleAs<ipc::Watch>(frame);
    case ipc::ChannelType::kAttach:
      return HandleAs<ipc::Attach>(frame);
    case ipc::ChannelType::kAdminRequest:
      return HandleAs<ipc::AdminRequest>(frame);
    case ipc::ChannelType::kSetSession:
      return HandleAs<ipc::SetSession>(frame);
    case ipc::ChannelType::kTerminateSession:
      return HandleAs<ipc::TerminateSession>(frame);
    case ipc::ChannelType::kDrain:
      return HandleAs<ipc::Drain>(frame);
    default:
      return LoseBroker(fmt::format("it sent a {} message", ipc::ChannelTypeName(frame.type)));
  }
}

template <typename T>
void Worker::Impl::Tell(std::uint32_t request, const T& message, std::vector<ipc::UniqueFd> fds) {
  if (!has_broker_) return;
  const Status queued = channel_outbox_.Add(request, message, std::move(fds));
  if (!queued.ok()) return LoseBroker(queued.message());
  FlushChannel();
}

void Worker::Impl::FlushChannel() {
  if (!has_broker_ || is_channel_flushing_) return;
  const Result<bool> done = channel_outbox_.Flush(channel_.native_handle());
  if (!done.ok()) return LoseBroker(done.status().message());
  if (*done) return;
  is_channel_flushing_ = true;
  channel_.async_wait(Descriptor::wait_write,
                      [this, number = channel_number_](const boost::system::error_code& error) {
                        if (error || number != channel_number_) return;
                        is_channel_flushing_ = false;
                        FlushChannel();
                        CheckDone();
                      });
}

void Worker::Impl::Handle(ipc::Attach attach, ipc::Frame& frame) {
  const std::uint64_t id = attach.session;
  last_session_ = std::max(last_session_, id);
  client_log_.Know(id, {.uid = attach.peer.uid, .pid = attach.peer.pid});
  auto session = std::make_shared<Session>(*environment_, std::move(attach),
                                           std::move(frame.fds[0]), std::move(frame.fds[1]));
  // A number that comes twice is the broker's mistake; ours would be to mix up two clients.
  Check(sessions_.emplace(id, session).second, "the broker numbers sessions once");
  if (is_lost()) {
    return session->End(
        {StatusCode::kUnavailable,
         fmt::format("connection refused: device {} was lost just now, try again [{}]",
                     device_->info().id, session->who())});
  }
  if (is_draining_) {
    return session->End(
        {StatusCode::kUnavailable, fmt::format("connection refused: device {} is draining [{}]",
                                               device_->info().id, session->who())});
  }
  if (const Status place = CheckPlace(*session); !place.ok()) return session->End(place);
  session->Start();
}

Status Worker::Impl::CheckPlace(const Session& newcomer) const {
  const SessionLimits& limits = options_.limits;
  const auto all =
      std::ranges::count_if(sessions_, [](const auto& each) { return each.second->has_place(); });
  const auto ordinary = std::ranges::count_if(sessions_, [](const auto& each) {
    return each.second->has_place() && !each.second->MayUseReserve();
  });
  const std::uint32_t kept = std::min(limits.sessions_kept, limits.sessions_max / 2);
  if (all < limits.sessions_max &&
      (newcomer.MayUseReserve() || ordinary < limits.sessions_max - kept)) {
    return Status::Ok();
  }
  return {StatusCode::kLimitExceeded,
          fmt::format("connection refused: device {} has {} clients, allowed are {}, {} of these "
                      "for clients that may be of class high [{}]",
                      device_->info().id, all, limits.sessions_max, kept, newcomer.who())};
}

void Worker::Impl::Handle(const ipc::TerminateSession& session, ipc::Frame& frame) {
  Session* const found = Find(session.session);
  if (found == nullptr) {
    return Tell(frame.request,
                ipc::ChannelReply{.code = StatusCode::kNotFound,
                                  .text = fmt::format("client {} is not here", session.session)});
  }
  found->End({StatusCode::kDisconnected,
              fmt::format("session ended: {} [{}]", session.why, found->who())});
  Tell(frame.request, ipc::ChannelReply{.code = StatusCode::kOk, .text = "{}"});
}

void Worker::Impl::Handle(const ipc::SetSession& change, ipc::Frame& frame) {
  Session* const found = Find(change.session);
  if (found == nullptr) {
    return Tell(frame.request,
                ipc::ChannelReply{.code = StatusCode::kNotFound,
                                  .text = fmt::format("client {} is not here", change.session)});
  }
  // So what the wire lets through needs no second look.
  static_assert(ipc::kWeightMax == scheduler::kWeightMax);
  static_assert(ipc::kSharePerMilleMax == scheduler::kSharePerMilleMax);
  scheduler::ClientSpec spec = found->spec();
  if (change.client_class) {
    spec.scheduling_class = static_cast<scheduler::SchedulingClass>(*change.client_class);
  }
  if (change.weight) spec.weight = *change.weight;
  ClientCaps caps = found->caps();
  caps.own = change.max_share.value_or(caps.own);
  found->Change(spec, caps);
  Tell(frame.request, ipc::ChannelReply{.code = StatusCode::kOk, .text = "{}"});
}

void Worker::Impl::Handle(const ipc::Drain&, ipc::Frame&) { BeginDrain(); }

void Worker::Impl::Handle(const ipc::Keep& keep, ipc::Frame& frame) {
  if (kept_.size() >= ipc::kKeepsMax && !kept_.contains(keep.entrance)) {
    return LoseBroker(fmt::format("it keeps more than {} leases here", ipc::kKeepsMax));
  }
  kept_.insert_or_assign(keep.entrance, KeptLease{keep, std::move(frame.fds[0])});
}

void Worker::Impl::Handle(const ipc::Forget& forget, ipc::Frame&) { kept_.erase(forget.entrance); }

void Worker::Impl::Handle(const ipc::Watch& watch, ipc::Frame& frame) {
  trace_desk_->Add(watch, std::move(frame.fds[0]));
}

// ---- admin

WorkerFacts Worker::Impl::Facts() const {
  WorkerFacts facts;
  facts.generation = options_.generation;
  facts.pid = ::getpid();
  facts.policy = options_.policy;
  facts.policy_options = options_.policy_options;
  facts.age_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count();
  facts.is_draining = is_draining_;
  facts.device_thread = device_priority_.ToString();
  facts.control_thread = control_priority_.ToString();
  facts.executor_bytes = device_->executor_bytes();
  if (loader_ != nullptr) facts.loader = loader_->Facts();
  return facts;
}

std::vector<SessionFacts> Worker::Impl::SessionRows() const {
  std::vector<SessionFacts> rows;
  for (const auto& [id, session] : sessions_) rows.push_back(session->Facts());
  return rows;
}

void Worker::Impl::Handle(const ipc::AdminRequest& request, ipc::Frame& frame) {
  const ipc::AdminVerb verb = request.admin.verb;
  if (verb == ipc::AdminVerb::kDevices) {
    return Tell(frame.request, ipc::ChannelReply{.code = StatusCode::kOk,
                                                 .text = DeviceJson(device_->info(), Facts())});
  }
  const bool explains = verb == ipc::AdminVerb::kExplain;
  if (!explains && verb != ipc::AdminVerb::kStatus && verb != ipc::AdminVerb::kClients) {
    return Tell(frame.request, ipc::ChannelReply{.code = StatusCode::kUnsupported,
                                                 .text = "workers do not answer this request"});
  }
  const std::uint64_t token = next_token_++;
  auto timer = std::make_unique<boost::asio::steady_timer>(context_, kStatsWaitMax);
  timer->async_wait([this, token](const boost::system::error_code& error) {
    const auto found = questions_.find(token);
    if (error || found == questions_.end()) return;
    const std::uint32_t number = found->second.request;
    questions_.erase(found);
    Tell(number, ipc::ChannelReply{.code = StatusCode::kTimedOut,
                                   .text = "the device thread did not answer within 500 ms"});
  });
  questions_[token] = {frame.request, request.admin, std::move(timer)};
  if (explains) {
    device_thread_->mailbox().Post(AskRequest{token, request.admin.client, request.admin.request});
  } else {
    device_thread_->mailbox().Post(AskStats{token});
  }
}

// ---- Worker

Worker::Worker(WorkerOptions options, ipc::UniqueFd channel)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(channel))) {}

Worker::~Worker() = default;

int Worker::Run() { return impl_->Run(); }

int RunWorker(WorkerOptions options, ipc::UniqueFd channel) {
  // Ctrl-C and service managers signal all processes of a group at once. The broker answers
  // such a signal by draining its workers, which must live to do it.
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_IGN);
  options.takes_stdout = true;
  Worker worker(std::move(options), std::move(channel));
  const int code = worker.Run();
  if (code == kWorkerLostDevice || code == kWorkerStuck) {
    // Nothing of such a device is put in order: its driver, and threads that are inside it, may
    // wait for a kernel that never ends.
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}

}  // namespace gpushared::server
