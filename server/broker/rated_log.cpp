// SPDX-License-Identifier: Apache-2.0
#include "server/broker/rated_log.h"

#include <chrono>
#include <optional>

#include <spdlog/spdlog.h>

namespace gpushared::server {

using std::chrono::steady_clock;

void RatedLog::Write(spdlog::level::level_enum level, const Peer& about, const std::string& text) {
  if (!log_->should_log(level)) return;
  if (rate_.Allow({.uid = about.uid, .pid = about.pid}, text.size(), steady_clock::now())) {
    return log_->log(level, "{}", text);
  }
  if (!report_is_due_) ReportLater();
}

void RatedLog::ReportLater() {
  const std::optional<LogRate::TimePoint> due = rate_.report_due();
  report_is_due_ = due.has_value();
  if (!due) return;
  timer_.expires_at(*due);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    if (const auto report = rate_.Report(steady_clock::now())) log_->warn("{}", *report);
    ReportLater();
  });
}

}  // namespace gpushared::server
