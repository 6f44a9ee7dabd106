// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/worker.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include <spdlog/spdlog.h>

#include "gpushared/check.h"

#include "scheduler/class_name.h"
#include "scheduler/policy_catalog.h"
#include "server/worker/control/session_calls.h"
#include "server/worker/control/worker_impl.h"

namespace gpushared::server {

Worker::Impl::~Impl() {
  // Some of these members do not exist if Run failed or was never called. If the device was lost,
  // the device thread still refers to the sessions, so it must end before them.
  device_thread_.reset();
  sessions_.clear();
  reader_.reset();  // The reader's last reports are dropped with context_.
  if (slow_calls_ != nullptr) slow_calls_->Finish();
  home_.Close();
}

Result<std::shared_ptr<device::SwapStore>> Worker::Impl::OpenStore() const {
  const WorkerSettings& settings = options_.settings;
  if (settings.overcommit_bytes == 0) return std::shared_ptr<device::SwapStore>();
  if (device_->info().can_move_memory) {
    return device::SwapStore::Create(
        {.bytes = settings.overcommit_bytes, .directory = settings.overcommit_directory});
  }
  spdlog::warn("{}: overcommit has no effect, this device does not move memory",
               device_->info().id);
  return std::shared_ptr<device::SwapStore>();
}

Result<std::unique_ptr<scheduler::Policy>> Worker::Impl::MakePolicy() const {
  const scheduler::PolicyEntry* const entry = scheduler::FindPolicy(options_.settings.policy);
  if (entry == nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("there is no policy '{}', only {}", options_.settings.policy,
                              scheduler::PolicyNames()));
  }
  if (const std::string_view why = scheduler::WhyInvalid(options_.settings.policy_options);
      !why.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("policy '{}' rejected: {}", options_.settings.policy, why));
  }
  return entry->make(options_.settings.policy_options);
}

std::shared_ptr<DeviceTotals> Worker::Impl::OpenTotals() const {
  Result<std::unique_ptr<DeviceTotals>> totals = DeviceTotals::Open(options_.totals_file);
  if (totals.ok()) return *std::move(totals);
  spdlog::warn("the device's totals do not include this worker: {}", totals.status().message());
  return nullptr;
}

// The thread that makes slow calls also allocates rings and staging buffers, so it is placed near
// the device as well.
void Worker::Impl::FindPlace() {
  place_ = FindNumaPlace(device_->info().pci_bus, options_.sysfs);
  Status tried;
  std::thread([&] { tried = KeepThisThreadAt(place_); }).join();
  if (!tried.ok()) place_ = {.node = {}, .processors = {}, .why_none = tried.message()};
  if (const std::string where = place_.ToString(); !where.empty()) {
    spdlog::info("{}: threads and shared memory: {}", device_->info().id, where);
  }
}

Status Worker::Impl::Open() {
  Check(options_.limits.sessions_max <= kSessionsLimit, "sessions_max fits its limit");
  Result<std::unique_ptr<scheduler::Policy>> policy = MakePolicy();
  if (!policy.ok()) return policy.status();
  // The reader is created before any client exists and before other threads are started.
  Result<std::unique_ptr<loader::ModuleReader>> reader = options_.make_reader();
  if (!reader.ok()) return reader.status();
  reader_ = *std::move(reader);
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
      [this] { signal_->RecordCompletions(); },
      [this](const device::KernelOutput& output) { kernel_output_.Write(output); },
      [this] { slow_calls_->AwaitQuiet(); });
  if (!device.ok()) return device.status();
  device_ = *std::move(device);
  FindPlace();

  DeviceThreadOptions thread_options;
  thread_options.lane = options_.lane_options;
  thread_options.slice = options_.settings.policy_options.slice;
  if (!options_.totals_file.empty()) thread_options.totals = OpenTotals();
  thread_options.kill_after = options_.kill_after;
  thread_options.kernels = {.limits = options_.settings.kernel_limits,
                            .ends_device = options_.settings.kernel_limits_given,
                            .leaves_within = options_.leaves_within};
  KeptCosts kept = ReadKeptCosts();
  cost_seed_ = kept.seed;
  thread_options.secret = cost_seed_;
  thread_options.known_costs = std::move(kept.costs);
  slow_calls_ = std::make_unique<SlowCalls>(
      options_.slow_calls, [place = place_, prefers = options_.prefers_threads] {
        (void)KeepThisThreadAt(place);  // Ignored, because FindPlace has already tried it.
        if (prefers) PreferThisThread();
      });
  thread_options.on_urgent_requests = [this](bool are_open) {
    slow_calls_->RecordUrgentRequests(are_open);
  };
  thread_options.is_realtime = options_.prefers_threads;
  thread_options.place = place_;
  const scheduler::LaneRules lane_rules = (*policy)->rules();
  thread_options.spin = options_.spin.value_or(SpinTimes::For(device_->info()));
  Result<std::shared_ptr<device::SwapStore>> store = OpenStore();
  if (!store.ok()) return store.status();
  if (*store != nullptr) {
    thread_options.residency = options_.residency;
    thread_options.residency->device_bytes = device_->info().memory_bytes;
    thread_options.residency->suspends_for_swap_in = !device_->info().checks_reach;
  }
  Result<std::unique_ptr<DeviceThread>> thread =
      DeviceThread::Create(*device_, *std::move(policy), *signal_, control_, thread_options);
  if (!thread.ok()) return thread.status();
  device_thread_ = *std::move(thread);
  environment_ = std::make_unique<SessionEnvironment>(SessionEnvironment{
      .context = context_,
      .slow_calls = *slow_calls_,
      .reader = *reader_,
      .device_thread = device_thread_->mailbox(),
      .device = *device_,
      .store = *store,
      .idle_after = options_.settings.idle_after,
      .lane_rules = lane_rules,
      .limits = options_.limits,
      .shares_by_uid = options_.settings.shares_by_uid,
      .staging = staging_,
      .images = images_,
      .kept_images = kept_images_,
      .graphs = graphs_,
      .home = home_,
      .endings = endings_,
      .log = client_log_,
      .kernel_output = kernel_output_,
      .generation = options_.generation,
      .spin = SpinTimes::For(device_->info()),
      .cost_seed = cost_seed_,
      .driver_compiles_for_all = options_.driver_compiles_for_all,
      .on_started =
          [this](std::uint64_t session) {
            SendToBroker(0, ipc::SessionStarted{.session = session});
          },
      .on_over =
          [this](std::uint64_t session) {
            if (const auto found = sessions_.find(session); found != sessions_.end()) {
              if (found->second->has_moved()) {
                departing_.insert(session);
              } else {
                leaving_.emplace(session, found->second->Row());
              }
              sessions_.erase(found);
            }
            client_log_.Forget(session);
            kernel_output_.Forget(session);
          },
      .on_memory_returned =
          [this](std::uint64_t session, const Status& why) {
            if (environment_->store != nullptr) device_thread_->mailbox().Post(MemoryFreed{});
            const auto row = leaving_.extract(session);
            if (row.empty()) {  // The session belongs to another worker.
              departing_.erase(session);
              return CheckDone();
            }
            const ipc::RegistrySession& left = row.mapped();
            if (ends_.size() == ipc::kRegistryEndsMax) ends_.pop_front();
            ends_.push_back({session, left.peer.pid, left.peer.uid, why});
            SendToBroker(0, ipc::SessionEnded{.session = session, .status = why});
            CheckDone();
          }});
  trace_request_handler_ = std::make_unique<TraceRequestHandler>(
      TraceRequestHandler::Surroundings{.context = context_,
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
  WatchRegistrySocket();
  WatchChannel();
  SendToBroker(
      0, ipc::Ready{.generation = options_.generation, .device = DescribeDevice(device_->info())});
  const device::DeviceInfo& info = device_->info();
  spdlog::info("{}: {}, policy {}", info.id, info.name, options_.settings.policy);
  if (options_.prefers_threads) {
    spdlog::info("{}: priority of the device thread: {}, of the control thread: {}", info.id,
                 device_priority_.ToString(), control_priority_.ToString());
  }
  for (const device::SmGrant& grant : info.sm_grants) {
    spdlog::info("{}: class {} has {} of {} multiprocessors, asked for {}", info.id,
                 scheduler::ClassName(static_cast<scheduler::SchedulingClass>(grant.of_class)),
                 grant.granted, info.multiprocessors, grant.asked);
  }
  WatchCosts();
  WatchGpu();
  WatchLog();
  WatchDevice();
  context_.run();
  // If the process ends at once, threads may never return, so they are not joined; see RunWorker.
  if (!ends_at_once()) {
    device_thread_->Stop();
    TakeMail();  // Takes the last messages of the device thread.
    slow_calls_->Finish();
    KeepCosts(device_thread_->TakeCosts());
  }
  return exit_code_;
}

Session* Worker::Impl::Find(std::uint64_t session) const {
  const auto found = sessions_.find(session);
  const bool is_here = found != sessions_.end() && !found->second->has_moved();
  return is_here ? found->second.get() : nullptr;
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
    // A timer that was cancelled after it expired still reports success.
    if (error || !is_draining_) return;
    const bool is_deserted = IsDeserted();
    if (!is_deserted || !was_deserted) return WatchDrain(is_deserted);
    const std::string why = fmt::format(
        "device {} ends with work that {} clients left on it: one of their kernels, or the driver, "
        "does not finish",
        device_->info().id, sessions_.size() + leaving_.size());
    spdlog::error("{}", why);
    exit_code_ = kWorkerStuck;
    SendToBroker(0, ipc::ChannelReply{.code = StatusCode::kTimedOut, .text = why});
    CheckDone();
  });
}

void Worker::Impl::CheckDone() {
  const bool is_over = is_draining_ && sessions_.empty() && leaving_.empty() && arriving_.empty() &&
                       departing_.empty();
  if (!is_over && !ends_at_once()) return;
  // The last messages (sessions that ended) are worth waiting for as long as a broker is connected.
  if (has_broker_ && !channel_outbox_.empty()) return;
  context_.stop();
}

Worker::Worker(WorkerOptions options, ipc::UniqueFd channel)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(channel))) {}

Worker::~Worker() = default;

int Worker::Run() { return impl_->Run(); }

int RunWorker(WorkerOptions options, ipc::UniqueFd channel) {
  // Ctrl-C and service managers signal all processes of a group at the same time. The broker
  // responds to such a signal by draining its workers, which must stay alive for that.
  //
  // SIGXFSZ is ignored so that a write beyond the file size limit makes the swap store report an
  // error instead of killing the worker.
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_IGN);
  options.takes_stdout = true;
  Worker worker(std::move(options), std::move(channel));
  const int code = worker.Run();
  if (code == kWorkerLostDevice || code == kWorkerStuck) {
    // No cleanup: the driver, and threads blocked in it, may be waiting for a kernel that never
    // ends.
    std::fflush(nullptr);
    ::_exit(code);
  }
  return code;
}

}  // namespace gpushared::server
