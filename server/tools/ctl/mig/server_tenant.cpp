// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/mig/server_tenant.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "server/telemetry/admin/ask.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDrainPollInterval{50};

}  // namespace

Result<std::map<std::string, ServerTenant::Device>> ServerTenant::Devices() const {
  std::map<std::string, Device> devices;
  if (socket_.empty()) return devices;
  const Result<nlohmann::json> answer = admin::Ask(socket_, {.verb = ipc::AdminVerb::kDevices});
  if (!answer.ok() && admin::IsUnreachable(answer.status())) return devices;
  if (!answer.ok()) return answer.status();
  for (const nlohmann::json& row : answer->value("devices", nlohmann::json::array())) {
    const std::string uuid = row.value("uuid", "");
    if (uuid.empty()) continue;
    devices[uuid] = {.id = row.value("device", ""),
                     .state = row.value("state", ""),
                     .sessions = row.value("sessions", std::uint64_t{0}),
                     .worker = row.value("worker_pid", std::uint32_t{0})};
  }
  return devices;
}

Status ServerTenant::ReadUsers() {
  Result<std::map<std::string, Device>> devices = Devices();
  if (!devices.ok()) return devices.status();
  seen_ = std::move(*devices);
  return Status::Ok();
}

std::string ServerTenant::GetUser(const std::string& uuid,
                                  const std::vector<std::uint32_t>& processes) const {
  std::vector<std::uint32_t> workers;
  for (const auto& [ignored, device] : seen_) {
    if (device.worker != 0) workers.push_back(device.worker);
  }
  std::string user = mig::GetUsers(processes, workers);
  const auto device = seen_.find(uuid);
  if (device != seen_.end() && device->second.sessions > 0) {
    user += (user.empty() ? "" : ", ") + std::to_string(device->second.sessions) +
            " sessions of the server on " + device->second.id;
  }
  return user;
}

Status ServerTenant::Drain(const std::string& id) const {
  return admin::Ask(socket_, {.verb = ipc::AdminVerb::kDrain, .terms = id}).status();
}

Status ServerTenant::Leave(const std::string& uuid) {
  const auto deadline = steady_clock::now() + drain_time_;
  bool is_asked = false;
  Status why;
  std::uint64_t sessions = 0;
  std::string id;
  do {
    const Result<std::map<std::string, Device>> devices = Devices();
    if (!devices.ok()) return devices.status();
    const auto found = devices->find(uuid);
    if (found == devices->end() || found->second.worker == 0) return Status::Ok();
    id = found->second.id;
    sessions = found->second.sessions;
    // Repeats a rejected request, because a device that is starting cannot be drained yet.
    if (!is_asked) {
      why = Drain(id);
      is_asked = why.ok();
      if (is_asked) left_[uuid] = id;
      if (!is_asked && why.code() != StatusCode::kNotReady) return why;
    }
    std::this_thread::sleep_for(kDrainPollInterval);
  } while (steady_clock::now() < deadline);
  return {StatusCode::kTimedOut, "the server did not release device " + id + " within " +
                                     std::to_string(drain_time_.count()) + " s: it has " +
                                     std::to_string(sessions) + " sessions" +
                                     (why.ok() ? "" : "; " + why.message())};
}

void ServerTenant::ComeBack(const std::optional<std::vector<std::string>>& there) {
  for (const auto& [uuid, id] : std::exchange(left_, {})) {
    if (there && std::ranges::find(*there, uuid) == there->end()) continue;
    const Status resumed =
        admin::Ask(socket_, {.verb = ipc::AdminVerb::kResume, .terms = id}).status();
    if (resumed.ok()) continue;
    std::fprintf(stderr, "gpusharedctl: %s; to try again, run gpusharedctl resume %s\n",
                 resumed.message().c_str(), id.c_str());
  }
}

}  // namespace gpushared::server
