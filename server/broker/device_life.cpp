// SPDX-License-Identifier: Apache-2.0
// Life cycle of devices and their workers: start, death, restart, and hot-plugged GPUs.
#include <unistd.h>

#include <utility>

#include <spdlog/spdlog.h>

#include "server/broker/broker.h"
#include "server/broker/broker_parts.h"
#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The driver must report a GPU as lost this many times in a row before its worker is killed.
constexpr std::uint32_t kTimesGoneMax = 2;

}  // namespace

void Broker::StartWorker(DeviceEntry& device) {
  ++device.generation;
  device.missing.clear();
  device.times_gone = 0;
  device.is_asked = device.is_silent = false;
  device.unanswered = 0;
  device.state = DeviceEntry::State::kStarting;
  device.started = steady_clock::now();
  device.is_outdated = device.is_resumed = false;
  WorkerProcess::Launch launch = options_.launch(device.selected, device.generation);
  if (has_registries_) {
    launch.arguments.insert(
        launch.arguments.end(),
        {kRegistryDirectoryOption, options_.registry_directory, kMadeByOption,
         std::to_string(launch.made_by), kTotalsFileOption, TotalsFile(device)});
  }
  Result<std::shared_ptr<WorkerProcess>> worker =
      WorkerProcess::Start(context_, launch, GetEvents(device));
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
      if (LiveSession* session = session_log_.Find(started->session); session != nullptr) {
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
      // Number 0 belongs to no pending request: either the worker reports why it is about to exit,
      // or it answers a command whose result is not needed, such as one to end a session whose
      // lease has ended.
      const bool is_answer = reply->code == StatusCode::kOk || reply->code == StatusCode::kNotFound;
      if (frame.request == 0 && is_answer) return;
      if (frame.request == 0) {
        device.last_words = Escaped(reply->text, 2048);
        device.state = DeviceEntry::State::kRestarting;
        return;
      }
      if (frame.request == WorkerWatch::kRequest) return worker_watch_->OnAnswer(device);
      if (reply->code != StatusCode::kOk) OnMoveFailed(frame.request);
      return request_handler_->OnReply(device.id, frame.request, std::move(*reply));
    }
    case ipc::ChannelType::kRegistrySession: {
      const Result<ipc::RegistrySession> row = ipc::Decode<ipc::RegistrySession>(frame.payload);
      mistake = row.ok() ? OnRow(device, *row) : row.status();
      if (mistake.ok()) return;
      break;
    }
    case ipc::ChannelType::kMoveEnded: {
      const Result<ipc::MoveEnded> ended = ipc::Decode<ipc::MoveEnded>(frame.payload);
      mistake = ended.status();
      if (!ended.ok()) break;
      return OnMoveEnded(device, *ended);
    }
    default:
      mistake = {StatusCode::kProtocolViolation, "a message only brokers send"};
      break;
  }
  log_->error("device {}: protocol error from worker pid {}, killing it: {}", device.id,
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
  endpoints_->ReportLeases(
      [&](const ipc::Keep& lease, int connection) { KeepAt(device, lease, connection); });
  RetryDeferred();
}

void Broker::OnWorkerExited(DeviceEntry& device, const std::string& how) {
  const pid_t pid = device.worker->pid();
  const bool was_opening = device.state == DeviceEntry::State::kStarting && !device.was_ready;
  device.last_death = "worker generation " + std::to_string(device.generation) + " (pid " +
                      std::to_string(pid) + ") " + how;
  if (!device.last_words.empty()) device.last_death += ": " + device.last_words;
  device.last_words.clear();
  const bool is_renewed =
      (device.is_outdated || device.is_resumed) && device.state == DeviceEntry::State::kRestarting;
  const bool is_leaving = device.state == DeviceEntry::State::kLeaving;
  const bool is_draining = device.state == DeviceEntry::State::kDraining;
  const bool expected = (phase_ != Phase::kServing || is_renewed || is_leaving || is_draining) &&
                        session_log_.On(device.id).empty();
  if (expected) {
    log_->debug("device {}: {}", device.id, device.last_death);
  } else {
    log_->error("device {}: {}", device.id, device.last_death);
  }
  OnMoverGone(device);
  LoseSessions(device);
  ipc::UniqueFd ended = device.worker->TakeEnded();
  // A worker removes its registry socket itself unless it was killed.
  (void)::unlink((options_.registry_directory + "/" + std::to_string(pid)).c_str());
  device.end_timer.cancel();
  device.worker.reset();
  request_handler_->OnWorkerGone(device.id);
  if (phase_ != Phase::kServing) {
    // The dead worker is not reaped on this path, because the broker could not exit while reaping.
    // The process that inherits the worker reaps it.
    device.state = is_draining ? DeviceEntry::State::kDrained : DeviceEntry::State::kGone;
    return FinishWhenDone();
  }
  if (was_opening && device.missing.empty() && !device.is_new_device) {
    // An operator who names a device that cannot be opened should learn about it at once.
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
  if (watch_ && !device.selected.uuid.empty()) watch_->CheckNow();
  if (!device.missing.empty()) return GoMissing(device, std::string(device.missing));
  if (was_opening) {
    device.comes_back = false;  // Prevents endless restarts of a device that cannot be opened.
    return GoMissing(device, "it appeared and could not be opened: " + device.last_death);
  }
  ScheduleRestart(device);
}

void Broker::LoseSessions(DeviceEntry& device) {
  const std::vector<std::uint64_t> lost = session_log_.On(device.id);
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
    // A handler that was queued before its timer was cancelled still runs without an error.
    const bool waits = device.state == DeviceEntry::State::kRestarting;
    if (!error && waits && phase_ == Phase::kServing) StartWorker(device);
  });
}

void Broker::OnInventory(const device::Inventory& inventory) {
  if (phase_ != Phase::kServing) return;
  for (DeviceEntry& device : devices_.entries()) {
    const std::string& uuid = device.selected.uuid;
    if (!uuid.empty()) Compare(device, device::GetPresence(uuid, inventory));
  }
  if (!inventory.unavailable.empty()) return;
  if (options_.takes_new_devices) TakeNewDevices(inventory);
  options_.unused_devices = device::UnusedDevices(
      inventory, devices_.Uuids(),
      options_.takes_new_devices ? "there are too many devices" : "not named by the device option");
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
      device.last_words = "the device has disappeared: " + presence.why;
      device.worker->Kill();
      return;
    case DeviceEntry::State::kRestarting:
      if (presence.kind != kPresent && !device.worker) GoMissing(device, presence.why);
      return;
    case DeviceEntry::State::kMissing:
      if (is_gone) {
        device.missing = presence.why;
        device.comes_back = true;
      }
      if (presence.kind == kPresent && device.comes_back) {
        log_->info("device {} is back", device.id);
        StartWorker(device);
      }
      return;
    case DeviceEntry::State::kDrained:
      // The device has left as intended by the drain: its instance was destroyed, or its GPU was
      // removed or partitioned.
      if (device.times_gone < kTimesGoneMax) return;
      device.comes_back = true;
      return GoMissing(device, presence.why);
    case DeviceEntry::State::kLeaving:
    case DeviceEntry::State::kGone:
      return;
  }
}

void Broker::TakeNewDevices(const device::Inventory& inventory) {
  for (device::SelectedDevice& new_device : device::NewDevices(inventory, devices_.Uuids())) {
    if (devices_.entries().size() >= device::kDevicesMax) return;
    DeviceEntry& device = devices_.Add(std::move(new_device));
    device.is_new_device = true;
    log_->info("device {} appeared: {}", device.id, device.selected.name);
    StartWorker(device);
  }
}

void Broker::GoMissing(DeviceEntry& device, const std::string& why) {
  device.restart_timer.cancel();
  device.state = DeviceEntry::State::kMissing;
  device.missing = why;
  log_->error("device {} is missing: {}", device.id, why);
  RetryDeferred();
}

void Broker::GiveUpOn(DeviceEntry& device, const Status& why) {
  log_->critical("{}", why.message());
  device.state = DeviceEntry::State::kGone;
  exit_code_ = 1;
  phase_ = Phase::kStopping;
  StopNow();
}

Status Broker::DrainDevice(DeviceEntry& device) {
  if (device.IsDrained()) return Status::Ok();
  if (device.state == DeviceEntry::State::kRestarting && !device.worker) {
    device.restart_timer.cancel();
    device.state = DeviceEntry::State::kDrained;
  } else if (device.state == DeviceEntry::State::kReady) {
    device.state = DeviceEntry::State::kDraining;
    (void)device.worker->Send(0, ipc::Drain{});
    if (session_log_.On(device.id).empty()) ExpectEnd(device, options_.drain_grace);
  } else {
    return {StatusCode::kNotReady, "drain rejected: device " + device.id + " is " +
                                       std::string(StateName(device.state)) + ", not ready"};
  }
  RetryDeferred();
  return Status::Ok();
}

void Broker::TakeBackDrain(DeviceEntry& device) {
  if (device.worker) device.worker->TakeMessages();  // The worker's last session may have ended.
  if (!device.worker) return StartWorker(device);
  device.end_timer.cancel();
  // A worker that is still starting has not been asked to drain yet.
  if (device.state == DeviceEntry::State::kStarting) return;
  if (!session_log_.On(device.id).empty()) {
    device.state = DeviceEntry::State::kReady;
    (void)device.worker->Send(0, ipc::Resume{});
    return;
  }
  // The worker is about to exit and may do so before it reads another message, so the next worker
  // takes its place.
  device.state = DeviceEntry::State::kRestarting;
  device.is_resumed = true;
  ExpectEnd(device, options_.drain_grace);
}

Status Broker::ResumeDevice(DeviceEntry& device) {
  if (!device.IsDrained()) {
    return {StatusCode::kNotReady, "resume rejected: device " + device.id + " is " +
                                       std::string(StateName(device.state)) + ", not drained"};
  }
  TakeBackDrain(device);
  RetryDeferred();
  return Status::Ok();
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

}  // namespace gpushared::server
