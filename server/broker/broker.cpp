// SPDX-License-Identifier: Apache-2.0
#include "server/broker/broker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "scheduler/class_name.h"
#include "server/config_values.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A worker that lived this long was not killed by what killed its predecessor.
constexpr std::chrono::seconds kDrainReportInterval{10};
constexpr std::size_t kParkedMax = 256;
// Sockets that are being closed, and workers reaped, at one time: of all users, and of one.
constexpr std::size_t kUnboundedMax = 64, kUnboundedOfUserMax = 16;
constexpr std::size_t kNamedInReportMax = 8;
// A worker that works is ended when the driver has said so often in a row that its GPU is gone.
constexpr std::uint32_t kTimesGoneMax = 2;

std::string ClassText(ipc::ClientClass client_class) {
  return std::string(scheduler::ClassName(static_cast<scheduler::SchedulingClass>(client_class)));
}

// Clients under one rule, or of one budget, share its cap. The text stays when the rules are read
// again, or by another broker; numbers of sessions, which have caps, too, are smaller.
std::uint64_t NumberOf(const std::string& label) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a.
  for (const char c : label) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash | std::uint64_t{1} << 63;
}

std::uint64_t BudgetNumberOf(const Entrance& entrance) {
  return NumberOf("budget '" + entrance.rule.budget + "'");
}

// Beside those of users, which are their uids.
std::uint64_t ShareGroupOf(const Entrance& entrance) {
  if (!entrance.rule.budget.empty()) return BudgetNumberOf(entrance);
  return std::uint64_t{entrance.number} << 32;
}

std::uint64_t CapNumberOf(const Entrance& entrance, const Allowance& rule) {
  return entrance.rule.budget.empty() ? NumberOf(rule.label) : BudgetNumberOf(entrance);
}

Status Draining() {
  return {StatusCode::kUnavailable, "client refused: the server is draining and takes no new ones"};
}

}  // namespace

// A client that was admitted, and waits for a device that is just starting, or who asked for the
// list of devices.
struct Broker::ParkedHello {
  ParkedHello(boost::asio::io_context& context, Arrival from, std::optional<ipc::Hello> said)
      : arrival(std::move(from)), hello(std::move(said)), timer(context) {}
  Arrival arrival;
  std::optional<ipc::Hello> hello;  // None: it asked for the list.
  boost::asio::steady_timer timer;
};

// A client that saw its connection end before the broker learnt why.
struct Broker::ParkedWhy {
  ParkedWhy(boost::asio::io_context& context, Arrival from, std::uint64_t id)
      : arrival(std::move(from)), session(id), timer(context) {}
  Arrival arrival;
  std::uint64_t session;
  boost::asio::steady_timer timer;
};

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
  entrances_ = std::make_unique<EntranceTable>(
      context_,
      EntranceTable::Surroundings{
          .closing = unbounded_,
          .limits = options_.limits,
          .own_uid = options_.own_uid,
          .inherited = std::move(inherited),
          .on_arrival = [this](Arrival arrival) { OnArrival(std::move(arrival)); },
          .on_refusal =
              [this](const Peer* who, const Status& why) {
                rated_log_.Write(spdlog::level::warn,
                                 who != nullptr ? *who : Peer{.uid = options_.own_uid},
                                 why.message());
              },
          .log = [this](const std::string& what) { log_->info("{}", what); },
          .end_sessions = [this](const Entrance& entrance,
                                 const std::string& why) { EndSessionsOf(entrance, why); },
          .keep =
              [this](const ipc::Keep& lease, int connection) {
                for (DeviceEntry& device : devices_.entries()) {
                  if (device.HasVoice()) KeepAt(device, lease, connection);
                }
              },
          .forget =
              [this](std::uint32_t entrance) {
                for (DeviceEntry& device : devices_.entries()) {
                  if (device.HasVoice()) (void)device.worker->Send(0, ipc::Forget{entrance});
                }
              }});
  // Everybody may knock: who may have what is decided by the access rules, which know the peer's
  // uid from the kernel. To keep users out altogether, put the socket into a closed folder.
  if (Status status = entrances_->OpenMain(options_.socket_path); !status.ok()) return status;
  // From here on no other broker serves our socket.
  if (Status status = OpenCounts(); !status.ok()) return status;
  OpenRosterFolder();
  TakeOverSurvivors();
  if (Status status = TakeOver(options_.rules); !status.ok()) return status;
  entrances_->DropOtherCounts();
  for (const std::string& path : entrances_->CloseUnused()) {
    log_->warn("socket {} came with the start, and is no entrance's: it is closed", path);
  }
  if (options_.read_rules) {
    reader_ = std::make_unique<AsideReader<LiveRules>>(
        context_, options_.read_rules, "the configuration is being read, try again");
  }
  if (options_.check_successor && options_.execute_successor) {
    checker_ = std::make_unique<AsideReader<std::string>>(context_, options_.check_successor,
                                                          "another one is under way");
  }
  desk_ = std::make_unique<AdminDesk>(
      context_, AdminDesk::Surroundings{
                    .devices = devices_,
                    .unused_devices = options_.unused_devices,
                    .ledger = ledger_,
                    .entrances = *entrances_,
                    .counts = *counts_,
                    .totals_file = [this](const DeviceEntry& each) { return TotalsFile(each); },
                    .log = [this](const std::string& what) { log_->info("{}", what); },
                    .drain = [this] { BeginDrain(); },
                    .phase = [this] { return phase_ == Phase::kServing ? "serving" : "draining"; },
                    .version = options_.version,
                    .policy = options_.policy,
                    .socket = options_.socket_path,
                    .upgrades = options_.upgrades,
                    .upgrade_failure = upgrade_failure_,
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
  log_->info("listening on {}, policy {}", options_.socket_path, options_.policy);
  return Status::Ok();
}

// ---- devices and their workers

void Broker::StartWorker(DeviceEntry& device) {
  ++device.generation;
  device.missing.clear();
  device.times_gone = 0;
  device.is_asked = device.is_silent = false;
  device.unanswered = 0;
  device.state = DeviceEntry::State::kStarting;
  device.started = steady_clock::now();
  device.is_outdated = false;
  WorkerProcess::Launch launch = options_.launch(device.selected, device.generation);
  if (has_rosters_) {
    launch.arguments.insert(launch.arguments.end(), {kRosterFolderOption, options_.roster_folder,
                                                     kMadeByOption, std::to_string(launch.made_by),
                                                     kTotalsFileOption, TotalsFile(device)});
  }
  Result<std::shared_ptr<WorkerProcess>> worker =
      WorkerProcess::Start(context_, launch, EventsOf(device));
  if (!worker.ok()) {
    log_->error("device {}: {}", device.id, worker.status().message());
    device.last_death = worker.status().message();
    return ScheduleRestart(device);
  }
  device.worker = std::move(*worker);
  log_->debug("device {}: worker pid {} generation {} started", device.id, device.worker->pid(),
              device.generation);
}

void Broker::OnWorkerMessage(DeviceEntry& device, ipc::Frame frame) {
  Status mistake;
  switch (static_cast<ipc::ChannelType>(frame.type)) {
    case ipc::ChannelType::kReady: {
      Result<ipc::Ready> ready = ipc::Decode<ipc::Ready>(frame.payload);
      if (ready.ok()) return OnWorkerReady(device, std::move(*ready));
      mistake = ready.status();
      break;
    }
    case ipc::ChannelType::kSessionStarted: {
      const Result<ipc::SessionStarted> started = ipc::Decode<ipc::SessionStarted>(frame.payload);
      mistake = started.status();
      if (!started.ok()) break;
      if (LiveSession* session = ledger_.Find(started->session); session != nullptr) {
        session->started = true;
        rated_log_.Write(spdlog::level::debug, session->peer,
                         session->Who() + " started on " + device.id);
      }
      return;
    }
    case ipc::ChannelType::kSessionEnded: {
      const Result<ipc::SessionEnded> ended = ipc::Decode<ipc::SessionEnded>(frame.payload);
      mistake = ended.status();
      if (!ended.ok()) break;
      return EndSession(ended->session, ended->status);
    }
    case ipc::ChannelType::kChannelReply: {
      Result<ipc::ChannelReply> reply = ipc::Decode<ipc::ChannelReply>(frame.payload);
      mistake = reply.status();
      if (!reply.ok()) break;
      // Request 0 is no request of ours: the worker says why it ends now.
      // To an order that nobody waits for, such as the end of a session whose lease is over.
      const bool is_answer = reply->code == StatusCode::kOk || reply->code == StatusCode::kNotFound;
      if (frame.request == 0 && is_answer) return;
      if (frame.request == 0) {
        device.last_words = Escaped(reply->text, 2048);
        device.state = DeviceEntry::State::kRestarting;
        return;
      }
      if (frame.request == WorkerWatch::kRequest) return worker_watch_->OnAnswer(device);
      return desk_->OnReply(device.id, frame.request, std::move(*reply));
    }
    default:
      mistake = {StatusCode::kProtocolViolation, "a message only brokers send"};
      break;
  }
  log_->error("device {}: worker pid {} sent nonsense and is killed: {}", device.id,
              device.worker ? device.worker->pid() : 0, mistake.message());
  if (device.worker) device.worker->Kill();
}

void Broker::OnWorkerReady(DeviceEntry& device, ipc::Ready ready) {
  device.description = std::move(ready.device);
  device.state = DeviceEntry::State::kReady;
  device.was_ready = true;
  log_->info("device {} is ready: {}, {} memory, worker pid {} generation {}", device.id,
             device.description.name, FormatBytes(device.description.memory_bytes),
             device.worker->pid(), device.generation);
  if (phase_ != Phase::kServing) {
    (void)device.worker->Send(0, ipc::Drain{});
    return;
  }
  entrances_->TellLeases(
      [&](const ipc::Keep& lease, int connection) { KeepAt(device, lease, connection); });
  RetryParked();
}

void Broker::OnWorkerExited(DeviceEntry& device, const std::string& how) {
  const pid_t pid = device.worker->pid();
  const bool was_opening = device.state == DeviceEntry::State::kStarting && !device.was_ready;
  device.last_death = "worker generation " + std::to_string(device.generation) + " (pid " +
                      std::to_string(pid) + ") " + how;
  if (!device.last_words.empty()) device.last_death += ": " + device.last_words;
  device.last_words.clear();
  const bool is_renewed = device.is_outdated && device.state == DeviceEntry::State::kRestarting;
  const bool is_leaving = device.state == DeviceEntry::State::kLeaving;
  const bool is_draining = device.state == DeviceEntry::State::kDraining;
  const bool expected = (phase_ != Phase::kServing || is_renewed || is_leaving || is_draining) &&
                        ledger_.On(device.id).empty();
  if (expected) {
    log_->debug("device {}: {}", device.id, device.last_death);
  } else {
    log_->error("device {}: {}", device.id, device.last_death);
  }
  LoseSessions(device);
  ipc::UniqueFd ended = device.worker->TakeEnded();
  // It removes its file itself, unless it is killed.
  (void)::unlink((options_.roster_folder + "/" + std::to_string(pid)).c_str());
  device.end_timer.cancel();
  device.worker.reset();
  desk_->OnWorkerGone(device.id);
  if (phase_ != Phase::kServing) {
    // Whoever inherits it reaps it, here and below: in the middle of that the broker could not end.
    device.state = DeviceEntry::State::kGone;
    return FinishWhenDone();
  }
  if (was_opening && device.missing.empty() && !device.is_newcomer) {
    // An operator who names a device that cannot be opened wants to know now.
    return GiveUpOn(device, {StatusCode::kUnavailable,
                             "device " + device.id + " could not be opened: " + device.last_death});
  }
  unbounded_.Post([ended = std::move(ended)]() mutable { WorkerProcess::Reap(std::move(ended)); },
                  options_.own_uid);
  if (is_leaving) {
    device.state = DeviceEntry::State::kGone;
    return;
  }
  if (is_draining) {
    device.state = DeviceEntry::State::kDrained;
    log_->info("device {} is drained: it has no worker until it is resumed", device.id);
    return;
  }
  if (expected) return StartWorker(device);
  if (watch_ && !device.selected.uuid.empty()) watch_->LookNow();
  if (!device.missing.empty()) return GoMissing(device, std::string(device.missing));
  if (was_opening) {
    device.comes_back = false;  // Or it would be tried for ever.
    return GoMissing(device, "it appeared and could not be opened: " + device.last_death);
  }
  ScheduleRestart(device);
}

void Broker::LoseSessions(DeviceEntry& device) {
  const std::vector<std::uint64_t> lost = ledger_.On(device.id);
  if (lost.empty()) return;
  std::string suspects;
  for (std::size_t i = 0; i < lost.size() && i < kNamedInReportMax; ++i) {
    suspects += (suspects.empty() ? "" : ", ") + std::to_string(lost[i]);
  }
  if (lost.size() > kNamedInReportMax) suspects += ", ...";
  const std::string who = lost.size() == 1
                              ? "session " + suspects + " was alone on it"
                              : std::to_string(lost.size()) + " sessions were on it: " + suspects;
  const Status why(StatusCode::kDeviceLost,
                   "device " + device.id + " lost: its " + device.last_death + "; " + who);
  for (const std::uint64_t id : lost) EndSession(id, why);
}

void Broker::ScheduleRestart(DeviceEntry& device) {
  device.state = DeviceEntry::State::kRestarting;
  const milliseconds delay = device.backoff.OnDeath(steady_clock::now() - device.started);
  log_->info("device {}: generation {} starts in {}", device.id, device.generation + 1,
             FormatDuration(delay));
  device.restart_timer.expires_after(delay);
  device.restart_timer.async_wait([this, &device](const boost::system::error_code& error) {
    // A timer that is cancelled after it ran out does not know of it.
    const bool waits = device.state == DeviceEntry::State::kRestarting;
    if (!error && waits && phase_ == Phase::kServing) StartWorker(device);
  });
}

void Broker::OnInventory(const device::Inventory& inventory) {
  if (phase_ != Phase::kServing) return;
  for (DeviceEntry& device : devices_.entries()) {
    const std::string& uuid = device.selected.uuid;
    if (!uuid.empty()) Compare(device, device::PresenceOf(uuid, inventory));
  }
  if (!inventory.unavailable.empty()) return;
  if (options_.takes_newcomers) TakeNewcomers(inventory);
  options_.unused_devices = device::UnusedDevices(
      inventory, devices_.Uuids(),
      options_.takes_newcomers ? "there are too many devices" : "not named by the device option");
}

void Broker::Compare(DeviceEntry& device, const device::Presence& presence) {
  using enum device::Presence::Kind;
  const bool is_gone = presence.kind == kGone;
  device.times_gone = is_gone ? device.times_gone + 1 : 0;
  switch (device.state) {
    case DeviceEntry::State::kStarting:
    case DeviceEntry::State::kReady:
    case DeviceEntry::State::kDraining:
      if (device.times_gone < kTimesGoneMax || !device.worker || !device.worker->usable()) return;
      device.missing = presence.why;
      device.last_words = "the device is gone: " + presence.why;
      device.worker->Kill();
      return;
    case DeviceEntry::State::kRestarting:
      if (presence.kind != kThere && !device.worker) GoMissing(device, presence.why);
      return;
    case DeviceEntry::State::kMissing:
      if (is_gone) {
        device.missing = presence.why;
        device.comes_back = true;
      }
      if (presence.kind == kThere && device.comes_back) {
        log_->info("device {} is back", device.id);
        StartWorker(device);
      }
      return;
    case DeviceEntry::State::kDrained:
      // What it was drained for has happened: an instance was destroyed, a GPU taken out or cut.
      if (device.times_gone < kTimesGoneMax) return;
      device.comes_back = true;
      return GoMissing(device, presence.why);
    case DeviceEntry::State::kLeaving:
    case DeviceEntry::State::kGone:
      return;
  }
}

void Broker::TakeNewcomers(const device::Inventory& inventory) {
  for (device::SelectedDevice& newcomer : device::Newcomers(inventory, devices_.Uuids())) {
    if (devices_.entries().size() >= device::kDevicesMax) return;
    DeviceEntry& device = devices_.Add(std::move(newcomer));
    device.is_newcomer = true;
    log_->info("device {} appeared: {}", device.id, device.selected.name);
    StartWorker(device);
  }
}

void Broker::GoMissing(DeviceEntry& device, const std::string& why) {
  device.restart_timer.cancel();
  device.state = DeviceEntry::State::kMissing;
  device.missing = why;
  log_->error("device {} is missing: {}", device.id, why);
  RetryParked();
}

void Broker::GiveUpOn(DeviceEntry& device, const Status& why) {
  log_->critical("{}", why.message());
  device.state = DeviceEntry::State::kGone;
  exit_code_ = 1;
  phase_ = Phase::kStopping;
  StopNow();
}

// ---- new connections

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
      return RefuseArrival(std::move(arrival),
                           {StatusCode::kProtocolViolation, "first message refused: its type"});
  }
}

void Broker::OnAdmin(Arrival arrival) {
  const Result<ipc::Admin> asked = ipc::Decode<ipc::Admin>(arrival.frame.payload);
  if (!asked.ok()) return RefuseArrival(std::move(arrival), asked.status());
  Status may = rights_.Check(arrival.peer, asked->verb);
  if (!arrival.entrance->IsMain()) {
    // The root of a container is no operator.
    may = {StatusCode::kPermissionDenied,
           "request '" + std::string(ipc::AdminVerbName(asked->verb)) +
               "' refused: " + arrival.entrance->rule.label + " is for clients; operators ask at " +
               options_.socket_path};
  }
  if (!may.ok()) {
    ++counts_->refused_requests(asked->verb);
    return RefuseArrival(std::move(arrival), may);
  }
  if (asked->verb == ipc::AdminVerb::kReload) return OnReload(std::move(arrival));
  if (asked->verb == ipc::AdminVerb::kUpgrade) return OnUpgrade(std::move(arrival));
  const bool is_of_device = !asked->terms.empty() || asked->verb == ipc::AdminVerb::kResume;
  if (asked->verb == ipc::AdminVerb::kDrain && is_of_device) {
    return OnDrainDevice(std::move(arrival), asked->terms);
  }
  if (asked->verb == ipc::AdminVerb::kResume) {
    return OnResumeDevice(std::move(arrival), asked->terms);
  }
  if (asked->verb == ipc::AdminVerb::kLease) return OnLease(std::move(arrival), asked->terms);
  const bool is_operator = rights_.MayOperate(arrival.peer);
  if (asked->verb == ipc::AdminVerb::kTrace) {
    return OnTrace(std::move(arrival), asked->terms, is_operator);
  }
  desk_->Serve(std::move(arrival), *asked, is_operator);
}

Status Broker::TakeOver(const LiveRules& rules) {
  if (Status status = entrances_->Replace(rules.entrances); !status.ok()) return status;
  entrances_->SetLeaseGrace(rules.lease_grace);
  rules_ = AccessRules(rules.access, options_.own_uid, options_.access_defaults);
  rights_ = AdminRights(rules.observers, rules.operators, options_.own_uid);
  return Status::Ok();
}

void Broker::Reload(ReloadDone done) {
  const auto refuse = [this, done](const Status& why) {
    const Status full(why.code(),
                      "reload refused, everything stays as it is: " + std::string(why.message()));
    log_->error("{}", full.message());
    done(full);
  };
  if (!reader_) {
    return refuse({StatusCode::kUnsupported, "this server has no configuration to read"});
  }
  reader_->ReadThen([this, done = std::move(done), refuse](const Result<LiveRules>& rules) {
    const Status taken = rules.ok() ? TakeOver(*rules) : rules.status();
    if (!taken.ok()) return refuse(taken);
    std::string later;
    for (const std::string& name : rules->need_restart) later += (later.empty() ? "" : ", ") + name;
    log_->info("configuration read again: {} access rules, {} entrances{}", rules->access.size(),
               rules->entrances.size(), later.empty() ? "" : "; a restart is needed for " + later);
    done(rules->need_restart);
  });
}

void Broker::OnReload(Arrival arrival) {
  log_->info("reload asked for by {}", arrival.peer.Who());
  // A std::function must be copyable.
  auto waiting = std::make_shared<Arrival>(std::move(arrival));
  Reload([this, waiting](const Result<std::vector<std::string>>& need_restart) {
    desk_->Answer(std::move(*waiting), need_restart.status(),
                  need_restart.ok() ? AdminDesk::ReloadJson(*need_restart) : "");
  });
}

void Broker::OnLease(Arrival arrival, const std::string& terms) {
  if (phase_ != Phase::kServing) return RefuseArrival(std::move(arrival), Draining());
  if (const Status leased = entrances_->Lease(terms, arrival); !leased.ok()) {
    RefuseArrival(std::move(arrival), leased);
  }
}

// The worker answers on the connection, and writes until that closes.
void Broker::OnTrace(Arrival arrival, const std::string& name, bool is_operator) {
  const Result<DeviceEntry*> named = devices_.Named(name);
  if (!named.ok()) return RefuseArrival(std::move(arrival), named.status());
  DeviceEntry& device = **named;
  if (!device.HasVoice()) {
    return RefuseArrival(
        std::move(arrival),
        {StatusCode::kNotReady, "trace refused: device " + device.id + " is " +
                                    std::string(StateName(device.state)) + ", nothing runs there"});
  }
  rated_log_.Write(spdlog::level::info, arrival.peer,
                   "trace of device " + device.id + " asked for by " + arrival.peer.Who());
  const ipc::Watch watch = {.uid = arrival.peer.uid,
                            .pid = arrival.peer.pid,
                            .request = arrival.frame.request,
                            .is_operator = is_operator};
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(arrival.socket.Release());
  if (const Status sent = device.worker->Send(0, watch, std::move(fds)); !sent.ok()) {
    log_->error("device {}: its worker does not read its channel: {}", device.id, sent.message());
  }
}

void Broker::OnDrainDevice(Arrival arrival, const std::string& name) {
  const Result<DeviceEntry*> named = devices_.Named(name);
  if (!named.ok()) return RefuseArrival(std::move(arrival), named.status());
  DeviceEntry& device = **named;
  const Status drained = phase_ == Phase::kServing ? DrainDevice(device) : Draining();
  if (!drained.ok()) return RefuseArrival(std::move(arrival), drained);
  log_->info("drain of device {} asked for by {}", device.id, arrival.peer.Who());
  const nlohmann::json answer = {{"device", device.id},
                                 {"state", StateName(device.state)},
                                 {"sessions", ledger_.On(device.id).size()}};
  desk_->Answer(std::move(arrival), Status::Ok(), answer.dump());
}

Status Broker::DrainDevice(DeviceEntry& device) {
  if (device.IsDrained()) return Status::Ok();
  if (device.state == DeviceEntry::State::kRestarting && !device.worker) {
    device.restart_timer.cancel();
    device.state = DeviceEntry::State::kDrained;
  } else if (device.state == DeviceEntry::State::kReady) {
    device.state = DeviceEntry::State::kDraining;
    (void)device.worker->Send(0, ipc::Drain{});
    if (ledger_.On(device.id).empty()) ExpectEnd(device, options_.drain_grace);
  } else {
    return {StatusCode::kNotReady, "drain refused: device " + device.id + " is " +
                                       std::string(StateName(device.state)) + ", not ready"};
  }
  RetryParked();
  return Status::Ok();
}

void Broker::OnResumeDevice(Arrival arrival, const std::string& name) {
  const Result<DeviceEntry*> named = devices_.Named(name);
  if (!named.ok()) return RefuseArrival(std::move(arrival), named.status());
  DeviceEntry& device = **named;
  const auto refuse = [&](const std::string& why) {
    RefuseArrival(std::move(arrival),
                  {StatusCode::kNotReady, "resume refused: device " + device.id + why});
  };
  if (phase_ != Phase::kServing) return RefuseArrival(std::move(arrival), Draining());
  if (device.state == DeviceEntry::State::kDraining) {
    return refuse(" is still draining, it has " + std::to_string(ledger_.On(device.id).size()) +
                  " sessions");
  }
  if (device.state != DeviceEntry::State::kDrained) {
    return refuse(" is " + std::string(StateName(device.state)) + ", not drained");
  }
  log_->info("device {} is resumed by {}", device.id, arrival.peer.Who());
  StartWorker(device);
  const nlohmann::json answer = {{"device", device.id}, {"state", StateName(device.state)}};
  desk_->Answer(std::move(arrival), Status::Ok(), answer.dump());
}

const Allowance& Broker::AllowanceOf(const Arrival& arrival) const {
  if (arrival.entrance->IsMain()) return rules_.RuleFor(arrival.peer);
  return arrival.entrance->rule;
}

Status Broker::CheckEntrance(const Arrival& arrival) {
  const Entrance& entrance = *arrival.entrance;
  if (!entrance.is_open) {
    return {StatusCode::kUnavailable, "client refused: its " + entrance.rule.label + " is closed"};
  }
  const std::vector<Subject>& who = entrance.rule.who;
  const bool may = who.empty() || std::ranges::any_of(who, [&](const Subject& each) {
                     return IsAbout(each, arrival.peer);
                   });
  if (may) return Status::Ok();
  return {StatusCode::kPermissionDenied,
          "client refused: " + entrance.rule.label + " is for " + SubjectsText(who)};
}

void Broker::EndSessionsOf(const Entrance& entrance, const std::string& why) {
  for (const std::uint64_t id : ledger_.Through(entrance.number)) {
    const DeviceEntry* device = devices_.Find(ledger_.Find(id)->device);
    if (device->worker) (void)device->worker->Send(0, ipc::TerminateSession{id, why});
  }
}

void Broker::RefuseArrival(Arrival arrival, const Status& why) {
  ++arrival.entrance->counts->refused[static_cast<std::size_t>(why.code())];
  // Every refusal says who asked; the access rules have said it already.
  const bool has_who = why.message().ends_with("[" + arrival.peer.Who() + "]");
  const Status full(why.code(),
                    has_who ? why.message() : why.message() + " [" + arrival.peer.Who() + "]");
  rated_log_.Write(spdlog::level::warn, arrival.peer, full.message());
  Refuse(std::move(arrival.socket), arrival.frame.request, full);
}

void Broker::OnHello(Arrival arrival) {
  const Result<ipc::Hello> hello = ipc::Decode<ipc::Hello>(arrival.frame.payload);
  if (!hello.ok()) return RefuseArrival(std::move(arrival), hello.status());
  Admit(std::move(arrival), *hello, /*may_wait=*/true);
}

void Broker::Admit(Arrival arrival, const ipc::Hello& hello, bool may_wait) {
  if (phase_ != Phase::kServing) return RefuseArrival(std::move(arrival), Draining());
  if (const Status may = CheckEntrance(arrival); !may.ok()) {
    return RefuseArrival(std::move(arrival), may);
  }
  // A client that was told just now that its device is lost comes back for the next worker: that
  // one's last words are here already, if unread.
  for (const DeviceEntry& each : devices_.entries()) {
    if (each.worker) each.worker->TakeMessages();
  }
  const Result<DeviceEntry*> chosen =
      devices_.Choose(hello.device, ledger_, arrival.entrance->rule.devices);
  if (!chosen.ok()) return RefuseArrival(std::move(arrival), chosen.status());
  DeviceEntry& device = **chosen;
  if (device.IsAway()) {
    const std::string why = device.IsDrained() ? " takes no new clients: an operator drains it"
                                               : " is missing: " + device.missing;
    return RefuseArrival(std::move(arrival),
                         {StatusCode::kUnavailable, "client refused: device " + device.id + why});
  }
  AccessRequest asked = {.scheduling_class = std::nullopt,
                         .weight = hello.weight,
                         .max_share = hello.max_share,
                         .memory_bytes = hello.memory_bytes,
                         .latency_promise = std::chrono::nanoseconds(hello.latency_promise_ns)};
  if (hello.client_class) {
    asked.scheduling_class = static_cast<scheduler::SchedulingClass>(*hello.client_class);
  }
  const Allowance& allowance = AllowanceOf(arrival);
  if (!device.TakesClients()) {
    // A request that no worker would change is refused at once.
    const Status share = rules_.CheckShare(allowance, asked, arrival.peer.Who());
    if (!share.ok()) return RefuseArrival(std::move(arrival), share);
    const bool will_come = device.state != DeviceEntry::State::kLeaving;
    if (will_come && may_wait && MayPark(arrival)) return Park(std::move(arrival), hello);
    const Status why(StatusCode::kUnavailable,
                     "client refused: device " + device.id + " is " +
                         (device.is_silent ? "silent" : std::string(StateName(device.state))) +
                         ", try again later");
    return RefuseArrival(std::move(arrival), why);
  }
  const bool is_main = arrival.entrance->IsMain();
  const Holdings held =
      is_main ? ledger_.HeldBy(arrival.peer.uid, device.id)
              : ledger_.HeldThrough(entrances_->SharersWith(*arrival.entrance), device.id);
  const std::uint64_t device_bytes = device.description.memory_bytes;
  const Result<std::uint64_t> quota =
      is_main ? rules_.Admit(arrival.peer, asked, held, device_bytes)
              : rules_.AdmitUnder(allowance, {.who = arrival.peer.Who(), .holder = allowance.label},
                                  asked, held, device_bytes);
  if (!quota.ok()) return RefuseArrival(std::move(arrival), quota.status());
  HandOver(std::move(arrival), hello, device, *quota);
}

void Broker::OnListDevices(Arrival arrival) {
  const Result<ipc::ListDevices> asked = ipc::Decode<ipc::ListDevices>(arrival.frame.payload);
  if (!asked.ok()) return RefuseArrival(std::move(arrival), asked.status());
  if (phase_ != Phase::kServing) return RefuseArrival(std::move(arrival), Draining());
  if (const Status may = CheckEntrance(arrival); !may.ok()) {
    return RefuseArrival(std::move(arrival), may);
  }
  if (!AreDevicesKnown() && MayPark(arrival)) return Park(std::move(arrival), std::nullopt);
  TellDevices(std::move(arrival));
}

// Whether each device has been described, or will not be.
bool Broker::AreDevicesKnown() const {
  return std::ranges::none_of(devices_.entries(), [](const DeviceEntry& device) {
    return device.state == DeviceEntry::State::kStarting && !device.was_ready;
  });
}

void Broker::TellDevices(Arrival arrival) {
  ipc::DeviceList list;
  for (const DeviceEntry& device : devices_.entries()) {
    const bool is_here = !device.IsAway() && device.state != DeviceEntry::State::kLeaving &&
                         device.state != DeviceEntry::State::kGone && device.was_ready &&
                         devices_.IsAmong(device, arrival.entrance->rule.devices);
    if (is_here) list.devices.push_back(device.description);
  }
  ipc::Outbox outbox;
  if (!outbox.Add(arrival.frame.request, list).ok()) return;
  // What the socket does not take at once is lost with it: nobody waits for a client.
  (void)outbox.Flush(arrival.socket.get());
}

bool Broker::MayPark(const Arrival& arrival) const {
  const auto of_uid = std::ranges::count_if(parked_hellos_, [&](const auto& parked) {
    return parked.second->arrival.peer.uid == arrival.peer.uid;
  });
  const bool has_place =
      parked_hellos_.size() < kParkedMax || IsTrusted(arrival.peer.uid, options_.own_uid);
  return has_place && static_cast<std::size_t>(of_uid) < options_.limits.waiting_per_uid_max;
}

void Broker::HandOver(Arrival arrival, const ipc::Hello& hello, DeviceEntry& device,
                      std::uint64_t quota_bytes) {
  const Allowance& rule = AllowanceOf(arrival);
  const Entrance& entrance = *arrival.entrance;
  const device::Isolation isolation =
      entrance.IsMain() ? rules_.IsolationOf(arrival.peer) : rules_.IsolationUnder(rule);
  LiveSession session = {
      .id = ledger_.NextId(),
      .peer = arrival.peer,
      .name = hello.name,
      .client_class = hello.client_class.value_or(static_cast<ipc::ClientClass>(rule.UsualClass())),
      .weight = hello.weight.value_or(rule.usual_weight),
      .entrance = entrance.number,
      .entrance_name = entrance.rule.name,
      .device = device.id,
      .generation = device.generation,
      .quota_bytes = quota_bytes,
      .isolation = isolation,
      .since = steady_clock::now()};
  const ipc::Attach attach = {
      .session = session.id,
      .peer = {.pid = arrival.peer.pid, .uid = arrival.peer.uid, .gid = arrival.peer.gid},
      .request = arrival.frame.request,
      .quota_bytes = quota_bytes,
      .share_group = entrance.IsMain() ? arrival.peer.uid : ShareGroupOf(entrance),
      .rule_cap = CapNumberOf(entrance, rule),
      .rule_share = rule.max_share,
      .max_share = hello.max_share.value_or(rules_.ClientShareUnder(rule)),
      .weight_max = rule.max_weight,
      .weight = session.weight,
      .client_class = session.client_class,
      .allowed_class = static_cast<ipc::ClientClass>(rule.highest_class),
      .isolation = static_cast<std::uint8_t>(isolation),
      .is_trusted = entrance.IsMain() && IsTrusted(arrival.peer.uid, options_.own_uid),
      .entrance = entrance.number,
      .entrance_name = entrance.rule.name,
      .hello = hello};
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(arrival.socket.Release());
  fds.push_back(std::move(arrival.pidfd));
  rated_log_.Write(
      spdlog::level::info, session.peer,
      fmt::format("{} goes to {}: entrance {}, class {}, weight {}, quota {}, memory {}",
                  session.Who(), device.id, session.entrance_name, ClassText(session.client_class),
                  session.weight, FormatBytes(quota_bytes), IsolationName(isolation)));
  const std::uint64_t id = session.id;
  ++arrival.entrance->counts->admitted;
  ledger_.Add(std::move(session));
  // The outbox owns the descriptors now and closes them once they are sent; from then on EOF and
  // death reach the worker alone.
  if (const Status sent = device.worker->Send(0, attach, std::move(fds)); !sent.ok()) {
    log_->error("device {}: its worker does not read its channel and is killed: {}", device.id,
                sent.message());
    EndSession(
        id, {StatusCode::kUnavailable, "client refused: device " + device.id + " does not answer"});
    device.worker->Kill();
  }
}

void Broker::Park(Arrival arrival, std::optional<ipc::Hello> hello) {
  rated_log_.Write(spdlog::level::debug, arrival.peer,
                   "hello of " + arrival.peer.Who() + " waits for its device");
  const std::uint64_t number = ++last_parked_;
  auto parked = std::make_unique<ParkedHello>(context_, std::move(arrival), std::move(hello));
  parked->timer.expires_after(options_.patience);
  // By number: when the timer's handler runs, the hello may have been admitted.
  parked->timer.async_wait([this, number](const boost::system::error_code& error) {
    if (!error) AdmitParked(number);
  });
  parked_hellos_.emplace(number, std::move(parked));
}

void Broker::AdmitParked(std::uint64_t number) {
  const auto found = parked_hellos_.find(number);
  if (found == parked_hellos_.end()) return;
  const std::unique_ptr<ParkedHello> parked = std::move(found->second);
  parked_hellos_.erase(found);
  if (!parked->hello) return TellDevices(std::move(parked->arrival));
  Admit(std::move(parked->arrival), *parked->hello, /*may_wait=*/false);
}

// After a device became ready, went missing or was drained, or the server began to drain.
void Broker::RetryParked() {
  std::vector<std::uint64_t> now;
  for (const auto& [number, parked] : parked_hellos_) {
    if (!parked->hello) {
      if (phase_ != Phase::kServing || AreDevicesKnown()) now.push_back(number);
      continue;
    }
    const Result<DeviceEntry*> device =
        devices_.Choose(parked->hello->device, ledger_, parked->arrival.entrance->rule.devices);
    if (phase_ != Phase::kServing || !parked->arrival.entrance->is_open ||
        (device.ok() && ((*device)->TakesClients() || (*device)->IsAway()))) {
      now.push_back(number);
    }
  }
  for (const std::uint64_t number : now) AdmitParked(number);
}

void Broker::OnWhy(Arrival arrival) {
  const Result<ipc::Why> why = ipc::Decode<ipc::Why>(arrival.frame.payload);
  if (!why.ok()) return RefuseArrival(std::move(arrival), why.status());
  if (AnswerWhy(arrival, why->session)) return;
  const auto of_uid = std::ranges::count_if(parked_whys_, [&](const auto& parked) {
    return parked.second->arrival.peer.uid == arrival.peer.uid;
  });
  const LiveSession* const session = ledger_.Find(why->session);
  // Nobody waits for the end of a session of others.
  if (session == nullptr || session->peer.uid != arrival.peer.uid ||
      parked_whys_.size() >= kParkedMax ||
      static_cast<std::size_t>(of_uid) >= options_.limits.waiting_per_uid_max) {
    return RefuseArrival(
        std::move(arrival),
        {StatusCode::kNotFound, "question refused: session " + std::to_string(why->session) +
                                    " of this process is not known here"});
  }
  const std::uint64_t number = ++last_parked_;
  auto parked = std::make_unique<ParkedWhy>(context_, std::move(arrival), why->session);
  parked->timer.expires_after(options_.admin_wait_max);
  parked->timer.async_wait([this, number](const boost::system::error_code& error) {
    const auto found = parked_whys_.find(number);
    if (error || found == parked_whys_.end()) return;
    const std::unique_ptr<ParkedWhy> late = std::move(found->second);
    parked_whys_.erase(found);
    RefuseArrival(std::move(late->arrival),
                  {StatusCode::kNotFound, "question refused: session " +
                                              std::to_string(late->session) + " has not ended"});
  });
  parked_whys_.emplace(number, std::move(parked));
}

bool Broker::AnswerWhy(Arrival& arrival, std::uint64_t session) {
  std::optional<Status> why = ledger_.WhyEnded(session, arrival.peer);
  if (!why) return false;
  if (why->ok()) why = Status(StatusCode::kDisconnected, "session ended: the client left");
  ipc::Outbox outbox;
  if (outbox.Add(arrival.frame.request, ipc::Ended{*why}).ok()) {
    (void)outbox.Flush(arrival.socket.get());
  }
  arrival.socket.Close();
  return true;
}

// ---- sessions and the end

void Broker::EndSession(std::uint64_t id, const Status& why) {
  const LiveSession* session = ledger_.Find(id);
  if (session == nullptr) return;
  if (why.ok()) {
    rated_log_.Write(spdlog::level::info, session->peer, session->Who() + " left");
  } else {
    rated_log_.Write(spdlog::level::warn, session->peer,
                     session->Who() + " ended: " + Escaped(why.ToString(), 1024));
  }
  const std::string device = session->device;
  ledger_.End(id, why);
  desk_->OnSessionEnded(id);
  DeviceEntry& its_device = *devices_.Find(device);
  const bool drains =
      phase_ == Phase::kDraining || its_device.state == DeviceEntry::State::kDraining;
  if (drains && ledger_.On(device).empty()) ExpectEnd(its_device, options_.drain_grace);
  RenewIfEmpty(its_device);
  for (auto at = parked_whys_.begin(); at != parked_whys_.end();) {
    ParkedWhy& parked = *at->second;
    const bool answered = parked.session == id && AnswerWhy(parked.arrival, id);
    at = answered ? parked_whys_.erase(at) : std::next(at);
  }
}

void Broker::Stop(const std::string& because) {
  if (phase_ == Phase::kServing) {
    log_->info("draining: {}", because);
    return BeginDrain();
  }
  if (phase_ != Phase::kDraining) return;
  log_->warn("stopping at once: {}", because);
  phase_ = Phase::kStopping;
  StopNow();
}

void Broker::BeginDrain() {
  if (phase_ != Phase::kServing) return;
  phase_ = Phase::kDraining;
  if (is_pausing_) GiveUpUpgrade("the server drains");
  if (options_.tell_status) options_.tell_status("draining");
  for (DeviceEntry& device : devices_.entries()) {
    device.restart_timer.cancel();
    device.GiveUpWaiting();
    // A worker that is still opening its device is told when it is ready.
    if (device.state == DeviceEntry::State::kReady) (void)device.worker->Send(0, ipc::Drain{});
    if (ledger_.On(device.id).empty()) ExpectEnd(device, options_.drain_grace);
  }
  RetryParked();
  ReportDrain();
  FinishWhenDone();
}

void Broker::ReportDrain() {
  if (phase_ != Phase::kDraining) return;
  std::string names;
  std::size_t named = 0;
  for (const auto& [id, session] : ledger_.live()) {
    if (named++ == kNamedInReportMax) {
      names += ", ...";
      break;
    }
    names += (names.empty() ? "" : ", ") + session.Who();
  }
  if (!names.empty()) {
    log_->info("draining: waiting for {} sessions: {}", ledger_.live().size(), names);
  }
  drain_report_.expires_after(kDrainReportInterval);
  drain_report_.async_wait([this](const boost::system::error_code& error) {
    if (!error) ReportDrain();
  });
}

void Broker::StopNow() {
  drain_report_.cancel();
  for (DeviceEntry& device : devices_.entries()) {
    device.restart_timer.cancel();
    device.GiveUpWaiting();
    if (!device.worker) continue;
    for (const std::uint64_t id : ledger_.On(device.id)) {
      (void)device.worker->Send(0, ipc::TerminateSession{id, "the server stops"});
    }
    (void)device.worker->Send(0, ipc::Drain{});
    ExpectEnd(device, options_.stop_grace);
  }
  RetryParked();
  FinishWhenDone();
}

void Broker::ExpectEnd(DeviceEntry& device, milliseconds grace) {
  device.end_timer.expires_after(grace);
  device.end_timer.async_wait([this, &device, grace](const boost::system::error_code& error) {
    if (error || !device.worker) return;
    log_->warn("device {}: worker pid {} did not end within {} and is killed", device.id,
               device.worker->pid(), FormatDuration(grace));
    device.worker->Kill();
  });
}

void Broker::FinishWhenDone() {
  if (phase_ == Phase::kServing || phase_ == Phase::kOver || !devices_.AllGone()) return;
  phase_ = Phase::kOver;
  entrances_->Stop();
  counts_->Remove();
  for (const DeviceEntry& device : devices_.entries()) {
    (void)::unlink(TotalsFile(device).c_str());
  }
  (void)::rmdir(options_.roster_folder.c_str());
  rated_log_.Stop();
  log_->info("all workers have ended; bye");
  context_.stop();
}

}  // namespace gpushared::server
