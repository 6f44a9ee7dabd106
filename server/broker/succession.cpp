// SPDX-License-Identifier: Apache-2.0
// Broker succession: adopts the state of a broker that died, and prepares an upgrade to the
// broker's own successor.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "server/broker/broker.h"
#include "server/config/config_values.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

// Interval at which a broker that prepares an upgrade checks whether it is still busy.
constexpr std::chrono::milliseconds kQuietInterval{2};

std::string WhyNotWhileDrained(const DeviceEntry& device) {
  const bool has_ended = device.state == DeviceEntry::State::kDrained;
  return "device " + device.id + " is " + std::string(StateName(device.state)) +
         ", which the new program would not know; `gpusharedctl resume " + device.id +
         (has_ended ? "` admits clients again" : "` cancels that");
}

}  // namespace

// ---- state of a dead broker

Status Broker::OpenCounts() {
  const std::string path = options_.socket_path + ".counts";
  Result<KeptCounts> counts = KeptCounts::Open(path);
  if (!counts.ok()) {
    log_->warn("counts of endpoints and rejections start at zero: {}", counts.status().message());
    (void)::unlink(path.c_str());
    counts = KeptCounts::Open(path);
  }
  if (!counts.ok()) {
    log_->warn("counts will be lost in a crash: {}", counts.status().message());
    counts = KeptCounts::InMemory();
  }
  if (!counts.ok()) return counts.status();
  counts_.emplace(*std::move(counts));
  endpoints_->KeepCounts(*counts_);
  return Status::Ok();
}

void Broker::OpenRegistryDirectory() {
  if (options_.registry_directory.empty())
    options_.registry_directory = options_.socket_path + ".workers";
  const Status status = PrepareRegistryDirectory(options_.registry_directory);
  has_registries_ = status.ok();
  if (!status.ok()) {
    log_->warn("workers will exit with their last sessions if this broker dies: {}",
               status.message());
  }
}

std::string Broker::TotalsFile(const DeviceEntry& device) const {
  // Named by UUID if there is one, because a GPU's number may change between runs.
  std::string name = device.selected.uuid.empty() ? device.id : device.selected.uuid;
  std::ranges::replace(name, '/', '_');
  return options_.registry_directory + "/totals-" + name;
}

void Broker::TakeOverSurvivors() {
  if (!has_registries_) return endpoints_->RemoveDeadLeases();
  Survivors survivors = TakeOverWorkers(options_.registry_directory, options_.registry_wait);
  for (const std::string& remark : survivors.remarks) log_->warn("{}", remark);
  for (Survivor& survivor : survivors.workers) {
    session_log_.Know(survivor.registry.last_session);
    for (const ipc::RegistrySession& session : survivor.sessions) {
      if (session.endpoint != 0) endpoints_->Expect(session.endpoint_name, session.endpoint);
    }
    for (KeptLease& kept : survivor.kept) {
      const Status restored = endpoints_->Restore(kept.kept.lease, std::move(kept.connection));
      if (!restored.ok()) {
        log_->error("a lease of {} is lost: {}", kept.kept.lease.lessee, restored.message());
      }
    }
  }
  endpoints_->RemoveDeadLeases();
  for (Survivor& survivor : survivors.workers) Adopt(std::move(survivor));
}

DeviceEntry& Broker::RowFor(const Survivor& survivor) {
  const ipc::DeviceDescription& description = survivor.ready.device;
  DeviceEntry* const ours = devices_.FindOf(description);
  if (ours != nullptr && !ours->worker) return *ours;
  DeviceEntry& added = devices_.Add({.id = description.id, .name = description.name});
  added.state = DeviceEntry::State::kLeaving;
  added.is_configured = false;
  return added;
}

LiveSession Broker::GetLive(const ipc::RegistrySession& row, const DeviceEntry& device) {
  return {.id = row.session,
          .peer = {.uid = row.peer.uid, .gid = row.peer.gid, .pid = row.peer.pid},
          .name = row.name,
          .client_class = row.client_class,
          .weight = row.weight,
          .endpoint = row.endpoint,
          .endpoint_name = row.endpoint_name,
          .device = device.id,
          .generation = device.generation,
          .quota_bytes = row.quota_bytes,
          .guaranteed_bytes = row.guaranteed_bytes,
          .isolation = static_cast<device::Isolation>(row.isolation),
          .since = std::chrono::steady_clock::now() - std::chrono::nanoseconds(row.age_ns),
          .started = row.has_started};
}

void Broker::Adopt(Survivor survivor) {
  DeviceEntry& device = RowFor(survivor);
  const pid_t pid = survivor.worker.pid;
  device.generation = survivor.registry.generation;
  device.started = std::chrono::steady_clock::now();
  device.worker = WorkerProcess::Adopt(context_, std::move(survivor.worker), GetEvents(device));
  for (const ipc::RegistrySession& each : survivor.sessions) {
    session_log_.Add(GetLive(each, device));
  }
  for (const ipc::RegistryEnd& end : survivor.ends) {
    session_log_.Remember(end.session, end.uid, end.pid, end.status);
  }
  log_->info(
      "device {}: worker pid {} generation {} outlived its broker and is taken over, with "
      "{} sessions",
      device.id, pid, device.generation, survivor.sessions.size());
  if (device.state == DeviceEntry::State::kLeaving) {
    log_->warn("device {} is no longer in the configuration: its worker ends with its last session",
               device.id);
    device.description = std::move(survivor.ready.device);
    (void)device.worker->Send(0, ipc::Drain{});
    return;
  }
  device.is_outdated =
      options_.launch(device.selected, device.generation).made_by != survivor.registry.made_by;
  if (device.is_outdated) {
    log_->warn(
        "device {}: its worker has other options or another version than this server, and is "
        "replaced when it has no sessions",
        device.id);
  }
  OnWorkerReady(device, std::move(survivor.ready));
  RenewIfEmpty(device);
}

void Broker::RenewIfEmpty(DeviceEntry& device) {
  const bool is_due = device.is_outdated && device.state == DeviceEntry::State::kReady &&
                      phase_ == Phase::kServing && session_log_.On(device.id).empty();
  if (!is_due) return;
  log_->info("device {}: its worker has no session and is replaced by one of this server",
             device.id);
  device.state = DeviceEntry::State::kRestarting;
  (void)device.worker->Send(0, ipc::Drain{});
  ExpectEnd(device, options_.drain_grace);
}

WorkerProcess::Events Broker::GetEvents(DeviceEntry& device) {
  return {
      .message = [this, &device](ipc::Frame frame) { OnWorkerMessage(device, std::move(frame)); },
      .exited = [this, &device](const std::string& how) { OnWorkerExited(device, how); }};
}

void Broker::KeepAt(DeviceEntry& device, const ipc::Keep& lease, int connection) {
  Result<ipc::UniqueFd> copy = ipc::DuplicateFd(connection);
  if (!copy.ok()) return;  // The lease then ends with this broker.
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(*std::move(copy));
  (void)device.worker->Send(0, lease, std::move(fds));
}

// ---- upgrade

void Broker::OnUpgrade(Arrival arrival) {
  const auto reject = [&](StatusCode code, const std::string& why) {
    RejectArrival(std::move(arrival), {code, "upgrade rejected: " + why});
  };
  if (phase_ != Phase::kServing) {
    return reject(StatusCode::kNotReady,
                  drain_is_final_ ? "the server was told to end by a signal"
                                  : "the server is draining; `gpusharedctl resume` cancels that");
  }
  if (is_pausing_) return reject(StatusCode::kNotReady, "another one is under way");
  if (!has_registries_ || !checker_) {
    return reject(StatusCode::kUnsupported,
                  "this server's sessions could not be taken over; see its log");
  }
  // Checked again, because the successor would ignore workers in a directory that other users can
  // write to.
  if (const Status directory = PrepareRegistryDirectory(options_.registry_directory);
      !directory.ok()) {
    return reject(directory.code(), directory.message());
  }
  for (const DeviceEntry& device : devices_.entries()) {
    // The successor would have no record of the drain and would admit clients to the device.
    if (device.IsDrained()) return reject(StatusCode::kNotReady, WhyNotWhileDrained(device));
  }
  log_->info("upgrade requested by {}", arrival.peer.Who());
  auto waiting = std::make_shared<Arrival>(std::move(arrival));
  checker_->ReadThen([this, waiting](const Result<std::string>& version) {
    if (!version.ok()) {
      const Status why(version.status().code(),
                       "upgrade rejected, this server continues: " + version.status().message());
      log_->error("{}", why.message());
      return request_handler_->Answer(std::move(*waiting), why, "");
    }
    const nlohmann::json answer = {
        {"from", options_.version}, {"to", *version}, {"upgrades", options_.upgrades}};
    request_handler_->Answer(std::move(*waiting), Status::Ok(), answer.dump());
    BeginUpgrade();
  });
}

void Broker::BeginUpgrade() {
  if (phase_ != Phase::kServing || is_pausing_) return;
  is_pausing_ = true;
  upgrade_failure_.clear();
  endpoints_->Pause();
  AwaitQuiet(std::chrono::steady_clock::now() + options_.upgrade_wait_max);
}

std::string Broker::Occupation() const {
  if (endpoints_->waiting() > 0) return "a connection that has not sent its first message";
  if (!deferred_hellos_.empty()) return "a client that waits for its device";
  if (!deferred_whys_.empty()) return "a client that waits for the end of a session";
  if (!request_handler_->IsIdle()) return "an answer to an operator";
  if (!moves_.empty()) return "a move of a client";
  bool is_retained = endpoints_->leases() == 0;
  for (const DeviceEntry& device : devices_.entries()) {
    is_retained = is_retained || device.CanBeQueried();
    if (device.IsDrained()) return WhyNotWhileDrained(device);
    // The successor could not find a worker that is still starting.
    if (device.state == DeviceEntry::State::kStarting) return "the start of device " + device.id;
    if (device.worker && !device.worker->is_flushed()) return "a message to device " + device.id;
  }
  return is_retained ? "" : "leases that no worker retains";
}

void Broker::AwaitQuiet(std::chrono::steady_clock::time_point deadline) {
  if (!is_pausing_) return;
  const std::string occupation = Occupation();
  if (occupation.empty()) {
    const Status why = options_.execute_successor(endpoints_->Borrow());
    return GiveUpUpgrade(why.message());  // A successful execution does not return.
  }
  if (std::chrono::steady_clock::now() > deadline) {
    return GiveUpUpgrade("it waited too long for " + occupation);
  }
  quiet_timer_.expires_after(kQuietInterval);
  quiet_timer_.async_wait([this, deadline](const boost::system::error_code& error) {
    if (!error) AwaitQuiet(deadline);
  });
}

void Broker::GiveUpUpgrade(const std::string& why) {
  is_pausing_ = false;
  upgrade_failure_ = why;
  quiet_timer_.cancel();
  endpoints_->Resume();
  log_->error("upgrade abandoned, this server continues: {}", why);
}

}  // namespace gpushared::server
