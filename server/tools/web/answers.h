// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_ANSWERS_H_
#define GPUSHARED_SERVER_TOOLS_WEB_ANSWERS_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "ipc/wire/control.h"
#include "server/tools/web/exposition.h"
#include "server/tools/web/http_server.h"

#include <nlohmann/json.hpp>

namespace gpushared::web {

// Answers requests for /metrics, /healthz and /api/. Identical requests within a second share one
// answer of the server, so that scrapers do not slow it down.
//
// Thread-safe. A separate thread queries the server.
class Answers {
 public:
  static constexpr std::chrono::seconds kSharedFor{1};
  // May block; called on the thread of this object.
  using Ask = std::function<Result<nlohmann::json>(const ipc::Admin& question)>;

  Answers(Ask ask, std::string host);
  ~Answers();
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  // Waits until a running query to the server has ended; sends no replies afterwards. Idempotent.
  void Stop();

  // Replies immediately, or on the thread of this object.
  void Handle(const HttpServer::Request& request, HttpServer::Reply reply);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Waiting {
    enum class What : std::uint8_t { kMetrics, kHealth, kJson };

    What what = What::kHealth;
    TextFormat format = TextFormat::kPlain;  // For kMetrics.
    ipc::Admin question;                     // For kJson.
    HttpServer::Reply reply;
  };
  struct CachedAnswer {
    Time at;
    Result<nlohmann::json> answer;
  };

  void Run();
  HttpAnswer AnswerTo(const Waiting& asked);
  HttpAnswer Metrics(TextFormat format);
  // Returns the server's answer, cached for up to kSharedFor.
  const CachedAnswer& AskedFor(const ipc::Admin& question);

  const Ask ask_;
  const std::string host_;
  // Used only by the thread of this object.
  std::map<ipc::AdminVerb, CachedAnswer> answers_;
  // Latest answer to kExplain. Earlier ones are not kept, because each is about another request.
  std::optional<CachedAnswer> explained_;
  Time texts_at_;
  // Texts by format, made at texts_at_.
  std::array<std::optional<std::string>, 2> texts_;

  Mutex mutex_;
  std::condition_variable is_asked_;
  // Requests that wait, at most one per connection.
  std::vector<Waiting> waiting_ GPUSHARED_GUARDED_BY(mutex_);
  bool is_over_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_ANSWERS_H_
