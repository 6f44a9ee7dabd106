// SPDX-License-Identifier: Apache-2.0
#include "server/broker/admin_request_handler.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ipc/share.h"
#include "scheduler/class_name.h"
#include "scheduler/types.h"
#include "server/broker/totals_json.h"
#include "server/config/config_values.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using boost::asio::posix::descriptor_base;
using nlohmann::json;

constexpr std::size_t kNameShownMax = 64;
constexpr std::chrono::seconds kSendTimeMax{5};
// Limit of a move, which the workers end earlier.
constexpr std::chrono::seconds kMoveTimeMax{25};
// Maximum size of a worker's answer, ten times that of a normal one.
constexpr std::size_t kWorkerAnswerBytesMax = std::size_t{4} << 20;
// Keys of a worker's status that are dropped, because the broker reports these facts itself, as
// worker_pid, sessions, up_s and state.
constexpr std::array<std::string_view, 4> kBrokerKeys = {"pid", "clients", "age_s", "draining"};

double SecondsSince(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

std::string Dump(const json& value) {
  // Names were checked to be UTF-8; `replace` keeps a bug in that check from raising an exception.
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json ClientJson(const LiveSession& session, pid_t worker_pid) {
  return {{"client", session.id},
          {"name", session.name},
          {"pid", session.peer.pid},
          {"uid", session.peer.uid},
          {"gid", session.peer.gid},
          {"class", scheduler::ClassName(session.client_class)},
          {"weight", session.weight},
          {"endpoint", session.endpoint_name},
          {"device", session.device},
          {"worker_pid", worker_pid},
          {"generation", session.generation},
          {"quota_bytes", session.quota_bytes},
          {"guaranteed_bytes", session.guaranteed_bytes},
          {"isolation", IsolationName(session.isolation)},
          {"connected_s", SecondsSince(session.since)}};
}

Status NoSuchClient(std::uint64_t id) {
  return {StatusCode::kNotFound,
          "client " + std::to_string(id) + " is not connected; see gpusharedctl ps"};
}

}  // namespace

// One query to a set of workers, from the time it is sent until the operator has been answered.
struct AdminRequestHandler::Round {
  Round(boost::asio::io_context& context, Arrival from, const ipc::Admin& question, std::uint32_t n)
      : number(n), arrival(std::move(from)), asked(question), timer(context) {}

  std::uint32_t number;
  Arrival arrival;
  ipc::Admin asked;
  std::set<std::string> missing;             // Devices that have not answered.
  std::set<std::string> failed;              // Devices whose worker could not answer.
  std::map<std::string, std::string> begun;  // By device: the pages received so far.
  std::map<std::string, json> answers;       // By device.
  Status rejection;                          // Why a request about one client failed.
  // Set once a worker has carried out the request.
  bool done = false;
  boost::asio::steady_timer timer;
};

// A reply that is being sent, page by page.
struct AdminRequestHandler::Sending {
  Sending(boost::asio::io_context& context, ipc::UniqueFd connection)
      : socket(context, connection.Release()), timer(context) {}

  boost::asio::posix::stream_descriptor socket;
  boost::asio::steady_timer timer;
  std::uint32_t request = 0;
  StatusCode code = StatusCode::kOk;
  std::string text;
  std::string_view rest;  // Part of `text` that is not in a page yet.
  ipc::Outbox outbox;
};

AdminRequestHandler::AdminRequestHandler(boost::asio::io_context& context, Surroundings around)
    : context_(context), around_(std::move(around)), started_(std::chrono::steady_clock::now()) {}

AdminRequestHandler::~AdminRequestHandler() = default;

void AdminRequestHandler::Serve(Arrival arrival, const ipc::Admin& asked, bool is_operator) {
  const std::size_t rounds_max = is_operator ? kRoundsMax : kRoundsMax / 2;
  if (rounds_.size() + sending_.size() >= rounds_max) {
    const Status why(StatusCode::kLimitExceeded, "request rejected: " + std::to_string(rounds_max) +
                                                     " others are being answered, try again");
    Reject(std::move(arrival.socket), arrival.frame.request, why);
    return;
  }
  if (asked.verb == ipc::AdminVerb::kDrain) {
    around_.log("drain requested by " + arrival.peer.Who());
    const json reply = {{"draining", true}, {"sessions", around_.session_log.live().size()}};
    Answer(std::move(arrival), Status::Ok(), Dump(reply));
    around_.drain();
    return;
  }
  const std::uint32_t number = ++last_number_;
  const auto [at, added] =
      rounds_.emplace(number, std::make_unique<Round>(context_, std::move(arrival), asked, number));
  Round& round = *at->second;
  if (ipc::GetFacts(asked.verb).names_client) {
    AskOne(round);
  } else if (asked.verb != ipc::AdminVerb::kEndpoints) {
    AskAll(round);
  }
  if (round.missing.empty()) return Conclude(number);
  const bool moves = asked.verb == ipc::AdminVerb::kMove;
  round.timer.expires_after(moves ? kMoveTimeMax : around_.wait_max);
  round.timer.async_wait([this, number](const boost::system::error_code& error) {
    if (!error) Conclude(number);
  });
}

void AdminRequestHandler::AskAll(Round& round) {
  for (DeviceEntry& device : around_.devices.entries()) {
    if (!device.CanBeQueried()) continue;
    if (device.worker->Send(round.number, ipc::AdminRequest{round.asked}).ok()) {
      round.missing.insert(device.id);
    }
  }
}

void AdminRequestHandler::AskOne(Round& round) {
  const LiveSession* session = around_.session_log.Find(round.asked.client);
  if (session == nullptr) {
    round.rejection = NoSuchClient(round.asked.client);
    return;
  }
  DeviceEntry* device = around_.devices.Find(session->device);
  if (round.asked.weight && *round.asked.weight > kWeightMax) {
    round.rejection = {StatusCode::kInvalidArgument,
                       "weight rejected: asked for " + std::to_string(*round.asked.weight) +
                           ", allowed: 1 to " + std::to_string(kWeightMax)};
    return;
  }
  Status sent;
  if (round.asked.verb == ipc::AdminVerb::kTerminate) {
    around_.log(session->Who() + " is terminated by " + round.arrival.peer.Who());
    sent = device->worker->Send(round.number,
                                ipc::TerminateSession{session->id, "the operator ended it"});
  } else if (round.asked.verb == ipc::AdminVerb::kMove) {
    around_.log("move of " + session->Who() + " to " + Escaped(round.asked.terms, kNameShownMax) +
                " requested by " + round.arrival.peer.Who());
    sent = around_.move(*session, round.asked.terms, round.number);
  } else if (round.asked.verb != ipc::AdminVerb::kSet) {  // The worker makes the whole answer.
    if (round.asked.verb != ipc::AdminVerb::kExplain) {
      around_.log(std::string(ipc::AdminVerbName(round.asked.verb)) + " of " + session->Who() +
                  " requested by " + round.arrival.peer.Who());
    }
    sent = device->worker->Send(round.number, ipc::AdminRequest{round.asked});
  } else {
    sent =
        device->worker->Send(round.number, ipc::SetSession{.session = session->id,
                                                           .client_class = round.asked.client_class,
                                                           .weight = round.asked.weight,
                                                           .max_share = round.asked.max_share});
  }
  if (!sent.ok()) {
    round.rejection = sent;
    return;
  }
  round.missing.insert(device->id);
}

void AdminRequestHandler::OnReply(const std::string& device, std::uint32_t request,
                                  ipc::ChannelReply reply) {
  const auto found = rounds_.find(request);
  if (found == rounds_.end()) return;  // Too late: the operator was answered without this reply.
  Round& round = *found->second;
  if (!round.missing.contains(device)) return;
  std::string& text = round.begun[device];
  text += reply.text;
  const bool is_too_long = text.size() > kWorkerAnswerBytesMax;
  if (!reply.is_last && !is_too_long) return;
  round.missing.erase(device);
  if (is_too_long) {
    reply.code = StatusCode::kLimitExceeded;
    text = "the answer of " + device + " has more than " + FormatBytes(kWorkerAnswerBytesMax);
  }
  if (reply.code != StatusCode::kOk) {
    round.rejection = {reply.code, std::move(text)};
    round.failed.insert(device);
  } else {
    round.done = true;
    json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object()) round.answers.emplace(device, std::move(parsed));
  }
  if (round.missing.empty()) Conclude(request);
}

void AdminRequestHandler::OnWorkerGone(const std::string& device) {
  std::vector<std::uint32_t> complete;
  for (auto& [number, round] : rounds_) {
    if (round->missing.erase(device) > 0 && round->missing.empty()) complete.push_back(number);
  }
  for (const std::uint32_t number : complete) Conclude(number);
}

void AdminRequestHandler::OnSessionEnded(std::uint64_t session) {
  std::vector<std::uint32_t> complete;
  for (auto& [number, round] : rounds_) {
    if (round->asked.verb != ipc::AdminVerb::kTerminate || round->asked.client != session) continue;
    round->done = true;
    complete.push_back(number);
  }
  for (const std::uint32_t number : complete) Conclude(number);
}

void AdminRequestHandler::OnMoved(std::uint64_t session, const std::string& text) {
  std::vector<std::uint32_t> complete;
  for (auto& [number, round] : rounds_) {
    if (round->asked.verb != ipc::AdminVerb::kMove || round->asked.client != session) continue;
    round->done = true;
    round->answers.emplace("", json::parse(text, nullptr, /*allow_exceptions=*/false));
    complete.push_back(number);
  }
  for (const std::uint32_t number : complete) Conclude(number);
}

void AdminRequestHandler::Conclude(std::uint32_t number) {
  const auto found = rounds_.find(number);
  if (found == rounds_.end()) return;
  const std::unique_ptr<Round> round = std::move(found->second);
  rounds_.erase(found);
  round->timer.cancel();
  if (!ipc::GetFacts(round->asked.verb).names_client) {
    return Answer(std::move(round->arrival), Status::Ok(), Compose(*round));
  }
  if (!round->done) {
    Status why = round->rejection;
    if (why.ok()) {
      why = {StatusCode::kTimedOut, "client " + std::to_string(round->asked.client) +
                                        ": its worker did not answer within " +
                                        FormatDuration(around_.wait_max)};
    }
    return Answer(std::move(round->arrival), why, "");
  }
  LiveSession* session = around_.session_log.Find(round->asked.client);
  if (round->asked.verb == ipc::AdminVerb::kSet && session != nullptr) {
    session->client_class = round->asked.client_class.value_or(session->client_class);
    session->weight = round->asked.weight.value_or(session->weight);
    around_.log(session->Who() + " has now class " +
                std::string(scheduler::ClassName(session->client_class)) + " and weight " +
                std::to_string(session->weight) +
                (round->asked.max_share
                     ? " and max_share " + ipc::ShareText(*round->asked.max_share)
                     : std::string()) +
                ", set by " + round->arrival.peer.Who());
  }
  Answer(std::move(round->arrival), Status::Ok(), Compose(*round));
}

std::string AdminRequestHandler::Compose(const Round& round) const {
  json reply;
  switch (round.asked.verb) {
    case ipc::AdminVerb::kStatus:
      reply = {{"server", Server()}, {"devices", Devices(round)}};
      AddTotals(reply["devices"]);
      break;
    case ipc::AdminVerb::kDevices:
      reply = {{"devices", Devices(round)}, {"unused_devices", Unused()}};
      break;
    case ipc::AdminVerb::kClients:
      reply = {{"clients", Clients(round)}};
      break;
    case ipc::AdminVerb::kTerminate:
      reply = {{"terminated", round.asked.client}};
      break;
    case ipc::AdminVerb::kSet: {
      const LiveSession* session = around_.session_log.Find(round.asked.client);
      if (session != nullptr) reply = {{"client", ClientJson(*session, 0)}};
      break;
    }
    case ipc::AdminVerb::kExplain:
    case ipc::AdminVerb::kPark:
    case ipc::AdminVerb::kWake:
    case ipc::AdminVerb::kMove:
      if (!round.answers.empty()) reply = round.answers.begin()->second;
      break;
    case ipc::AdminVerb::kEndpoints:
      reply = {{"endpoints", Endpoints()}};
      break;
    case ipc::AdminVerb::kDrain:
    case ipc::AdminVerb::kLease:
    case ipc::AdminVerb::kReload:
    case ipc::AdminVerb::kUpgrade:
    case ipc::AdminVerb::kResume:
    case ipc::AdminVerb::kTrace:
      break;  // Answered elsewhere, without a round.
  }
  std::set<std::string> silent = round.missing;
  silent.insert(round.failed.begin(), round.failed.end());
  if (!silent.empty()) reply["silent_devices"] = silent;
  return Dump(reply);
}

json AdminRequestHandler::NewClientsJson() const {
  json bounds = {{"max_share_percent", around_.new_clients.max_share / 10.0}};
  if (around_.new_clients.usual_class) {
    bounds["class"] = scheduler::ClassName(*around_.new_clients.usual_class);
  }
  for (const auto& [id, quota] : around_.new_clients.memory) {
    const DeviceEntry* const device = around_.devices.Find(id);
    if (device != nullptr) {
      bounds["memory_bytes"][id] = quota.Of(device->description.memory_bytes);
    }
  }
  return bounds;
}

json AdminRequestHandler::Server() const {
  return {{"version", around_.version},
          {"pid", ::getpid()},
          {"uptime_s", SecondsSince(started_)},
          {"policy", around_.policy},
          {"socket", around_.socket},
          {"state", around_.phase()},
          {"upgrades", around_.upgrades},
          {"upgrade_failure", around_.upgrade_failure},
          {"sessions", around_.session_log.live().size()},
          {"new_clients", NewClientsJson()},
          {"rejected_requests", around_.counts.RejectedRequests()}};
}

json AdminRequestHandler::Devices(const Round& round) const {
  json devices = json::array();
  for (const DeviceEntry& device : around_.devices.entries()) {
    // Until a worker has opened the device, only the facts of the inventory are known.
    const device::SelectedDevice& selected = device.selected;
    const bool known = device.was_ready;
    json entry = {
        {"device", device.id},
        {"kind", device.description.kind},
        {"name", known ? device.description.name : selected.name},
        {"memory_bytes", known ? device.description.memory_bytes : selected.memory_bytes},
        {"multiprocessors", known ? device.description.multiprocessors : selected.multiprocessors},
        {"state", device.is_silent ? "silent" : StateName(device.state)},
        {"generation", device.generation},
        {"worker_pid", device.worker ? device.worker->pid() : 0},
        {"sessions", around_.session_log.On(device.id).size()},
        {"up_s", device.worker ? SecondsSince(device.started) : 0.0}};
    if (!selected.uuid.empty()) entry["uuid"] = selected.uuid;
    if (!selected.pci_bus.empty()) entry["pci_bus"] = selected.pci_bus;
    if (device.is_outdated) entry["outdated"] = true;
    if (!device.last_death.empty()) entry["last_death"] = device.last_death;
    if (device.state == DeviceEntry::State::kMissing) entry["missing"] = device.missing;
    const auto answer = round.answers.find(device.id);
    if (answer != round.answers.end()) {
      for (const auto& [key, value] : answer->second.items()) {
        const bool is_reported =
            std::find(kBrokerKeys.begin(), kBrokerKeys.end(), key) != kBrokerKeys.end();
        if (!is_reported && !entry.contains(key)) entry[key] = value;
      }
    }
    devices.push_back(std::move(entry));
  }
  return devices;
}

void AdminRequestHandler::AddTotals(json& devices) const {
  std::set<std::string> open;
  for (const auto& [number, endpoint] : around_.endpoints.endpoints()) {
    open.insert(endpoint->rule.name);
  }
  for (json& row : devices) {
    const DeviceEntry* const device = around_.devices.Find(row["device"].get<std::string>());
    const auto totals = DeviceTotals::Read(around_.totals_file(*device));
    if (totals.ok()) {
      row["totals"] = TotalsJson(**totals, open, std::chrono::steady_clock::now());
    } else {
      row["totals_missing"] = totals.status().message();
    }
  }
}

json AdminRequestHandler::Unused() const {
  json unused = json::array();
  for (const device::UnusedDevice& device : around_.unused_devices) {
    unused.push_back({{"device", device.id}, {"name", device.name}, {"why", device.why}});
  }
  return unused;
}

std::string AdminRequestHandler::ReloadJson(const std::vector<std::string>& need_restart) {
  return Dump({{"reloaded", true}, {"need_restart", need_restart}});
}

json AdminRequestHandler::Endpoints() const {
  json rows = json::array();
  for (const auto& [number, endpoint] : around_.endpoints.endpoints()) {
    const EndpointRule& rule = endpoint->rule;
    json row = {{"endpoint", rule.name},
                {"socket", endpoint->socket},
                {"sessions", around_.session_log.Through(number).size()},
                {"admitted", endpoint->counts->admitted},
                {"rejected", endpoint->counts->Rejected()},
                {"open", endpoint->is_open}};
    if (!endpoint->IsMain()) {
      row["class"] = scheduler::ClassName(rule.UsualClass());
      row["highest_class"] = scheduler::ClassName(rule.highest_class);
      row["weight"] = rule.usual_weight;
      row["max_share_percent"] = rule.max_share / 10.0;
      if (rule.client_max_share) {
        row["client_max_share_percent"] = *rule.client_max_share / 10.0;
      }
      row["latency_targets"] = rule.AllowsLatencyTargets();
      row["memory"] = rule.memory.ToString();
      row["client_memory"] = rule.client_memory.value_or(rule.memory).ToString();
      if (rule.memory_limit) row["memory_limit"] = rule.memory_limit->ToString();
      row["clients_max"] = rule.clients_max;
      if (!rule.budget.empty()) row["budget"] = rule.budget;
      row["devices"] = rule.devices;
      row["who"] = rule.who.empty() ? "everyone" : SubjectsText(rule.who);
    }
    if (!endpoint->lessee.empty()) row["lessee"] = endpoint->lessee;
    if (!endpoint->is_held) row["held"] = false;
    if (!rule.owner.empty()) row["owner"] = rule.owner;
    rows.push_back(std::move(row));
  }
  return rows;
}

json AdminRequestHandler::Clients(const Round& round) const {
  // Facts that a worker reports about its own sessions. A worker cannot describe sessions of other
  // devices.
  std::map<std::pair<std::string_view, std::uint64_t>, const json*> facts;
  for (const auto& [device, answer] : round.answers) {
    if (!answer.contains("clients")) continue;
    for (const json& each : answer["clients"]) {
      const auto id = each.find("client");
      if (id != each.end() && id->is_number_unsigned()) {
        facts[{device, id->get<std::uint64_t>()}] = &each;
      }
    }
  }
  json clients = json::array();
  for (const auto& [id, session] : around_.session_log.live()) {
    const DeviceEntry* device = around_.devices.Find(session.device);
    json entry = ClientJson(session, device->worker ? device->worker->pid() : 0);
    const auto found = facts.find({session.device, id});
    if (found != facts.end()) entry.update(*found->second);
    clients.push_back(std::move(entry));
  }
  return clients;
}

void AdminRequestHandler::Answer(Arrival arrival, const Status& rejection, std::string text) {
  const std::uint32_t number = ++last_number_;
  auto sending = std::make_unique<Sending>(context_, arrival.socket.Release());
  sending->request = arrival.frame.request;
  sending->code = rejection.code();
  sending->text = std::move(text);
  if (!rejection.ok()) sending->text = rejection.message();
  sending->rest = sending->text;
  AddPage(*sending);
  sending->timer.expires_after(kSendTimeMax);
  sending->timer.async_wait([this, number](const boost::system::error_code& error) {
    if (!error) sending_.erase(number);
  });
  sending_.emplace(number, std::move(sending));
  SendOn(number);
}

// Adds one page at a time, so that a reply of any length needs only its text and one page of
// memory.
void AdminRequestHandler::AddPage(Sending& sending) {
  const std::string_view page = ipc::TakePage(sending.rest);
  const ipc::AdminReply reply = {
      .code = sending.code, .text = std::string(page), .is_last = sending.rest.empty()};
  (void)sending.outbox.Add(sending.request, reply);
}

void AdminRequestHandler::SendOn(std::uint32_t number) {
  const auto found = sending_.find(number);
  if (found == sending_.end()) return;
  Sending& sending = *found->second;
  Result<bool> sent = sending.outbox.Flush(sending.socket.native_handle());
  while (sent.ok() && *sent && !sending.rest.empty()) {
    AddPage(sending);
    sent = sending.outbox.Flush(sending.socket.native_handle());
  }
  if (!sent.ok() || *sent) {
    sending_.erase(found);
    return;
  }
  sending.socket.async_wait(descriptor_base::wait_write,
                            [this, number](const boost::system::error_code& error) {
                              if (!error) SendOn(number);
                            });
}

}  // namespace gpushared::server
