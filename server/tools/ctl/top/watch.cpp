// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/top/watch.h"

#include <algorithm>
#include <utility>

#include "server/tools/ctl/report.h"
#include "server/tools/ctl/top/units.h"

#include <nlohmann/json.hpp>

namespace gpushared::server::top {
namespace {

// Bounds how long keys wait if the server's queue of connections is full; the request is then
// retried.
constexpr std::chrono::milliseconds kConnectTimeMax{50};
constexpr std::chrono::seconds kAgainAfterFailure{1};
constexpr std::size_t kKeysWaitingMax = 8;

double Seconds(Watch::Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void Watch::AskFor(const ipc::Admin& question) {
  if (keys_waiting_.size() < kKeysWaitingMax) return keys_waiting_.push_back(question);
  view_.ShowMessage(
      "rejected: " + std::to_string(kKeysWaitingMax) + " requests already wait for the server",
      true);
}

Watch::Clock::time_point Watch::Wait(std::vector<pollfd>& fds) const {
  Clock::time_point until = view_.is_paused() ? Clock::time_point::max() : next_;
  if (figures_) until = figures_->overdue;
  for (const std::optional<Asked>* each : {&figures_, &key_}) {
    if (!*each) continue;
    fds.push_back({.fd = (*each)->inquiry.fd(), .events = POLLIN, .revents = 0});
    until = std::min(until, (*each)->overdue);
  }
  // Wakes every second, because the message about a lost server counts seconds.
  if (lost_since_) until = std::min(until, Clock::now() + std::chrono::seconds(1));
  return until;
}

bool Watch::Go(Clock::time_point now) {
  const bool keys = GoKeys(now), figures = GoFigures(now);
  if (lost_since_) ShowLost(now);
  return keys || figures || lost_since_;
}

bool Watch::Due(Clock::time_point now) const { return now >= next_ && !view_.is_paused(); }

std::optional<Watch::Asked> Watch::Begin(const ipc::Admin& question, Clock::time_point now,
                                         Status& why) {
  Result<admin::Inquiry> inquiry = admin::Inquiry::Begin(socket_, question, now + kConnectTimeMax);
  why = inquiry.status();
  if (!inquiry.ok()) return std::nullopt;
  return Asked{
      .inquiry = *std::move(inquiry), .question = question, .overdue = now + admin::kAnswerTimeMax};
}

bool Watch::GoFigures(Clock::time_point now) {
  Status why;
  if (!figures_) {
    if (!Due(now)) return false;
    next_ = now + every_;
    figures_ = Begin({.verb = ipc::AdminVerb::kStatus}, now, why);
    if (!figures_) Lose(why, now);
    return !figures_;
  }
  const Result<std::optional<nlohmann::json>> answer = figures_->inquiry.Receive();
  if (answer.ok() && !*answer) {
    if (now < figures_->overdue) return false;
    figures_.reset();
    Lose({StatusCode::kTimedOut, "the server did not answer in time"}, now);
    return true;
  }
  const ipc::AdminVerb verb = figures_->question.verb;
  figures_.reset();
  if (!answer.ok()) {
    Lose(answer.status(), now);
    return true;
  }
  if (verb == ipc::AdminVerb::kStatus) {
    ReadDevices(**answer, Seconds(now.time_since_epoch()), now_);
    figures_ = Begin({.verb = ipc::AdminVerb::kClients}, now, why);
    if (!figures_) Lose(why, now);
    return !figures_;
  }
  TakeFigures(**answer, now);
  return true;
}

void Watch::TakeFigures(const nlohmann::json& answer, Clock::time_point now) {
  ReadClients(answer, Seconds(now.time_since_epoch()), now_);
  Figures figures = Between(before_ ? &*before_ : nullptr, now_);
  history_.Add(figures);
  view_.Take(std::move(figures));
  // Rates require two samples, so the second one follows soon.
  if (!before_) next_ = now + std::min<Clock::duration>(every_, std::chrono::milliseconds(300));
  before_ = std::exchange(now_, {});
  lost_since_.reset();
  view_.SetLost(std::nullopt);
}

void Watch::Lose(const Status& why, Clock::time_point now) {
  if (!before_) first_failure_ = why;
  if (!lost_since_) lost_since_ = now;
  lost_why_ = why.message();
  history_.AddHole();
  next_ = now + std::max<Clock::duration>(every_, kAgainAfterFailure);
}

void Watch::ShowLost(Clock::time_point now) {
  view_.SetLost("no figures for " + AgeText(Seconds(now - *lost_since_)) + ": " + lost_why_);
}

bool Watch::GoKeys(Clock::time_point now) {
  Status why;
  if (!key_) {
    if (keys_waiting_.empty()) return false;
    const ipc::Admin question = keys_waiting_.front();
    keys_waiting_.erase(keys_waiting_.begin());
    key_ = Begin(question, now, why);
    if (!key_) view_.ShowMessage(std::string(why.message()), true);
    return !key_;
  }
  const Result<std::optional<nlohmann::json>> answer = key_->inquiry.Receive();
  if (answer.ok() && !*answer) {
    if (now < key_->overdue) return false;
    view_.ShowMessage("the server did not answer in time", true);
  } else if (!answer.ok()) {
    view_.ShowMessage(std::string(answer.status().message()), true);
  } else {
    ShowDone(key_->question, **answer);
  }
  key_.reset();
  return true;
}

void Watch::ShowDone(const ipc::Admin& question, const nlohmann::json& answer) {
  const std::string who = "client " + std::to_string(question.client);
  if (question.verb == ipc::AdminVerb::kExplain) {
    view_.ShowText("why the slowest request of " + who + " took so long", ExplainReport(answer));
    return;
  }
  view_.ShowMessage(
      question.client_class
          ? who + " has now class " +
                std::string(kClassNames.at(static_cast<std::size_t>(*question.client_class)))
          : who + " has now weight " + std::to_string(question.weight.value_or(0)),
      false);
  // Refreshes at once, so that the table shows the change.
  if (!figures_) next_ = {};
}

}  // namespace gpushared::server::top
