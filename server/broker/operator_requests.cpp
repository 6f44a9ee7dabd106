// SPDX-License-Identifier: Apache-2.0
// Requests of operators that the broker itself carries out; admin_request_handler.cpp answers the
// others.
#include <algorithm>
#include <memory>
#include <utility>

#include <spdlog/spdlog.h>

#include "server/broker/broker.h"
#include "server/broker/broker_parts.h"
#include "server/config/config.h"
#include "server/config/config_values.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {

void Broker::OnAdmin(Arrival arrival) {
  const Result<ipc::Admin> asked = ipc::Decode<ipc::Admin>(arrival.frame.payload);
  if (!asked.ok()) return RejectArrival(std::move(arrival), asked.status());
  Status may = rights_.Check(arrival.peer, asked->verb);
  if (!arrival.endpoint->IsMain()) {
    // An endpoint accepts no operator requests, because root in a container must not act as an
    // operator.
    may = {StatusCode::kPermissionDenied,
           "request '" + std::string(ipc::AdminVerbName(asked->verb)) +
               "' denied: " + arrival.endpoint->rule.label +
               " is for clients only; operators use " + options_.socket_path};
  }
  if (!may.ok()) {
    ++counts_->rejected_requests(asked->verb);
    return RejectArrival(std::move(arrival), may);
  }
  if (asked->verb == ipc::AdminVerb::kSet && asked->client == 0) {
    return OnSetNewClients(std::move(arrival), asked->terms);
  }
  if (asked->verb == ipc::AdminVerb::kReload) return OnReload(std::move(arrival));
  if (asked->verb == ipc::AdminVerb::kUpgrade) return OnUpgrade(std::move(arrival));
  if (asked->verb == ipc::AdminVerb::kDrain && !asked->terms.empty()) {
    return OnDrainDevice(std::move(arrival), asked->terms);
  }
  if (asked->verb == ipc::AdminVerb::kResume) return OnResume(std::move(arrival), asked->terms);
  if (asked->verb == ipc::AdminVerb::kLease) return OnLease(std::move(arrival), asked->terms);
  const bool is_operator = rights_.MayOperate(arrival.peer);
  if (asked->verb == ipc::AdminVerb::kTrace) {
    return OnTrace(std::move(arrival), asked->terms, is_operator);
  }
  request_handler_->Serve(std::move(arrival), *asked, is_operator);
}

Status Broker::TakeOver(const LiveRules& rules) {
  if (Status status = endpoints_->Replace(rules.endpoints); !status.ok()) return status;
  endpoints_->SetLeaseGrace(rules.lease_grace);
  rules_ = AccessRules(rules.access, options_.own_uid, options_.access_defaults);
  rights_ = AdminRights(rules.observers, rules.operators, options_.own_uid);
  return Status::Ok();
}

void Broker::Reload(ReloadDone done) {
  const auto reject = [this, done](const Status& why) {
    const Status full(why.code(),
                      "reload rejected, nothing has changed: " + std::string(why.message()));
    log_->error("{}", full.message());
    done(full);
  };
  if (!reader_) {
    return reject({StatusCode::kUnsupported, "this server has no configuration to read"});
  }
  reader_->ReadThen([this, done = std::move(done), reject](const Result<NewRules>& rules) {
    const Status taken = rules.ok() ? TakeOver(*rules) : rules.status();
    if (!taken.ok()) return reject(taken);
    std::string later;
    for (const std::string& name : rules->need_restart) later += (later.empty() ? "" : ", ") + name;
    log_->info("configuration read again: {} access rules, {} endpoints{}", rules->access.size(),
               rules->endpoints.size(), later.empty() ? "" : "; a restart is needed for " + later);
    done(rules->need_restart);
  });
}

void Broker::OnReload(Arrival arrival) {
  log_->info("reload requested by {}", arrival.peer.Who());
  // Shared, because a std::function must be copyable.
  auto waiting = std::make_shared<Arrival>(std::move(arrival));
  Reload([this, waiting](const Result<std::vector<std::string>>& need_restart) {
    request_handler_->Answer(
        std::move(*waiting), need_restart.status(),
        need_restart.ok() ? AdminRequestHandler::ReloadJson(*need_restart) : "");
  });
}

void Broker::OnLease(Arrival arrival, const std::string& terms) {
  if (phase_ != Phase::kServing) return RejectArrival(std::move(arrival), Draining());
  if (const Status leased = endpoints_->Lease(terms, arrival); !leased.ok()) {
    RejectArrival(std::move(arrival), leased);
  }
}

// The worker answers on the connection, and writes the trace until the connection closes.
void Broker::OnTrace(Arrival arrival, const std::string& name, bool is_operator) {
  const Result<DeviceEntry*> named = devices_.Named(name);
  if (!named.ok()) return RejectArrival(std::move(arrival), named.status());
  DeviceEntry& device = **named;
  if (!device.CanBeQueried()) {
    return RejectArrival(
        std::move(arrival),
        {StatusCode::kNotReady, "trace rejected: device " + device.id + " is " +
                                    std::string(StateName(device.state)) + ", nothing runs there"});
  }
  rated_log_.Write(spdlog::level::info, arrival.peer,
                   "trace of device " + device.id + " requested by " + arrival.peer.Who());
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

void Broker::OnSetNewClients(Arrival arrival, const std::string& terms) {
  const Result<EndpointRule> parsed = ParseEndpointTerms(terms, "bounds of new clients");
  if (!parsed.ok()) return RejectArrival(std::move(arrival), parsed.status());
  NewClients changed = new_clients_;
  if (parsed->usual_class) changed.usual_class = parsed->usual_class;
  if (parsed->client_max_share) changed.max_share = *parsed->client_max_share;
  for (const std::string& name : parsed->devices) {
    const Result<DeviceEntry*> device = devices_.Named(name);
    if (!device.ok()) return RejectArrival(std::move(arrival), device.status());
    if (!parsed->client_memory) continue;
    if ((*device)->was_ready &&
        parsed->client_memory->Of((*device)->description.memory_bytes) < kQuotaLeast) {
      return RejectArrival(
          std::move(arrival),
          {StatusCode::kInvalidArgument, "client_memory rejected: asked for " +
                                             parsed->client_memory->ToString() + ", at least " +
                                             FormatBytes(kQuotaLeast) + " is needed"});
    }
    changed.memory[(*device)->id] = *parsed->client_memory;
  }
  new_clients_ = std::move(changed);
  std::string line = terms.substr(0, terms.find_last_not_of('\n') + 1);
  std::ranges::replace(line, '\n', ' ');
  log_->info("clients that connect from now on: {}, set by {}", Escaped(line, 256),
             arrival.peer.Who());
  request_handler_->Answer(std::move(arrival), Status::Ok(), "{}");
}

void Broker::OnDrainDevice(Arrival arrival, const std::string& name) {
  const Result<DeviceEntry*> named = devices_.Named(name);
  if (!named.ok()) return RejectArrival(std::move(arrival), named.status());
  DeviceEntry& device = **named;
  const Status drained = phase_ == Phase::kServing ? DrainDevice(device) : Draining();
  if (!drained.ok()) return RejectArrival(std::move(arrival), drained);
  log_->info("drain of device {} requested by {}", device.id, arrival.peer.Who());
  const nlohmann::json answer = {{"device", device.id},
                                 {"state", StateName(device.state)},
                                 {"sessions", session_log_.On(device.id).size()}};
  request_handler_->Answer(std::move(arrival), Status::Ok(), answer.dump());
}

void Broker::OnResume(Arrival arrival, const std::string& name) {
  if (name.empty()) {
    const Status resumed = TakeBackDrainOfServer();
    if (!resumed.ok()) return RejectArrival(std::move(arrival), resumed);
    log_->info("the drain is cancelled by {}", arrival.peer.Who());
    const nlohmann::json answer = {{"draining", false}, {"sessions", session_log_.live().size()}};
    return request_handler_->Answer(std::move(arrival), Status::Ok(), answer.dump());
  }
  const Result<DeviceEntry*> named = devices_.Named(name);
  if (!named.ok()) return RejectArrival(std::move(arrival), named.status());
  DeviceEntry& device = **named;
  const Status resumed = phase_ == Phase::kServing ? ResumeDevice(device) : Draining();
  if (!resumed.ok()) return RejectArrival(std::move(arrival), resumed);
  log_->info("device {} is resumed by {}", device.id, arrival.peer.Who());
  const nlohmann::json answer = {{"device", device.id},
                                 {"state", StateName(device.state)},
                                 {"sessions", session_log_.On(device.id).size()}};
  request_handler_->Answer(std::move(arrival), Status::Ok(), answer.dump());
}

}  // namespace gpushared::server
