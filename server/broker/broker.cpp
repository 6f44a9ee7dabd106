// SPDX-License-Identifier: Apache-2.0
#include "server/broker/broker.h"

#include <unistd.h>

#include <utility>

#include <spdlog/spdlog.h>

#include "server/broker/broker_parts.h"
#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

constexpr std::chrono::seconds kDrainReportInterval{10};

// Maximum number of sockets being closed and workers being reaped concurrently: over all users, and
// for one user.
constexpr std::size_t kUnboundedMax = 64, kUnboundedOfUserMax = 16;

}  // namespace

Broker::Broker(boost::asio::io_context& context, BrokerOptions options,
               std::shared_ptr<spdlog::logger> log)
    : context_(context),
      options_(std::move(options)),
      log_(std::move(log)),
      rated_log_(context, log_, LogRate(options_.own_uid, options_.log_limits)),
      rules_(options_.rules.access, options_.own_uid, options_.access_defaults),
      rights_(options_.rules.observers, options_.rules.operators, options_.own_uid),
      unbounded_(kUnboundedMax, kUnboundedOfUserMax),
      devices_(context, options_.devices),
      drain_report_(context),
      quiet_timer_(context) {}

Broker::~Broker() = default;

Status Broker::Start(std::vector<ipc::InheritedSocket> inherited) {
  endpoints_ = std::make_unique<EndpointTable>(
      context_,
      EndpointTable::Surroundings{
          .closing = unbounded_,
          .limits = options_.limits,
          .own_uid = options_.own_uid,
          .has_overcommit = options_.has_overcommit,
          .inherited = std::move(inherited),
          .on_arrival =
              [this](Arrival arrival) {
                KeepWithinBudget();
                OnArrival(std::move(arrival));
              },
          .on_rejection =
              [this](const Peer* who, const Status& why) {
                KeepWithinBudget();
                rated_log_.Write(spdlog::level::warn,
                                 who != nullptr ? *who : Peer{.uid = options_.own_uid},
                                 why.message());
              },
          .log = [this](const std::string& what) { log_->info("{}", what); },
          .end_sessions = [this](const Endpoint& endpoint,
                                 const std::string& why) { EndSessionsOf(endpoint, why); },
          .keep =
              [this](const ipc::Keep& lease, int connection) {
                for (DeviceEntry& device : devices_.entries()) {
                  if (device.CanBeQueried()) KeepAt(device, lease, connection);
                }
              },
          .forget =
              [this](std::uint32_t endpoint) {
                for (DeviceEntry& device : devices_.entries()) {
                  if (device.CanBeQueried()) (void)device.worker->Send(0, ipc::Forget{endpoint});
                }
              }});
  // All users may connect, because the access rules decide by the uid that the kernel reports. An
  // operator can exclude users altogether by restricting the directory of the socket.
  if (Status status = endpoints_->OpenMain(options_.socket_path); !status.ok()) return status;
  // The socket's lock is held from here on, so no other broker serves it.
  if (Status status = OpenCounts(); !status.ok()) return status;
  OpenRegistryDirectory();
  TakeOverSurvivors();
  if (Status status = TakeOver(options_.rules); !status.ok()) return status;
  endpoints_->DropOtherCounts();
  for (const std::string& path : endpoints_->CloseUnused()) {
    log_->warn("inherited socket {} matches no configured endpoint; closing it", path);
  }
  if (options_.read_rules) {
    reader_ = std::make_unique<BackgroundReader<NewRules>>(
        context_, options_.read_rules, "the configuration is being read, try again");
  }
  if (options_.check_successor && options_.execute_successor) {
    checker_ = std::make_unique<BackgroundReader<std::string>>(context_, options_.check_successor,
                                                               "another upgrade is in progress");
  }
  request_handler_ = std::make_unique<AdminRequestHandler>(
      context_,
      AdminRequestHandler::Surroundings{
          .devices = devices_,
          .unused_devices = options_.unused_devices,
          .session_log = session_log_,
          .endpoints = *endpoints_,
          .counts = *counts_,
          .totals_file = [this](const DeviceEntry& each) { return TotalsFile(each); },
          .log = [this](const std::string& what) { log_->info("{}", what); },
          .move = [this](const LiveSession& session, const std::string& to,
                         std::uint32_t request) { return StartMove(session, to, request); },
          .drain = [this] { BeginDrain(); },
          .phase = [this] { return phase_ == Phase::kServing ? "serving" : "draining"; },
          .version = options_.version,
          .policy = options_.policy,
          .socket = options_.socket_path,
          .upgrades = options_.upgrades,
          .upgrade_failure = upgrade_failure_,
          .new_clients = new_clients_,
          .wait_max = options_.admin_wait_max});
  for (DeviceEntry& device : devices_.entries()) {
    if (!device.worker) StartWorker(device);
  }
  worker_watch_ = std::make_unique<WorkerWatch>(context_, devices_, options_.watch, log_);
  if (options_.read_inventory) {
    watch_ = std::make_unique<InventoryWatch>(
        context_, options_.read_inventory, options_.inventory_interval,
        [this](const device::Inventory& inventory) { OnInventory(inventory); });
  }
  if (options_.prefers_thread) {
    // Processes and threads that the broker starts keep normal priority.
    log_->info("priority of the broker thread: {}", PreferThisThread().ToString());
  }
  log_->info("listening on {}, policy {}", options_.socket_path, options_.policy);
  return Status::Ok();
}

void Broker::KeepWithinBudget() {
  const auto now = std::chrono::steady_clock::now();
  if (!options_.prefers_thread || !preferred_budget_.IsDue(now)) return;
  switch (preferred_budget_.Update(now, TimeOfThisThread())) {
    case PreferredBudget::Change::kNone:
      return;
    case PreferredBudget::Change::kNormal:
      return MakeThisThreadNormal();
    case PreferredBudget::Change::kPreferred:
      PreferThisThread();
      return;
  }
}

void Broker::OnArrival(Arrival arrival) {
  switch (static_cast<ipc::MessageType>(arrival.frame.type)) {
    case ipc::MessageType::kHello:
      return OnHello(std::move(arrival));
    case ipc::MessageType::kWhy:
      return OnWhy(std::move(arrival));
    case ipc::MessageType::kListDevices:
      return OnListDevices(std::move(arrival));
    case ipc::MessageType::kAdmin:
      return OnAdmin(std::move(arrival));
    default:
      return RejectArrival(std::move(arrival),
                           {StatusCode::kProtocolViolation, "first message rejected: its type"});
  }
}

void Broker::EndSessionsOf(const Endpoint& endpoint, const std::string& why) {
  for (const std::uint64_t id : session_log_.Through(endpoint.number)) {
    const DeviceEntry* device = devices_.Find(session_log_.Find(id)->device);
    if (device->worker) (void)device->worker->Send(0, ipc::TerminateSession{id, why});
  }
}

void Broker::OnSessionLeft(DeviceEntry& device) {
  const bool drains = phase_ == Phase::kDraining || device.state == DeviceEntry::State::kDraining;
  if (drains && session_log_.On(device.id).empty()) ExpectEnd(device, options_.drain_grace);
  RenewIfEmpty(device);
}

void Broker::EndSession(std::uint64_t id, const Status& why) {
  const LiveSession* session = session_log_.Find(id);
  if (session == nullptr) return;
  if (why.ok()) {
    rated_log_.Write(spdlog::level::info, session->peer, session->Who() + " left");
  } else {
    rated_log_.Write(spdlog::level::warn, session->peer,
                     session->Who() + " ended: " + Escaped(why.ToString(), 1024));
  }
  const std::string device = session->device;
  session_log_.End(id, why);
  request_handler_->OnSessionEnded(id);
  OnSessionLeft(*devices_.Find(device));
  for (auto at = deferred_whys_.begin(); at != deferred_whys_.end();) {
    DeferredWhy& deferred = *at->second;
    const bool answered = deferred.session == id && AnswerWhy(deferred.arrival, id);
    at = answered ? deferred_whys_.erase(at) : std::next(at);
  }
}

void Broker::Stop(const std::string& because) {
  if (phase_ == Phase::kServing) {
    log_->info("draining: {}", because);
    drain_is_final_ = true;
    return BeginDrain();
  }
  if (phase_ != Phase::kDraining) return;
  log_->warn("stopping immediately: {}", because);
  phase_ = Phase::kStopping;
  StopNow();
}

void Broker::BeginDrain() {
  if (phase_ != Phase::kServing) return;
  phase_ = Phase::kDraining;
  if (is_pausing_) GiveUpUpgrade("the server is draining");
  if (options_.report_status) options_.report_status("draining");
  for (DeviceEntry& device : devices_.entries()) {
    device.CancelRestart();
    // A worker that is still opening its device receives the drain request once it is ready.
    if (device.state == DeviceEntry::State::kReady) (void)device.worker->Send(0, ipc::Drain{});
    if (session_log_.On(device.id).empty()) ExpectEnd(device, options_.drain_grace);
  }
  RetryDeferred();
  ReportDrain();
  FinishWhenDone();
}

Status Broker::TakeBackDrainOfServer() {
  if (phase_ == Phase::kServing) {
    return {StatusCode::kNotReady,
            "resume rejected: the server is not draining; name a device that is"};
  }
  if (drain_is_final_ || phase_ != Phase::kDraining) {
    return {StatusCode::kNotReady,
            "resume rejected: the server was told to end by a signal, which cannot be undone"};
  }
  phase_ = Phase::kServing;
  drain_report_.cancel();
  if (options_.report_status) options_.report_status("serving");
  for (DeviceEntry& device : devices_.entries()) {
    // A device that an operator has drained individually stays drained, and one that is missing
    // gets a worker when it is back.
    if (device.is_configured && !device.IsAway()) TakeBackDrain(device);
  }
  RetryDeferred();
  return Status::Ok();
}

void Broker::ReportDrain() {
  if (phase_ != Phase::kDraining) return;
  std::string names;
  std::size_t named = 0;
  for (const auto& [id, session] : session_log_.live()) {
    if (named++ == kNamedInReportMax) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + session.Who();
  }
  if (!names.empty()) {
    log_->info("draining: waiting for {} sessions: {}", session_log_.live().size(), names);
  }
  drain_report_.expires_after(kDrainReportInterval);
  drain_report_.async_wait([this](const boost::system::error_code& error) {
    if (!error) ReportDrain();
  });
}

void Broker::StopNow() {
  drain_report_.cancel();
  for (DeviceEntry& device : devices_.entries()) {
    device.CancelRestart();
    if (!device.worker) continue;
    for (const std::uint64_t id : session_log_.On(device.id)) {
      (void)device.worker->Send(0, ipc::TerminateSession{id, "the server stops"});
    }
    (void)device.worker->Send(0, ipc::Drain{});
    ExpectEnd(device, options_.stop_grace);
  }
  RetryDeferred();
  FinishWhenDone();
}

void Broker::FinishWhenDone() {
  if (phase_ == Phase::kServing || phase_ == Phase::kOver || devices_.HasWorkers()) return;
  phase_ = Phase::kOver;
  endpoints_->Stop();
  counts_->Remove();
  for (const DeviceEntry& device : devices_.entries()) {
    (void)::unlink(TotalsFile(device).c_str());
  }
  (void)::rmdir(options_.registry_directory.c_str());
  rated_log_.Stop();
  log_->info("all workers have exited; shutting down");
  context_.stop();
}

}  // namespace gpushared::server
