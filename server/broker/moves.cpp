// SPDX-License-Identifier: Apache-2.0
// Moves of clients between devices (docs/design/moving.md).
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/broker/broker.h"
#include "server/broker/broker_parts.h"
#include "server/config/config_values.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

ipc::RegistrySession GetRow(const LiveSession& session) {
  return {.session = session.id,
          .peer = {.pid = session.peer.pid, .uid = session.peer.uid, .gid = session.peer.gid},
          .name = session.name,
          .client_class = session.client_class,
          .weight = session.weight,
          .endpoint = session.endpoint,
          .endpoint_name = session.endpoint_name,
          .quota_bytes = session.quota_bytes,
          .guaranteed_bytes = session.guaranteed_bytes,
          .isolation = static_cast<std::uint8_t>(session.isolation),
          .has_started = session.started};
}

// Numbers of CUDA attributes that state where a device is, and not what it can do: PCI bus, device
// and domain, and the group of GPUs on a board.
bool IsPlace(std::uint32_t attribute) {
  constexpr std::array<std::uint32_t, 4> kPlaces = {33, 34, 50, 85};
  return std::ranges::find(kPlaces, attribute) != kPlaces.end();
}

// A client has read the description of its device and relies on it.
bool IsSameKind(const ipc::DeviceDescription& one, const ipc::DeviceDescription& other) {
  const auto is_same = [](const ipc::DeviceAttribute& a, const ipc::DeviceAttribute& b) {
    return a.id == b.id && (a.value == b.value || IsPlace(a.id));
  };
  return one.kind == other.kind && one.name == other.name &&
         one.memory_bytes == other.memory_bytes && one.multiprocessors == other.multiprocessors &&
         one.threads_per_block_max == other.threads_per_block_max &&
         one.block_max == other.block_max && one.grid_max == other.grid_max &&
         one.shared_bytes_per_block_max == other.shared_bytes_per_block_max &&
         std::ranges::equal(one.attributes, other.attributes, is_same);
}

}  // namespace

Status Broker::CheckMove(const LiveSession& session, DeviceEntry& from, DeviceEntry& to) {
  const auto reject = [&](StatusCode code, const std::string& why) {
    return Status(code, "move rejected: " + why + " [" + session.Who() + "]");
  };
  if (phase_ != Phase::kServing || is_pausing_) {
    return reject(StatusCode::kNotReady, "the server is draining or being upgraded");
  }
  if (&from == &to) return reject(StatusCode::kInvalidArgument, "it is on device " + to.id);
  if (moves_.contains(session.id)) {
    return reject(StatusCode::kNotReady, "the client is being moved already");
  }
  if (!session.started) return reject(StatusCode::kNotReady, "the client is starting");
  for (const DeviceEntry* const device : {&from, &to}) {
    const bool is_ready = device == &from ? device->CanBeQueried() : device->TakesClients();
    if (is_ready) continue;
    return reject(StatusCode::kNotReady,
                  "device " + device->id + " is " +
                      (device->is_silent ? "silent" : std::string(StateName(device->state))));
  }
  if (from.is_outdated || to.is_outdated) {
    return reject(StatusCode::kUnsupported,
                  "the worker of one of the devices has other options or another version");
  }
  if (!IsSameKind(from.description, to.description)) {
    return reject(StatusCode::kUnsupported,
                  "devices " + from.id + " and " + to.id + " are not of the same kind and size");
  }
  const auto endpoint = endpoints_->endpoints().find(session.endpoint);
  const bool is_main = session.endpoint == 0;
  if (!is_main && endpoint == endpoints_->endpoints().end()) {
    return reject(StatusCode::kUnavailable, "its endpoint has been closed");
  }
  if (!is_main && !devices_.IsAmong(to, endpoint->second->rule.devices)) {
    return reject(StatusCode::kPermissionDenied,
                  endpoint->second->rule.label + " does not include device " + to.id);
  }
  // The client itself counts among the clients of its user.
  Holdings held = is_main
                      ? session_log_.HeldBy(session.peer.uid, to.id)
                      : session_log_.HeldThrough(endpoints_->SharersWith(*endpoint->second), to.id);
  held.clients -= std::min(held.clients, 1u);
  const AccessRequest asked = {.scheduling_class = std::nullopt,
                               .weight = std::nullopt,
                               .max_share = std::nullopt,
                               .memory_bytes = session.quota_bytes};
  const std::uint64_t bytes = to.description.memory_bytes;
  const Result<MemoryGrant> granted =
      is_main ? rules_.Admit(session.peer, asked, held, bytes)
              : rules_.AdmitUnder(endpoint->second->rule,
                                  {.who = session.Who(), .holder = endpoint->second->rule.label},
                                  asked, held, bytes);
  if (!granted.ok()) return granted.status();
  if (granted->guaranteed_bytes < session.guaranteed_bytes) {
    return reject(StatusCode::kOutOfMemory, "device " + to.id + " can guarantee " +
                                                FormatBytes(granted->guaranteed_bytes) +
                                                " of memory, the client has a guarantee of " +
                                                FormatBytes(session.guaranteed_bytes));
  }
  return {};
}

Status Broker::StartMove(const LiveSession& session, const std::string& name,
                         std::uint32_t request) {
  const Result<DeviceEntry*> named = devices_.Named(name);
  if (!named.ok()) return named.status();
  DeviceEntry& to = **named;
  DeviceEntry& from = *devices_.Find(session.device);
  if (Status may = CheckMove(session, from, to); !may.ok()) return may;
  Result<std::pair<ipc::UniqueFd, ipc::UniqueFd>> channel = ipc::MakeChannelPair();
  if (!channel.ok()) return channel.status();
  ipc::SizeChannelBuffer(channel->first.get());
  const bool is_main = session.endpoint == 0;
  const Allowance* rule = &rules_.RuleFor(session.peer);
  if (!is_main) rule = &endpoints_->endpoints().at(session.endpoint)->rule;
  const ipc::MoveIn arrival = {
      .row = GetRow(session),
      .allowed_class = rule->highest_class,
      .is_trusted = is_main && IsTrusted(session.peer.uid, options_.own_uid)};
  std::vector<ipc::UniqueFd> target, source;
  source.push_back(std::move(channel->first));
  target.push_back(std::move(channel->second));
  if (Status sent = to.worker->Send(0, arrival, std::move(target)); !sent.ok()) return sent;
  // If this fails, its end of the channel closes, so the target drops the move.
  moves_[session.id] = {.from = from.id, .to = to.id, .request = request};
  const Status sent =
      from.worker->Send(request, ipc::MoveOut{.session = session.id}, std::move(source));
  if (!sent.ok()) moves_.erase(session.id);
  return sent;
}

void Broker::OnMoveFailed(std::uint32_t request) {
  std::erase_if(moves_, [&](const auto& each) { return each.second.request == request; });
}

Status Broker::OnRow(DeviceEntry& device, const ipc::RegistrySession& row) {
  const auto move = moves_.find(row.session);
  LiveSession* const known = session_log_.Find(row.session);
  // A session that an earlier broker has moved is unknown until it arrives.
  const bool is_valid = known == nullptr || (move != moves_.end() && move->second.to == device.id);
  if (!is_valid) {
    return {StatusCode::kProtocolViolation, "a session that was not moved to this worker"};
  }
  if (known != nullptr) {
    known->device = device.id;
    known->generation = device.generation;
  } else {
    session_log_.Know(row.session);
    session_log_.Add(GetLive(row, device));
  }
  return {};
}

void Broker::OnMoveEnded(DeviceEntry& device, const ipc::MoveEnded& ended) {
  const auto found = moves_.find(ended.session);
  if (found == moves_.end()) return;
  const Move move = found->second;
  const Status lost(StatusCode::kDeviceLost,
                    "session ended: a worker died while the client was moved from " + move.from +
                        " to " + move.to);
  switch (ended.end) {
    case ipc::MoveEnd::kLeft:
      if (device.id != move.from) return;
      if (move.target_is_gone) {
        moves_.erase(found);
        return EndSession(ended.session, lost);
      }
      if (LiveSession* const session = session_log_.Find(ended.session); session != nullptr) {
        session->device = move.to;
        session->generation = devices_.Find(move.to)->generation;
      }
      return;  // The target's report follows.
    case ipc::MoveEnd::kDropped:
      if (device.id != move.to) return;
      moves_.erase(found);
      if (move.source_is_gone) EndSession(ended.session, lost);
      return;
    case ipc::MoveEnd::kArrived:
      break;
  }
  if (device.id != move.to) return;
  moves_.erase(found);
  log_->info("session {} moved from {} to {}, stopped for {} us", ended.session, move.from, move.to,
             ended.stopped_ns / 1000);
  const nlohmann::json answer = {{"client", ended.session},
                                 {"from", move.from},
                                 {"to", move.to},
                                 {"bytes", ended.bytes},
                                 {"stopped_s", static_cast<double>(ended.stopped_ns) / 1e9}};
  if (const LiveSession* const session = session_log_.Find(ended.session); session != nullptr) {
    // An operator may have changed them during the move.
    (void)device.worker->Send(0, ipc::SetSession{.session = session->id,
                                                 .client_class = session->client_class,
                                                 .weight = session->weight,
                                                 .max_share = std::nullopt});
  }
  request_handler_->OnMoved(ended.session, answer.dump());
  OnSessionLeft(*devices_.Find(move.from));
}

void Broker::OnMoverGone(const DeviceEntry& device) {
  for (auto at = moves_.begin(); at != moves_.end();) {
    auto& [id, move] = *at;
    move.source_is_gone = move.source_is_gone || move.from == device.id;
    move.target_is_gone = move.target_is_gone || move.to == device.id;
    LiveSession* const session = session_log_.Find(id);
    const bool is_over = session == nullptr || (move.source_is_gone && move.target_is_gone) ||
                         (move.target_is_gone && session->device == move.to);
    // The target reports whether the session has arrived before its source died.
    if (!is_over && move.source_is_gone) {
      session->device = move.to;
      session->generation = devices_.Find(move.to)->generation;
    }
    at = is_over ? moves_.erase(at) : std::next(at);
  }
}

}  // namespace gpushared::server
