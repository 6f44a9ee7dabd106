// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/answers.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "server/tools/web/metrics.h"

namespace gpushared::web {
namespace {

using nlohmann::json;

constexpr std::string_view kApi = "/api/";

HttpAnswer Rejection(const Status& why) {
  const std::string text(why.message());
  switch (why.code()) {
    case StatusCode::kNotFound:
      return {.code = 404, .body = text + "\n"};
    case StatusCode::kPermissionDenied:
      return {.code = 403, .body = text + "\n"};
    case StatusCode::kInvalidArgument:
      return {.code = 400, .body = text + "\n"};
    default:
      return {.code = 503, .body = "the server does not answer: " + text + "\n"};
  }
}

Status TakeNumber(std::string_view name, std::string_view text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return Status::Ok();
  return {StatusCode::kInvalidArgument, std::string(name) + " rejected: it is no number"};
}

// Parses "client=7&request=3"; the request is optional.
Result<ipc::Admin> ExplainQuestion(std::string_view query) {
  ipc::Admin question = {.verb = ipc::AdminVerb::kExplain};
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view part = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t name_end = std::min(part.find('='), part.size());
    const std::string_view name = part.substr(0, name_end);
    const std::string_view value = part.substr(std::min(name_end + 1, part.size()));
    Status status(StatusCode::kInvalidArgument,
                  "explain takes client=ID and request=NUMBER, and nothing else");
    if (name == "client") status = TakeNumber(name, value, question.client);
    if (name == "request") status = TakeNumber(name, value, question.request);
    if (!status.ok()) return status;
  }
  if (question.client == 0) {
    return Status(StatusCode::kInvalidArgument, "explain needs client=ID, as ps shows it");
  }
  return question;
}

// `name` is the name of the command in gpusharedctl.
Result<ipc::Admin> GetQuestion(std::string_view name, std::string_view query) {
  for (const ipc::AdminVerb verb : {ipc::AdminVerb::kStatus, ipc::AdminVerb::kClients,
                                    ipc::AdminVerb::kDevices, ipc::AdminVerb::kEndpoints}) {
    if (name == ipc::AdminVerbName(verb)) return ipc::Admin{.verb = verb};
  }
  if (name == ipc::AdminVerbName(ipc::AdminVerb::kExplain)) return ExplainQuestion(query);
  return Status(StatusCode::kNotFound,
                "unknown path: expected /api/status, /api/ps, /api/devices, /api/endpoints or "
                "/api/explain?client=ID");
}

}  // namespace

Answers::Answers(Ask ask, std::string host)
    : ask_(std::move(ask)), host_(std::move(host)), thread_([this] { Run(); }) {}

Answers::~Answers() { Stop(); }

void Answers::Stop() {
  {
    const MutexLock lock(mutex_);
    is_over_ = true;
  }
  is_asked_.notify_all();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  waiting_.clear();  // Drops the replies, because they keep their connections open.
}

void Answers::Handle(const HttpServer::Request& request, HttpServer::Reply reply) {
  Waiting asked = {.format = PreferredFormat(request.accept)};
  if (request.path == "/metrics") {
    asked.what = Waiting::What::kMetrics;
  } else if (request.path.starts_with(kApi)) {
    Result<ipc::Admin> question =
        GetQuestion(std::string_view(request.path).substr(kApi.size()), request.query);
    if (!question.ok()) return reply(Rejection(question.status()));
    asked.what = Waiting::What::kJson;
    asked.question = *std::move(question);
  } else if (request.path != "/healthz") {
    return reply(
        {.code = 404, .body = "unknown path: expected /, /events, /metrics, /healthz or /api/\n"});
  }
  asked.reply = std::move(reply);
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(std::move(asked));
  }
  is_asked_.notify_all();
}

void Answers::Run() {
  while (true) {
    std::vector<Waiting> asked;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !is_over_) is_asked_.wait(lock.waitable());
      if (is_over_) return;
      asked.swap(waiting_);
    }
    for (Waiting& each : asked) std::exchange(each.reply, nullptr)(AnswerTo(each));
  }
}

const Answers::CachedAnswer& Answers::AskedFor(const ipc::Admin& question) {
  if (question.verb == ipc::AdminVerb::kExplain) {
    return explained_.emplace(CachedAnswer{std::chrono::steady_clock::now(), ask_(question)});
  }
  const auto found = answers_.find(question.verb);
  if (found != answers_.end() &&
      std::chrono::steady_clock::now() - found->second.at <= kSharedFor) {
    return found->second;
  }
  Result<json> answer = ask_(question);
  // The time is measured from the end of the request, so that a slow server is not queried
  // continuously.
  const Time now = std::chrono::steady_clock::now();
  return answers_.insert_or_assign(question.verb, CachedAnswer{now, std::move(answer)})
      .first->second;
}

HttpAnswer Answers::AnswerTo(const Waiting& asked) {
  if (asked.what == Waiting::What::kMetrics) return Metrics(asked.format);
  const CachedAnswer& cached = AskedFor(asked.question);
  if (!cached.answer.ok()) return Rejection(cached.answer.status());
  if (asked.what == Waiting::What::kHealth) return {.body = "ok\n"};
  // Invalid UTF-8 is replaced, because names come from clients.
  return {.content_type = "application/json",
          .body = cached.answer->dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
}

HttpAnswer Answers::Metrics(TextFormat format) {
  const CachedAnswer& status = AskedFor({.verb = ipc::AdminVerb::kStatus});
  if (!status.answer.ok()) return Rejection(status.answer.status());
  const CachedAnswer& endpoints = AskedFor({.verb = ipc::AdminVerb::kEndpoints});
  if (!endpoints.answer.ok()) return Rejection(endpoints.answer.status());
  if (texts_at_ != status.at) texts_ = {};
  texts_at_ = status.at;
  std::optional<std::string>& text = texts_.at(static_cast<std::size_t>(format));
  if (!text) text = MetricsText(*status.answer, *endpoints.answer, host_, format);
  return {.content_type = std::string(ContentType(format)), .body = *text};
}

}  // namespace gpushared::web
