// SPDX-License-Identifier: Apache-2.0
#include "server/broker/worker_watch.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

// Returns true if a signal or a debugger has stopped the process. /proc reports the state after the
// name in parentheses, which may contain any character.
bool IsStopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 2 >= text.size()) return false;
  return text[end + 2] == 'T' || text[end + 2] == 't';
}

}  // namespace

WorkerWatch::WorkerWatch(boost::asio::io_context& context, DeviceTable& devices, Limits limits,
                         std::shared_ptr<spdlog::logger> log)
    : devices_(devices), limits_(limits), log_(std::move(log)), timer_(context) {
  Wait();
}

void WorkerWatch::Wait() {
  timer_.expires_after(limits_.interval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    for (DeviceEntry& device : devices_.entries()) CheckDevice(device);
    Wait();
  });
}

std::string WorkerWatch::Silence(const DeviceEntry& device) const {
  return "device " + device.id + ": worker pid " + std::to_string(device.worker->pid()) +
         " has not answered for " + FormatDuration(device.unanswered * limits_.interval);
}

void WorkerWatch::CheckDevice(DeviceEntry& device) {
  if (device.state != DeviceEntry::State::kReady || !device.worker || !device.worker->usable()) {
    return;
  }
  if (!device.is_asked) {
    device.is_asked = true;
    // A worker that does not read its channel at all is detected by the next check.
    (void)device.worker->Send(kRequest, ipc::AdminRequest{{.verb = ipc::AdminVerb::kDevices}});
    return;
  }
  if (IsStopped(device.worker->pid())) return;
  ++device.unanswered;
  if (device.unanswered == limits_.silent_after) {
    device.is_silent = true;
    log_->error("{}: it gets no clients until it answers", Silence(device));
  } else if (device.unanswered >= limits_.killed_after) {
    log_->error("{} and is killed", Silence(device));
    device.last_words = "it did not answer";
    device.worker->Kill();
  }
}

void WorkerWatch::OnAnswer(DeviceEntry& device) {
  if (device.is_silent) log_->warn("{}, and answers again", Silence(device));
  device.is_asked = device.is_silent = false;
  device.unanswered = 0;
}

}  // namespace gpushared::server
