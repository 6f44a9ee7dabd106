// SPDX-License-Identifier: Apache-2.0
// Admission of new clients: checks their rights, hands them to a worker, defers or rejects them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "scheduler/class_name.h"
#include "server/broker/broker.h"
#include "server/broker/broker_parts.h"
#include "server/config/config_values.h"

namespace gpushared::server {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kDeferredMax = 256;

std::string ClassText(SchedulingClass client_class) {
  return std::string(scheduler::ClassName(client_class));
}

// Returns the number of a cap that the clients of one rule or budget share. It is derived from the
// label, because the label does not change when the rules are reloaded or another broker takes
// over. The highest bit distinguishes it from session numbers, which identify the caps of single
// clients.
std::uint64_t GetNumber(const std::string& label) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a.
  for (const char c : label) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash | std::uint64_t{1} << 63;
}

std::uint64_t GetBudgetNumber(const Endpoint& endpoint) {
  return GetNumber("budget '" + endpoint.rule.budget + "'");
}

// Distinct from the groups of users, whose numbers are their uids.
std::uint64_t GetShareGroup(const Endpoint& endpoint) {
  if (!endpoint.rule.budget.empty()) return GetBudgetNumber(endpoint);
  return std::uint64_t{endpoint.number} << 32;
}

std::uint64_t GetCapNumber(const Endpoint& endpoint, const Allowance& rule) {
  return endpoint.rule.budget.empty() ? GetNumber(rule.label) : GetBudgetNumber(endpoint);
}

}  // namespace

const Allowance& Broker::GetAllowance(const Arrival& arrival) const {
  if (arrival.endpoint->IsMain()) return rules_.RuleFor(arrival.peer);
  return arrival.endpoint->rule;
}

Status Broker::CheckEndpoint(const Arrival& arrival) {
  const Endpoint& endpoint = *arrival.endpoint;
  if (!endpoint.is_open) {
    return {StatusCode::kUnavailable, "client rejected: its " + endpoint.rule.label + " is closed"};
  }
  const std::vector<Subject>& who = endpoint.rule.who;
  const bool may = who.empty() || std::ranges::any_of(who, [&](const Subject& each) {
                     return IsAbout(each, arrival.peer);
                   });
  if (may) return Status::Ok();
  return {StatusCode::kPermissionDenied,
          "client rejected: " + endpoint.rule.label + " is for " + SubjectsText(who)};
}

void Broker::RejectArrival(Arrival arrival, const Status& why) {
  ++arrival.endpoint->counts->rejected[static_cast<std::size_t>(why.code())];
  // Every rejection names the client; rejections by the access rules already do.
  const bool has_who = why.message().ends_with("[" + arrival.peer.Who() + "]");
  const Status full(why.code(),
                    has_who ? why.message() : why.message() + " [" + arrival.peer.Who() + "]");
  rated_log_.Write(spdlog::level::warn, arrival.peer, full.message());
  Reject(std::move(arrival.socket), arrival.frame.request, full);
}

void Broker::OnHello(Arrival arrival) {
  const Result<ipc::Hello> hello = ipc::Decode<ipc::Hello>(arrival.frame.payload);
  if (!hello.ok()) return RejectArrival(std::move(arrival), hello.status());
  Admit(std::move(arrival), *hello, /*may_wait=*/true);
}

void Broker::Admit(Arrival arrival, const ipc::Hello& hello, bool may_wait) {
  if (phase_ != Phase::kServing) return RejectArrival(std::move(arrival), Draining());
  if (const Status may = CheckEndpoint(arrival); !may.ok()) {
    return RejectArrival(std::move(arrival), may);
  }
  // A client that was just notified of the loss of its device reconnects for the next worker. The
  // last message of the lost worker has arrived before, but may not have been read yet, so all
  // messages are read now.
  for (const DeviceEntry& each : devices_.entries()) {
    if (each.worker) each.worker->TakeMessages();
  }
  const Result<DeviceEntry*> chosen =
      devices_.Choose(hello.device, session_log_, arrival.endpoint->rule.devices);
  if (!chosen.ok()) return RejectArrival(std::move(arrival), chosen.status());
  DeviceEntry& device = **chosen;
  if (device.IsAway()) {
    const std::string why = device.IsDrained() ? " takes no new clients: an operator drains it"
                                               : " is missing: " + device.missing;
    return RejectArrival(std::move(arrival),
                         {StatusCode::kUnavailable, "client rejected: device " + device.id + why});
  }
  AccessRequest asked = {.scheduling_class = std::nullopt,
                         .weight = hello.weight,
                         .max_share = hello.max_share,
                         .memory_bytes = hello.memory_bytes,
                         .latency_target = std::chrono::nanoseconds(hello.latency_target_ns)};
  if (hello.client_class) {
    asked.scheduling_class = *hello.client_class;
  }
  const Allowance& allowance = GetAllowance(arrival);
  if (!device.TakesClients()) {
    // A request that would fail with every worker is rejected at once.
    const Status share = rules_.CheckShare(allowance, asked, arrival.peer.Who());
    if (!share.ok()) return RejectArrival(std::move(arrival), share);
    const bool will_come = device.state != DeviceEntry::State::kLeaving;
    if (will_come && may_wait && MayDefer(arrival)) return Defer(std::move(arrival), hello);
    const Status why(StatusCode::kUnavailable,
                     "client rejected: device " + device.id + " is " +
                         (device.is_silent ? "silent" : std::string(StateName(device.state))) +
                         ", try again later");
    return RejectArrival(std::move(arrival), why);
  }
  const bool is_main = arrival.endpoint->IsMain();
  const Holdings held =
      is_main ? session_log_.HeldBy(arrival.peer.uid, device.id)
              : session_log_.HeldThrough(endpoints_->SharersWith(*arrival.endpoint), device.id);
  const std::uint64_t device_bytes = device.description.memory_bytes;
  const Result<MemoryGrant> memory =
      is_main ? rules_.Admit(arrival.peer, asked, held, device_bytes)
              : rules_.AdmitUnder(allowance, {.who = arrival.peer.Who(), .holder = allowance.label},
                                  asked, held, device_bytes);
  if (!memory.ok()) return RejectArrival(std::move(arrival), memory.status());
  HandOver(std::move(arrival), hello, device,
           new_clients_.Lowered(*memory, asked.memory_bytes, device.id, device_bytes));
}

void Broker::OnListDevices(Arrival arrival) {
  const Result<ipc::ListDevices> asked = ipc::Decode<ipc::ListDevices>(arrival.frame.payload);
  if (!asked.ok()) return RejectArrival(std::move(arrival), asked.status());
  if (phase_ != Phase::kServing) return RejectArrival(std::move(arrival), Draining());
  if (const Status may = CheckEndpoint(arrival); !may.ok()) {
    return RejectArrival(std::move(arrival), may);
  }
  if (!AreDevicesKnown() && MayDefer(arrival)) return Defer(std::move(arrival), std::nullopt);
  ReportDevices(std::move(arrival));
}

// Returns true if each device has been described or will never be.
bool Broker::AreDevicesKnown() const {
  return std::ranges::none_of(devices_.entries(), [](const DeviceEntry& device) {
    return device.state == DeviceEntry::State::kStarting && !device.was_ready;
  });
}

void Broker::ReportDevices(Arrival arrival) {
  ipc::DeviceList list;
  for (const DeviceEntry& device : devices_.entries()) {
    const bool is_here = !device.IsAway() && device.state != DeviceEntry::State::kLeaving &&
                         device.state != DeviceEntry::State::kGone && device.was_ready &&
                         devices_.IsAmong(device, arrival.endpoint->rule.devices);
    if (is_here) list.devices.push_back(device.description);
  }
  ipc::Outbox outbox;
  if (!outbox.Add(arrival.frame.request, list).ok()) return;
  // Data that the socket does not accept at once is dropped, because the broker never waits for a
  // client.
  (void)outbox.Flush(arrival.socket.get());
}

bool Broker::MayDefer(const Arrival& arrival) const {
  const auto of_uid = std::ranges::count_if(deferred_hellos_, [&](const auto& deferred) {
    return deferred.second->arrival.peer.uid == arrival.peer.uid;
  });
  const bool has_place =
      deferred_hellos_.size() < kDeferredMax || IsTrusted(arrival.peer.uid, options_.own_uid);
  return has_place && static_cast<std::size_t>(of_uid) < options_.limits.waiting_per_uid_max;
}

void Broker::HandOver(Arrival arrival, const ipc::Hello& hello, DeviceEntry& device,
                      const MemoryGrant& memory) {
  const Allowance& rule = GetAllowance(arrival);
  const Endpoint& endpoint = *arrival.endpoint;
  const device::Isolation isolation =
      endpoint.IsMain() ? rules_.GetIsolation(arrival.peer) : rules_.IsolationUnder(rule);
  LiveSession session = {.id = session_log_.NextId(),
                         .peer = arrival.peer,
                         .name = hello.name,
                         .client_class = hello.client_class.value_or(new_clients_.GetClass(rule)),
                         .weight = hello.weight.value_or(rule.usual_weight),
                         .endpoint = endpoint.number,
                         .endpoint_name = endpoint.rule.name,
                         .device = device.id,
                         .generation = device.generation,
                         .quota_bytes = memory.quota_bytes,
                         .guaranteed_bytes = memory.guaranteed_bytes,
                         .isolation = isolation,
                         .since = steady_clock::now()};
  const ipc::Attach attach = {
      .session = session.id,
      .peer = {.pid = arrival.peer.pid, .uid = arrival.peer.uid, .gid = arrival.peer.gid},
      .request = arrival.frame.request,
      .quota_bytes = memory.quota_bytes,
      .guaranteed_bytes = memory.guaranteed_bytes,
      .share_group = endpoint.IsMain() ? arrival.peer.uid : GetShareGroup(endpoint),
      .rule_cap = GetCapNumber(endpoint, rule),
      .rule_share = rule.max_share,
      .max_share =
          hello.max_share.value_or(std::min(rules_.ClientShareUnder(rule), new_clients_.max_share)),
      .weight_max = rule.max_weight,
      .weight = session.weight,
      .client_class = session.client_class,
      .allowed_class = rule.highest_class,
      .isolation = static_cast<std::uint8_t>(isolation),
      .is_trusted = endpoint.IsMain() && IsTrusted(arrival.peer.uid, options_.own_uid),
      .endpoint = endpoint.number,
      .endpoint_name = endpoint.rule.name,
      .owner = endpoint.rule.owner,
      .hello = hello};
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(arrival.socket.Release());
  fds.push_back(std::move(arrival.pidfd));
  rated_log_.Write(
      spdlog::level::info, session.peer,
      fmt::format("{} goes to {}: endpoint {}, class {}, weight {}, quota {}, memory {}",
                  session.Who(), device.id, session.endpoint_name, ClassText(session.client_class),
                  session.weight, FormatBytes(memory.quota_bytes), IsolationName(isolation)));
  const std::uint64_t id = session.id;
  ++arrival.endpoint->counts->admitted;
  session_log_.Add(std::move(session));
  // The outbox now owns the descriptors and closes them once they are sent. From then on only the
  // worker detects EOF and the client's death.
  if (const Status sent = device.worker->Send(0, attach, std::move(fds)); !sent.ok()) {
    log_->error("device {}: its worker does not read its channel and is killed: {}", device.id,
                sent.message());
    EndSession(id, {StatusCode::kUnavailable,
                    "client rejected: device " + device.id + " does not answer"});
    device.worker->Kill();
  }
}

void Broker::Defer(Arrival arrival, std::optional<ipc::Hello> hello) {
  rated_log_.Write(spdlog::level::debug, arrival.peer,
                   "hello of " + arrival.peer.Who() + " waits for its device");
  const std::uint64_t number = ++last_deferred_;
  auto deferred = std::make_unique<DeferredHello>(context_, std::move(arrival), std::move(hello));
  deferred->timer.expires_after(options_.patience);
  // Looked up by number, because the hello may have been admitted by the time the handler runs.
  deferred->timer.async_wait([this, number](const boost::system::error_code& error) {
    if (!error) AdmitDeferred(number);
  });
  deferred_hellos_.emplace(number, std::move(deferred));
}

void Broker::AdmitDeferred(std::uint64_t number) {
  const auto found = deferred_hellos_.find(number);
  if (found == deferred_hellos_.end()) return;
  const std::unique_ptr<DeferredHello> deferred = std::move(found->second);
  deferred_hellos_.erase(found);
  if (!deferred->hello) return ReportDevices(std::move(deferred->arrival));
  Admit(std::move(deferred->arrival), *deferred->hello, /*may_wait=*/false);
}

// Called whenever deferred clients may now be admitted or must be rejected: after a device became
// ready, went missing, was drained or resumed, and when the server drains, resumes or stops.
void Broker::RetryDeferred() {
  std::vector<std::uint64_t> now;
  for (const auto& [number, deferred] : deferred_hellos_) {
    if (!deferred->hello) {
      if (phase_ != Phase::kServing || AreDevicesKnown()) now.push_back(number);
      continue;
    }
    const Result<DeviceEntry*> device = devices_.Choose(deferred->hello->device, session_log_,
                                                        deferred->arrival.endpoint->rule.devices);
    if (phase_ != Phase::kServing || !deferred->arrival.endpoint->is_open ||
        (device.ok() && ((*device)->TakesClients() || (*device)->IsAway()))) {
      now.push_back(number);
    }
  }
  for (const std::uint64_t number : now) AdmitDeferred(number);
}

void Broker::OnWhy(Arrival arrival) {
  const Result<ipc::Why> why = ipc::Decode<ipc::Why>(arrival.frame.payload);
  if (!why.ok()) return RejectArrival(std::move(arrival), why.status());
  if (AnswerWhy(arrival, why->session)) return;
  // A client may not wait for the end of another user's session.
  const LiveSession* const session = session_log_.Find(why->session);
  if (session == nullptr || session->peer.uid != arrival.peer.uid) {
    return RejectArrival(
        std::move(arrival),
        {StatusCode::kNotFound, "question rejected: session " + std::to_string(why->session) +
                                    " of this process is unknown: the server was restarted "
                                    "together with its worker, or the session ended long ago"});
  }
  const auto of_uid = std::ranges::count_if(deferred_whys_, [&](const auto& deferred) {
    return deferred.second->arrival.peer.uid == arrival.peer.uid;
  });
  if (deferred_whys_.size() >= kDeferredMax ||
      static_cast<std::size_t>(of_uid) >= options_.limits.waiting_per_uid_max) {
    return RejectArrival(std::move(arrival),
                         {StatusCode::kLimitExceeded,
                          "question rejected: session " + std::to_string(why->session) +
                              " has not ended, and too many others wait for the end of theirs"});
  }
  const std::uint64_t number = ++last_deferred_;
  auto deferred = std::make_unique<DeferredWhy>(context_, std::move(arrival), why->session);
  deferred->timer.expires_after(options_.admin_wait_max);
  deferred->timer.async_wait([this, number](const boost::system::error_code& error) {
    const auto found = deferred_whys_.find(number);
    if (error || found == deferred_whys_.end()) return;
    const std::unique_ptr<DeferredWhy> late = std::move(found->second);
    deferred_whys_.erase(found);
    RejectArrival(std::move(late->arrival),
                  {StatusCode::kNotFound, "question rejected: session " +
                                              std::to_string(late->session) + " has not ended"});
  });
  deferred_whys_.emplace(number, std::move(deferred));
}

bool Broker::AnswerWhy(Arrival& arrival, std::uint64_t session) {
  std::optional<Status> why = session_log_.WhyEnded(session, arrival.peer);
  if (!why) return false;
  if (why->ok()) why = Status(StatusCode::kDisconnected, "session ended: the client left");
  ipc::Outbox outbox;
  if (outbox.Add(arrival.frame.request, ipc::Ended{*why}).ok()) {
    (void)outbox.Flush(arrival.socket.get());
  }
  arrival.socket.Close();
  return true;
}

}  // namespace gpushared::server
