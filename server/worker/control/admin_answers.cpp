// SPDX-License-Identifier: Apache-2.0
// Requests of operators, forwarded by the broker.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <utility>
#include <vector>

#include "server/worker/control/explain.h"
#include "server/worker/control/worker_impl.h"

namespace gpushared::server {
namespace {

// The device thread normally answers within a loop iteration. If it has not answered within this
// time, the operator gets an error.
constexpr auto kStatsWaitMax = std::chrono::milliseconds(500);

}  // namespace

std::optional<Worker::Impl::Question> Worker::Impl::TakeQuestion(std::uint64_t token) {
  const auto found = questions_.find(token);
  if (found == questions_.end()) return {};
  Question question = std::move(found->second);
  questions_.erase(found);
  return question;
}

void Worker::Impl::Handle(const StatsTaken& message) {
  const std::optional<Question> asked = TakeQuestion(message.token);
  if (!asked) return;  // Already answered with a timeout.
  const std::string text =
      asked->admin.verb == ipc::AdminVerb::kStatus
          ? StatusJson(device_->info(), Facts(), SessionRows(), message.snapshot)
          : ClientsJson(device_->info(), SessionRows(), message.snapshot);
  Answer(*asked, text);
}

void Worker::Impl::Handle(const RequestAnswer& message) {
  const std::optional<Question> asked = TakeQuestion(message.token);
  if (!asked) return;
  const RequestReports& reports = *message.reports;
  const std::uint64_t client = asked->admin.client;
  if (reports.report.number != 0) {
    return Answer(*asked, ExplainJson(client, reports, SessionRows(), DeviceThread::Now()));
  }
  const std::string why =
      reports.last == 0
          ? fmt::format("client {} has no request, and had none", client)
          : fmt::format("request {} of client {} is not known: it keeps the last {}, from {} to {}",
                        asked->admin.request, client, RequestHistory::kReportsMax, reports.first,
                        reports.last);
  SendToBroker(asked->request, ipc::ChannelReply{.code = StatusCode::kNotFound, .text = why});
}

void Worker::Impl::Handle(const ClientParked& message) {
  const std::optional<Question> asked = TakeQuestion(message.token);
  if (!asked) return;
  if (message.status.ok()) {
    return Answer(*asked, ParkedJson(asked->admin.client, message.bytes, message.parking));
  }
  SendToBroker(asked->request, ipc::ChannelReply{.code = message.status.code(),
                                                 .text = std::string(message.status.message())});
}

void Worker::Impl::Park(const ipc::Admin& asked, std::uint64_t token) {
  Session* const session = Find(asked.client);
  const ParkClient request = {.token = token,
                              .session = asked.client,
                              .wakes = asked.verb == ipc::AdminVerb::kWake,
                              .is_held = asked.request == 1};
  Status status = {StatusCode::kNotFound, "the client has no session on this device"};
  if (session != nullptr) status = session->CheckParking();
  if (!status.ok()) return Handle(ClientParked{.token = token, .status = std::move(status)});
  if (request.wakes) return device_thread_->mailbox().Post(request);
  session->Park(request, [this, token](const Status& why) {
    Handle(ClientParked{.token = token, .status = why});
  });
}

void Worker::Impl::Answer(const Question& question, const std::string& text) {
  std::string_view rest = text;
  do {
    const std::string_view page = ipc::TakePage(rest);
    SendToBroker(question.request,
                 ipc::ChannelReply{
                     .code = StatusCode::kOk, .text = std::string(page), .is_last = rest.empty()});
  } while (!rest.empty());
}

WorkerFacts Worker::Impl::Facts() const {
  WorkerFacts facts;
  facts.generation = options_.generation;
  facts.pid = ::getpid();
  facts.policy = options_.settings.policy;
  facts.policy_options = options_.settings.policy_options;
  facts.age_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count();
  facts.is_draining = is_draining_;
  facts.device_thread = device_priority_.ToString();
  facts.control_thread = control_priority_.ToString();
  facts.executor_bytes = device_->executor_bytes();
  facts.numa = place_.ToString();
  facts.graphs_bytes = graphs_->held();
  facts.graphs_bytes_max = graphs_->total();
  facts.gpu = gpu_;
  facts.loader = reader_->Facts();
  if (const device::SwapStore* const store = environment_->store.get()) {
    facts.overcommit = {{}, store->total_bytes(), store->reserved_bytes(), store->used_bytes()};
  }
  return facts;
}

std::vector<SessionFacts> Worker::Impl::SessionRows() const {
  std::vector<SessionFacts> rows;
  for (const auto& [id, session] : sessions_) rows.push_back(session->Facts());
  return rows;
}

void Worker::Impl::Handle(const ipc::AdminRequest& request, ipc::Frame& frame) {
  const ipc::AdminVerb verb = request.admin.verb;
  if (verb == ipc::AdminVerb::kDevices) {
    return SendToBroker(
        frame.request,
        ipc::ChannelReply{.code = StatusCode::kOk, .text = DeviceJson(device_->info(), Facts())});
  }
  const bool explains = verb == ipc::AdminVerb::kExplain;
  const bool parks = verb == ipc::AdminVerb::kPark || verb == ipc::AdminVerb::kWake;
  if (!explains && !parks && verb != ipc::AdminVerb::kStatus && verb != ipc::AdminVerb::kClients) {
    return SendToBroker(frame.request,
                        ipc::ChannelReply{.code = StatusCode::kUnsupported,
                                          .text = "workers do not answer this request"});
  }
  const std::uint64_t token = next_token_++;
  auto timer = std::make_unique<boost::asio::steady_timer>(context_, kStatsWaitMax);
  timer->async_wait([this, token](const boost::system::error_code& error) {
    const auto found = questions_.find(token);
    if (error || found == questions_.end()) return;
    const std::uint32_t number = found->second.request;
    questions_.erase(found);
    SendToBroker(number,
                 ipc::ChannelReply{.code = StatusCode::kTimedOut,
                                   .text = "the device thread did not answer within 500 ms"});
  });
  questions_[token] = {frame.request, request.admin, std::move(timer)};
  if (parks) {
    Park(request.admin, token);
  } else if (explains) {
    device_thread_->mailbox().Post(AskRequest{token, request.admin.client, request.admin.request});
  } else {
    device_thread_->mailbox().Post(AskStats{token});
  }
}

}  // namespace gpushared::server
