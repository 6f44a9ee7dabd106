// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_RATED_LOG_H_
#define GPUSHARED_SERVER_BROKER_RATED_LOG_H_

#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/logger.h>

#include "server/broker/access_rules.h"
#include "server/platform/log_rate.h"

namespace gpushared::server {

// Writes log lines that clients cause, within the bounds of LogRate, and reports how many were
// suppressed.
//
// Confined to the thread that runs `context`. Must be destroyed only while `context` is not
// running.
class RatedLog {
 public:
  RatedLog(boost::asio::io_context& context, std::shared_ptr<spdlog::logger> log, LogRate rate)
      : log_(std::move(log)), rate_(std::move(rate)), timer_(context) {}

  void Write(spdlog::level::level_enum level, const Peer& about, const std::string& text);
  // Cancels the next report.
  void Stop() { timer_.cancel(); }

 private:
  void ReportLater();

  std::shared_ptr<spdlog::logger> log_;
  LogRate rate_;
  boost::asio::steady_timer timer_;
  bool report_is_due_ = false;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_RATED_LOG_H_
