// SPDX-License-Identifier: Apache-2.0
#include "server/worker/loop/device_thread.h"

#include <errno.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <future>
#include <span>
#include <utility>

#include "server/worker/state/failure_text.h"
#include "server/worker/state/save_client.h"

namespace gpushared::server {

namespace {

using std::chrono::nanoseconds;

// A ring that was empty for kQuietVisitsMax iterations in a row is visited only every
// kColdVisitTurns iterations.
constexpr std::uint32_t kQuietVisitsMax = 256;
constexpr std::uint32_t kColdVisitTurns = 32;

// A client with this many commands in the lane is also visited only every kColdVisitTurns
// iterations. It is better to leave commands in the ring, because records there are contiguous,
// whereas commands that were taken are spread over more memory than the caches hold. The interval
// is not longer, because an idle stream of the client may have new commands.
constexpr std::uint32_t kPlentyOffered = 32;

// Clients ring when they take completions, but the thread does not rely on it: while all records
// wait for space in completion rings, it checks again after this time.
constexpr nanoseconds kCreditPoll = std::chrono::milliseconds(1);

// A device that must be polled is polled continuously while the thread spins, and then between
// naps, each of 1/128 of the quiet time so far, so that a completion is noticed less than 1 % late.
// Naps shorter than the minimum cost more than they save.
constexpr int kNapDivisor = 128;
constexpr nanoseconds kNapMin = std::chrono::microseconds(5);
constexpr nanoseconds kNapMax = std::chrono::microseconds(50);
// Longest sleep while the turn of a gated client is on the device and no other client waits for its
// end.
constexpr nanoseconds kTurnPoll = std::chrono::microseconds(500);

// Minimum interval between two log lines about an ongoing overload, and between two about ended
// kernels.
constexpr nanoseconds kOverloadReportEvery = std::chrono::seconds(10);
constexpr nanoseconds kEndedReportEvery = std::chrono::seconds(1);

// Duration of a rest. If the thread rests because an urgent request is open and other clients flood
// their rings, the floods still get half of a core, and an urgent command waits at most this much
// longer.
constexpr nanoseconds kRest = RingVisits::kOthersPerTurn;
// A real-time thread rests after being busy for this long, so that other threads that were placed
// on its core, such as those of new clients, can run. While clients flood their rings, the rests
// take a tenth of the core's time.
constexpr nanoseconds kBusyMax = std::chrono::milliseconds(1);

scheduler::LaneOptions ForDevice(const DeviceThreadOptions& options,
                                 const device::DeviceInfo& info) {
  scheduler::LaneOptions lane = options.lane;
  lane.chains_stops = info.stopping_costs;
  lane.outlived_after = options.slice / 2;
  return lane;
}

}  // namespace

Result<std::unique_ptr<DeviceThread>> DeviceThread::Create(
    device::Device& device, std::unique_ptr<scheduler::Policy> policy, DeviceSignal& signal,
    Mailbox<ControlMessage>& control, const DeviceThreadOptions& options) {
  Result<Doorbells> doorbells = Doorbells::Create(signal.eventfd());
  if (!doorbells.ok()) return doorbells.status();
  DeviceThreadOptions with_totals = options;
  if (with_totals.totals == nullptr) {
    Result<std::unique_ptr<DeviceTotals>> totals = DeviceTotals::InMemory();
    if (!totals.ok()) return totals.status();
    with_totals.totals = *std::move(totals);
  }
  return std::unique_ptr<DeviceThread>(new DeviceThread(device, std::move(policy), signal, control,
                                                        with_totals, *std::move(doorbells)));
}

DeviceThread::DeviceThread(device::Device& device, std::unique_ptr<scheduler::Policy> policy,
                           DeviceSignal& signal, Mailbox<ControlMessage>& control,
                           const DeviceThreadOptions& options, Doorbells doorbells)
    : options_(options),
      device_(device),
      signal_(signal),
      control_(control),
      mailbox_([&signal] { signal.Wake(); }),
      doorbells_(std::move(doorbells)),
      sleep_(signal.page()),
      totals_(options.totals),
      lane_(std::move(policy), ForDevice(options, device.info())),
      tracer_(registry_),
      requests_(registry_, lane_, tracer_),
      limiter_(device, registry_, options.kernels),
      turns_(lane_.rules().never_preempts ? std::optional(options.slice) : std::nullopt),
      submitter_(device, lane_, registry_, requests_, limiter_, tracer_, turns_, options.slice,
                 options.secret),
      dispatcher_({.device = device,
                   .totals = *totals_,
                   .lane = lane_,
                   .registry = registry_,
                   .requests = requests_,
                   .limiter = limiter_,
                   .staging_watch = staging_watch_,
                   .offers = submitter_,
                   .turns = turns_,
                   .publisher = publisher_},
                  options.kill_after),
      pump_(device.info(), dispatcher_, requests_, publisher_) {
  hot_.reserve(kSessionsLimit);
  submitter_.costs().Learn(options_.known_costs);
  samples_reported_ = submitter_.costs().launch_samples();
  if (options.residency) {
    memory_.emplace(
        MemoryManager::Parts{device, lane_, registry_, requests_, publisher_, dispatcher_}, control,
        *options.residency);
  }
}

DeviceThread::~DeviceThread() { Stop(); }

void DeviceThread::Stop() {
  if (!thread_.joinable()) return;
  mailbox_.Post(StopThread{});
  thread_.join();
}

ThreadPriority DeviceThread::Start() {
  std::promise<ThreadPriority> begun;
  std::future<ThreadPriority> priority = begun.get_future();
  thread_ = std::thread([this, begun = std::move(begun)]() mutable {
    ::pthread_setname_np(::pthread_self(), "gpushared-dev");
    // Naps last at most 50 µs. The kernel may prolong them by the timer slack (default: 50 µs).
    ::prctl(PR_SET_TIMERSLACK, 1UL);
    // The result is ignored, because the caller that determined the place has already tried it.
    (void)KeepThisThreadAt(options_.place);
    const ThreadPriority got = options_.is_realtime ? MakeThisThreadRealtime() : ThreadPriority{};
    is_realtime_ = got.is_realtime;
    begun.set_value(got);
    Run();
  });
  return priority.get();
}

scheduler::TimePoint DeviceThread::Now() { return ToTimePoint(device::DeviceClock::now()); }

// ---- loop

void DeviceThread::Run() {
  // From now on the device wakes this thread for the next completion.
  dispatcher_.TakeCompletions(Now());
  while (!is_stopping_) {
    if (is_realtime_) KeepWithinBudget();
    if (Iterate()) {
      ++counters_.turns;
      quiet_since_.reset();
      if (LeavesItsCore()) Rest();
    } else if (SpinsOn()) {
      ++counters_.spins;
      ipc::SpinPause();
    } else {
      Sleep();
      // A nap does not end the quiet time.
      if (!MustPoll()) quiet_since_.reset();
    }
  }
  if (limiter_.has_ended()) control_.Post(limiter_.TakeEnded());
}

void DeviceThread::KeepWithinBudget() {
  const auto now = std::chrono::steady_clock::now();
  if (!realtime_budget_.IsDue(now)) [[likely]]
    return;
  switch (realtime_budget_.Update(now, TimesThisThreadBlocked())) {
    case RealtimeBudget::Change::kNone:
      return;
    case RealtimeBudget::Change::kOrdinary:
      PreferThisThread();
      return;
    case RealtimeBudget::Change::kRealtime:
      MakeThisThreadRealtime();
      return;
  }
}

bool DeviceThread::SpinsOn() {
  const bool polls = MustPoll();
  if (options_.spin.budget.count() == 0 && !polls) return false;
  const auto now = std::chrono::steady_clock::now();
  if (!quiet_since_) quiet_since_ = now;
  quiet_for_ = now - *quiet_since_;
  const bool is_high_near = submitter_.has_high_class_on_device() ||
                            (options_.spin.has_spare_cores && lane_.has_urgent_client());
  return quiet_for_ < options_.spin.OfDeviceThread(polls, is_high_near);
}

// A real-time thread that processes floods blocks all other threads on its core, such as one that
// is to execute an urgent command or those of new clients, until the kernel migrates them, which
// takes tens of milliseconds.
bool DeviceThread::LeavesItsCore() const {
  if (device_.info().spinning_pays) return false;
  if (visits_.was_cut() && urgent_requests_reported_) return true;
  return is_realtime_ && Now() - waited_at_ >= kBusyMax;
}

// Does not react to doorbells, because a client can write to its doorbell as often as it likes.
void DeviceThread::Rest() {
  timespec left{.tv_sec = 0, .tv_nsec = kRest.count()};
  while (::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
  waited_at_ = Now();
}

bool DeviceThread::MayHaveEnded() {
  return signal_.TakeCompletionsNote() || device_.must_be_polled() || !turns_.empty();
}

bool DeviceThread::MustPoll() const {
  if (device_.must_be_polled() || turns_.has_closed()) return true;
  return !turns_.empty() && std::ranges::any_of(registry_.present(), [](const ClientState* client) {
    return client->load.queued() > 0;
  });
}

bool DeviceThread::Iterate() {
  CountTurnStep();
  scheduler::TimePoint now = Now();
  submitter_.RecordHostSteal(now);
  bool was_busy = TakeMail(now);
  if (MayHaveEnded()) was_busy |= dispatcher_.TakeCompletions(now) > 0;
  was_busy |= VisitRings(now);
  // A swap may be waiting for commands that ended late in the last iteration.
  const bool ended_late = std::exchange(ended_late_, false);
  if (memory_) memory_->Review(was_busy || ended_late, now);
  // The clock is read again, because otherwise work that begins now would be charged for the time
  // since the iteration began.
  if (was_busy) now = Now();
  submitter_.Dispatch(now);
  // Commands that ended immediately or during this iteration are part of its publication.
  if (MayHaveEnded()) {
    now = Now();  // With the earlier time, work that began in this iteration would be free.
    if (dispatcher_.TakeCompletions(now) > 0) {
      was_busy = ended_late_ = true;
      submitter_.Dispatch(now);
    }
  }
  dispatcher_.KillOverdue(now);
  if (dispatcher_.loss() && !std::exchange(has_reported_loss_, true)) {
    control_.Post(DeviceLost{*dispatcher_.loss()});
  }
  publisher_.Publish([this](const ClientState* client) { return IsUrgent(*client); });
  for (const Publisher::Asleep& asleep : publisher_.asleep()) {
    waiter_wakes_.Wake(asleep.futex, asleep.count);
  }
  publisher_.asleep().clear();
  std::vector<KernelNoted>& noted = limiter_.noted();
  for (KernelNoted& note : noted) control_.Post(std::move(note));
  noted.clear();
  if (costs_reported_) {
    ReportCosts();
    was_busy = true;
  }
  if (barriers_ > 0) FinishBarriers();
  if (!releases_.empty()) FinishReleases(now);
  if (was_busy) {
    tracer_.OnTurn(now);
    CountTotals();
    ReportOverload(now);
  }
  const bool is_urgent = requests_.has_urgent();
  if (std::exchange(urgent_requests_reported_, is_urgent) != is_urgent) {
    options_.on_urgent_requests(is_urgent);
  }
  if (limiter_.has_ended()) ReportKernelsEnded(now);
  Report();
  CountTurnStep();
  return was_busy;
}

bool DeviceThread::VisitRings(scheduler::TimePoint now) {
  const bool visits_all = turns_to_cold_visit_ == 0;
  if (visits_all) {
    turns_to_cold_visit_ = kColdVisitTurns;
    for (ClientState* const client : registry_.present()) {
      if (!visits_of_[*client].is_hot && HasSomething(*client)) MakeHot(*client);
    }
  }
  --turns_to_cold_visit_;
  if (hot_.empty()) return false;
  const bool took = visits_.Turn(
      std::span<ClientState* const>(hot_),
      [this](const ClientState& client) { return IsUrgent(client); },
      [&](ClientState& client) { return VisitHot(client, visits_all, now); }, Now);
  std::erase_if(hot_, [this](const ClientState* client) {
    Visits& visits = visits_of_[*client];
    if (visits.quiet <= kQuietVisitsMax || client->scope.has_barrier()) return false;
    visits.is_hot = false;
    return true;
  });
  return took;
}

bool DeviceThread::VisitHot(ClientState& client, bool visits_all, scheduler::TimePoint now) {
  const bool has_plenty = client.load.queued() >= kPlentyOffered;
  if (has_plenty && !client.scope.has_barrier() && !visits_all) return false;
  const std::size_t taken = HasSomething(client) ? pump_.Visit(client, now) : 0;
  std::uint32_t& quiet = visits_of_[client].quiet;
  quiet = taken > 0 ? 0 : quiet + 1;
  if (taken > 0) doorbells_.OnTaken(client, taken);
  return taken > 0;
}

void DeviceThread::MakeHot(ClientState& client) {
  Visits& visits = visits_of_[client];
  visits.quiet = 0;
  if (std::exchange(visits.is_hot, true)) return;
  hot_.push_back(&client);
}

bool DeviceThread::HasSomething(ClientState& client) {
  return client.scope.awaits_barrier() || client.intake.HasRecord();
}

// ---- mail

bool DeviceThread::TakeMail(scheduler::TimePoint now) {
  if (!mailbox_.has_mail()) return false;
  mailbox_.TakeAll(mail_);
  for (DeviceMessage& message : mail_) {
    std::visit([&](auto& each) { Handle(std::move(each), now); }, message);
  }
  mail_.clear();
  return true;
}

void DeviceThread::Handle(StopThread, scheduler::TimePoint) { is_stopping_ = true; }

void DeviceThread::Handle(AttachClient message, scheduler::TimePoint now) {
  ClientState& client = dispatcher_.AddClient(std::move(message.client), now);
  client.scope.NumberModules(next_module_serial_);
  tracer_.OnClientAdded(client);
  staging_watch_.OnClientAdded(client);
  if (memory_) memory_->OnClientAdded(client);
  visits_of_.Begin(client);
  MakeHot(client);
  if (client.setup.page != nullptr) sleep_.Add(*client.setup.page, client.setup.rung_max);
  if (Status status = doorbells_.Add(client); !status.ok()) {
    dispatcher_.Break(client, std::move(status));
  }
}

void DeviceThread::Handle(DetachClient message, scheduler::TimePoint now) {
  ClientState* const client = registry_.Find(message.session);
  if (client == nullptr || client->life.is_leaving()) return;
  if (client->scope.has_barrier()) --barriers_;
  // Removed now, so that a client that continues to ring does not wake this thread. The session
  // closes the eventfd only after the client's state was handed back.
  doorbells_.Remove(*client);
  if (client->setup.page != nullptr) sleep_.Remove(*client->setup.page);
  if (memory_) memory_->OnClientLeaving(*client, now);
  dispatcher_.RemoveClient(*client, now);
}

void DeviceThread::Handle(ReleaseClient message, scheduler::TimePoint) {
  ClientState* const client = FindConnected(message.session);
  if (client == nullptr) return;
  client->life.SetPaused(true);
  releases_.push_back(message);
}

void DeviceThread::Handle(ResumeClient message, scheduler::TimePoint) {
  std::erase_if(releases_, [&](const auto& each) { return each.session == message.session; });
  ClientState* const client = FindConnected(message.session);
  if (client == nullptr) return;
  client->life.SetPaused(false);
  MakeHot(*client);
}

void DeviceThread::FinishReleases(scheduler::TimePoint now) {
  std::erase_if(releases_, [&](const ReleaseClient& each) { return TryRelease(each, now); });
}

bool DeviceThread::TryRelease(const ReleaseClient& release, scheduler::TimePoint now) {
  ClientState* const client = FindConnected(release.session);
  if (client == nullptr || client->life.is_broken()) return true;  // Its session ends.
  const auto keep = [&](Status why) {
    client->life.SetPaused(false);
    MakeHot(*client);
    control_.Post(ClientKept{release.session, std::move(why)});
    return true;
  };
  if (Status why = CheckMove(*client); !why.ok()) return keep(std::move(why));
  if (!client->streams.slab().empty() || client->intake.has_request()) {
    if (now < release.until) return false;
    return keep(
        {StatusCode::kTimedOut,
         fmt::format("client cannot be moved: its {} did not end in time [{}]",
                     client->intake.has_request() ? "request" : "commands", client->setup.who)});
  }
  SavedClient saved = Save(*client);
  saved.last_sleep = sleep_.last();
  saved.last_request = requests_.last_number(*client);
  saved.has_marked_requests = requests_.marks(*client);
  client->saved = std::make_unique<SavedClient>(std::move(saved));
  Handle(DetachClient{release.session}, now);
  return true;
}

void DeviceThread::Handle(AddModule message, scheduler::TimePoint) {
  ClientState* const client = registry_.Find(message.session);
  if (client == nullptr) return;
  client->scope.AddModule(
      message.number,
      {.module = message.module, .serial = next_module_serial_++, .identity = message.identity});
  control_.Post(Applied{message.session});
}

void DeviceThread::Handle(RemoveModule message, scheduler::TimePoint) {
  ClientState* const client = registry_.Find(message.session);
  if (client == nullptr || client->life.is_leaving()) return;
  client->scope.RemoveModuleAfter(message.number, client->intake.position());
  ++barriers_;
  MakeHot(*client);
}

void DeviceThread::Handle(AddStagingBuffer message, scheduler::TimePoint) {
  ClientState* const client = registry_.Find(message.session);
  if (client == nullptr) return;
  client->scope.AddStagingBuffer(message.number, message.bytes, message.fd);
  control_.Post(Applied{message.session});
}

void DeviceThread::Handle(SetMapped message, scheduler::TimePoint) {
  ClientState* const client = registry_.Find(message.session);
  if (client == nullptr || client->life.is_leaving()) return;
  if (message.bytes >= client->scope.mapped_bytes()) {
    client->scope.GrowTo(message.bytes);
    control_.Post(Applied{message.session});
    return;
  }
  client->scope.ShrinkAfter(message.bytes, client->intake.position());
  ++barriers_;
  MakeHot(*client);
}

void DeviceThread::Handle(AddMapping message, scheduler::TimePoint) {
  ClientState* const client = registry_.Find(message.session);
  if (client == nullptr) return;
  client->scope.AddMapping(message.address, message.bytes);
  control_.Post(Applied{message.session});
}

void DeviceThread::Handle(RemoveMapping message, scheduler::TimePoint) {
  ClientState* const client = registry_.Find(message.session);
  if (client == nullptr || client->life.is_leaving()) return;
  client->scope.RemoveMappingAfter(message.address, client->intake.position());
  ++barriers_;
  MakeHot(*client);
}

void DeviceThread::Handle(ChangeClient message, scheduler::TimePoint now) {
  if (ClientState* const client = registry_.Find(message.session)) {
    dispatcher_.ChangeClient(*client, message.spec, message.caps, now);
    if (memory_) memory_->OnClientChanged(*client, now);
  }
}

ClientState* DeviceThread::FindConnected(std::uint64_t session) const {
  ClientState* const client = registry_.Find(session);
  return client == nullptr || client->life.is_leaving() ? nullptr : client;
}

void DeviceThread::Handle(MemoryChanged message, scheduler::TimePoint now) {
  if (ClientState* const client = FindConnected(message.session)) {
    memory_->OnMemory(*client, message.use, now);
  }
}

void DeviceThread::Handle(MemoryFreed, scheduler::TimePoint) { memory_->OnFreed(); }

void DeviceThread::Handle(RequestMemory message, scheduler::TimePoint now) {
  if (const ClientState* const client = FindConnected(message.session)) {
    memory_->RequestMemory(*client, message.bytes, now);
  }
}

void DeviceThread::Handle(MemorySwapped message, scheduler::TimePoint now) {
  if (ClientState* const client = FindConnected(message.session)) {
    memory_->OnSwapped(*client, message, now);
  }
}

void DeviceThread::Handle(ParkClient message, scheduler::TimePoint now) {
  const ClientState* const client = FindConnected(message.session);
  if (client != nullptr) return control_.Post(memory_->Park(*client, message, now));
  control_.Post(ClientParked{.token = message.token,
                             .status = {StatusCode::kNotFound, "the client is leaving"}});
}

void DeviceThread::Handle(AskStreamError message, scheduler::TimePoint) {
  const ClientState* const client = registry_.Find(message.session);
  if (client == nullptr) return;
  const StreamState& stream = client->streams[message.stream];
  StreamError answer;
  answer.session = message.session;
  answer.stream = message.stream;
  if (stream.error != nullptr) {
    answer.sequence = stream.error_sequence;
    answer.status =
        Describe(*stream.error, *client, message.stream, stream.error_sequence, device_.info());
  }
  control_.Post(std::move(answer));
}

void DeviceThread::Handle(AskStats message, scheduler::TimePoint now) {
  requests_.RefreshShares(now);
  control_.Post(StatsTaken{message.token, TakeSnapshot(now)});
}

std::vector<scheduler::KnownCost> DeviceThread::TakeCosts() {
  const std::uint64_t samples = submitter_.costs().launch_samples();
  if (std::exchange(samples_reported_, samples) == samples) return {};
  return submitter_.costs().Known();
}

void DeviceThread::Handle(AskCosts, scheduler::TimePoint) {
  const std::uint64_t samples = submitter_.costs().launch_samples();
  if (costs_reported_ || samples == samples_reported_) return;
  costs_reported_ = 0;
  samples_in_report_ = samples;
}

void DeviceThread::Handle(SetTrace message, scheduler::TimePoint now) {
  std::unique_ptr<trace::Writer> before = tracer_.Replace(std::move(message.writer), now);
  if (before != nullptr) control_.Post(TraceOver{std::move(before)});
}

void DeviceThread::Handle(CountGpu message, scheduler::TimePoint now) {
  submitter_.CountRunning(now);
  dispatcher_.EndEnergyInterval(message.energy_mj, now);
  totals_->layout().xids.Add(message.xids);
}

// Reports one part at a time, because sorting thousands of costs would delay a request for longer
// than a preemption does.
void DeviceThread::ReportCosts() {
  CostsTaken part{.costs = submitter_.costs().KnownPart((*costs_reported_)++),
                  .is_last = *costs_reported_ == scheduler::Predictor::kKnownParts};
  if (part.is_last) {
    costs_reported_.reset();
    samples_reported_ = samples_in_report_;
  }
  control_.Post(std::move(part));
}

void DeviceThread::Handle(AskRequest message, scheduler::TimePoint now) {
  auto reports = std::make_unique<RequestReports>();
  if (const ClientState* const client = registry_.Find(message.session)) {
    const RequestHistory& history = requests_.GetHistory(*client);
    reports->first = history.first_number();
    reports->last = history.last_number();
    const RequestReport* const report =
        message.request == 0 ? history.Slowest() : history.Find(message.request);
    if (report != nullptr) reports->report = *report;
    // A request that is still open and has already taken longer than all completed ones is the
    // better answer.
    const auto open = requests_.ReportOfOpen(*client, message.request, now);
    if (open && (report == nullptr || open->latency() > report->latency())) reports->report = *open;
    const std::span<const trace::ExecutionRecord> executions =
        reports->report.waterfall.executions.items();
    for (std::size_t i = 0; i < executions.size(); ++i) {
      requests_.NameExecution(executions[i], reports->execution_names[i]);
    }
  }
  control_.Post(RequestAnswer{message.token, std::move(reports)});
}

std::uint64_t DeviceThread::GetMemory(const ClientState& client) const {
  // The driver manages a gated client's memory; the size that the client claims is limited to the
  // device's memory.
  return client.setup.is_gated ? std::min(client.gate.held_bytes(), device_.info().memory_bytes)
                               : client.scope.mapped_bytes();
}

ThreadSnapshot DeviceThread::TakeSnapshot(scheduler::TimePoint now) {
  submitter_.CountRunning(now);
  ThreadSnapshot snapshot;
  snapshot.thread = counters_;
  snapshot.thread.commands = dispatcher_.commands();
  snapshot.thread.wakes_of_clients = publisher_.wakes();
  snapshot.thread.busy_time = lane_.BusyUntil(now);
  snapshot.thread.host_steal = lane_.host_steal();
  snapshot.thread.targets = lane_.targets();
  snapshot.thread.predictions = submitter_.costs().accuracy();
  snapshot.thread.launch_bubble = submitter_.costs().LaunchBubble();
  snapshot.thread.lookahead = lane_.lookahead();
  snapshot.thread.gaps = requests_.gaps();
  if (memory_) snapshot.thread.memory_requests = memory_->request_stats();
  for (const ClientState* const client : registry_.present()) {
    const ClientActivity& activity = requests_.GetActivity(*client);
    snapshot.clients.push_back({.session = client->setup.session,
                                .spec = client->spec(),
                                .counters = client->counters,
                                .commands_pending = client->streams.slab().used(),
                                .commands_in_flight = client->load.on_device(),
                                .mapped_bytes = GetMemory(*client),
                                .is_ending = client->life.is_leaving(),
                                .activity = activity,
                                .waited = activity.WaitedUntil(now),
                                .starved_for = activity.StarvedFor(now)});
    snapshot.clients.back().counters.passes = client->gate.passes();
    if (memory_ && !client->life.is_leaving()) {
      snapshot.clients.back().memory = memory_->GetSnapshot(*client, now);
    }
  }
  return snapshot;
}

void DeviceThread::CountTotals() {
  DeviceTotals::Layout& totals = totals_->layout();
  const auto follow = [](Total& total, std::uint64_t& counted, std::uint64_t now) {
    total.Add(now - std::exchange(counted, now));
  };
  const auto ns = [](scheduler::Duration time) { return static_cast<std::uint64_t>(time.count()); };
  follow(totals.gap_ns, counted_.gap_ns, ns(requests_.gaps().wanted));
  follow(totals.gap_used_ns, counted_.gap_used_ns, ns(requests_.gaps().used));
  follow(totals.host_steal_ns, counted_.host_steal_ns, ns(lane_.host_steal()));
  const scheduler::TargetReport targets = lane_.targets();
  for (std::size_t each = 0; each < scheduler::kSchedulingClasses; ++each) {
    follow(totals.classes[each].targets_abandoned, counted_.abandoned[each],
           targets.abandoned[each]);
  }
}

// ---- reports to the control thread

void DeviceThread::FinishBarriers() {
  for (ClientState* const client : registry_.present()) {
    if (!client->scope.has_barrier() || !dispatcher_.TryPassBarrier(*client)) continue;
    --barriers_;
    // Released modules are reported before the answer, because after the answer the client may
    // reuse a module's number.
    ReportReleased();
    control_.Post(Applied{client->setup.session});
  }
}

void DeviceThread::Report() {
  for (Dispatcher::Broken& broken : dispatcher_.broken()) {
    control_.Post(ClientBroke{broken.session, std::move(broken.why)});
  }
  dispatcher_.broken().clear();
  for (const std::uint64_t session : staging_watch_.suspects()) {
    control_.Post(CheckStagingBuffers{session});
  }
  staging_watch_.suspects().clear();
  ReportReleased();
  while (std::unique_ptr<ClientState> departed = dispatcher_.TakeDeparted()) {
    std::erase(hot_, departed.get());
    control_.Post(ClientDetached{std::move(departed)});
  }
}

void DeviceThread::ReportOverload(scheduler::TimePoint now) {
  const scheduler::TargetReport targets = lane_.targets();
  if (targets.abandoned == abandoned_reported_) return;
  if (overload_reported_ && now - *overload_reported_ < kOverloadReportEvery) return;
  overload_reported_ = now;
  abandoned_reported_ = targets.abandoned;
  control_.Post(Overloaded{targets.abandoned});
}

// Rate-limited, because otherwise clients' kernels could fill the log.
void DeviceThread::ReportKernelsEnded(scheduler::TimePoint now) {
  if (kernels_ended_reported_ && now - *kernels_ended_reported_ < kEndedReportEvery) return;
  kernels_ended_reported_ = now;
  control_.Post(limiter_.TakeEnded());
}

void DeviceThread::ReportReleased() {
  for (const Dispatcher::Released& released : dispatcher_.released()) {
    control_.Post(ModuleReleased{released.session, released.module});
  }
  dispatcher_.released().clear();
}

// ---- sleep

bool DeviceThread::HasWork() {
  waits_for_credit_ = false;
  if (mailbox_.has_mail() || signal_.has_completions()) return true;
  for (ClientState* const client : registry_.present()) {
    if (!client->MayTake() || !client->intake.HasRecord()) continue;
    if (client->output.HasRoom()) return true;
    waits_for_credit_ = true;
  }
  return false;
}

void DeviceThread::Sleep() {
  turns_to_cold_visit_ = 0;  // The client that wakes this thread may not have been hot.
  std::optional<nanoseconds> timeout;
  std::optional<scheduler::TimePoint> at =
      scheduler::Earlier(dispatcher_.wake_at(), doorbells_.Choose(registry_.present(), Now()));
  if (memory_) at = scheduler::Earlier(at, memory_->wake_at());
  for (const ReleaseClient& each : releases_) at = scheduler::Earlier(at, each.until);
  if (limiter_.has_ended()) {
    const scheduler::TimePoint due = *kernels_ended_reported_ + kEndedReportEvery;
    at = std::min(at.value_or(due), due);
  }
  if (at) {
    timeout = *at - Now();
    if (timeout->count() <= 0) return;
  }
  if (!sleep_.Announce([&] { return HasWork(); })) return;
  if (waits_for_credit_) timeout = std::min(timeout.value_or(kCreditPoll), kCreditPoll);
  if (!turns_.empty()) timeout = std::min(timeout.value_or(kTurnPoll), kTurnPoll);
  if (MustPoll()) {
    const nanoseconds nap = std::clamp(quiet_for_ / kNapDivisor, kNapMin, kNapMax);
    timeout = std::min(timeout.value_or(nap), nap);
  }
  ++counters_.sleeps;
  doorbells_.Wait(timeout);
  sleep_.Cancel();
  waited_at_ = Now();
  doorbells_.CountRings(waited_at_);
}

}  // namespace gpushared::server
