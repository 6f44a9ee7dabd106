// SPDX-License-Identifier: Apache-2.0
#include "server/web/answers.h"

#include <utility>

#include "server/web/metrics.h"

namespace gpushared::web {

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
}

void Answers::Handle(const HttpServer::Request& request, HttpServer::Reply reply) {
  const bool wants_metrics = request.path == "/metrics";
  if (!wants_metrics && request.path != "/healthz") {
    return reply({.code = 404, .body = "there are /metrics and /healthz\n"});
  }
  {
    const MutexLock lock(mutex_);
    waiting_.push_back({wants_metrics, PreferredFormat(request.accept), std::move(reply)});
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
    if (!told_at_ || std::chrono::steady_clock::now() - *told_at_ > kSharedFor) AskServer();
    for (Waiting& each : asked) std::exchange(each.reply, nullptr)(AnswerTo(each));
  }
}

void Answers::AskServer() {
  texts_ = {};
  Result<nlohmann::json> status = ask_(ipc::AdminVerb::kStatus);
  Result<nlohmann::json> entrances =
      status.ok() ? ask_(ipc::AdminVerb::kEntrances) : Result<nlohmann::json>(status.status());
  why_not_ = entrances.status();
  if (entrances.ok()) {
    status_ = *std::move(status);
    entrances_ = *std::move(entrances);
  }
  // From its end on, so that a server that is slow to answer is not asked all the time.
  told_at_ = std::chrono::steady_clock::now();
}

HttpAnswer Answers::AnswerTo(const Waiting& asked) {
  if (!why_not_.ok()) {
    return {.code = 503,
            .body = "the server does not answer: " + std::string(why_not_.message()) + "\n"};
  }
  if (!asked.wants_metrics) return {.body = "ok\n"};
  std::optional<std::string>& text = texts_.at(static_cast<std::size_t>(asked.format));
  if (!text) text = MetricsText(status_, entrances_, host_, asked.format);
  return {.content_type = std::string(ContentType(asked.format)), .body = *text};
}

}  // namespace gpushared::web
