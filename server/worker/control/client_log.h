// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_CLIENT_LOG_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_CLIENT_LOG_H_

#include <cstdint>
#include <map>
#include <string>

#include <spdlog/common.h>

#include "gpushared/mutex.h"

#include "server/platform/log_rate.h"

namespace gpushared::server {

// Writes the log lines that clients of a worker cause. LogRate limits them per client, per uid and
// in total.
//
// Thread-safe: executor threads call it.
class ClientLog {
 public:
  explicit ClientLog(std::uint32_t own_uid) : rate_(own_uid) {}
  ClientLog(std::uint32_t own_uid, const LogRate::Limits& limits) : rate_(own_uid, limits) {}

  // Records the uid and the process to which lines about the session are charged, until Forget. All
  // lines about unknown sessions are charged to one fictitious user.
  void Know(std::uint64_t session, LogRate::Cause cause);
  void Forget(std::uint64_t session);

  // Return false if the line was suppressed.
  bool Write(spdlog::level::level_enum level, LogRate::Cause cause, const std::string& text);
  bool GetWrite(spdlog::level::level_enum level, std::uint64_t session, const std::string& text);
  // Logs how many lines were suppressed, if a report is due. Must be called periodically.
  void Report();

 private:
  Mutex mutex_;
  LogRate rate_ GPUSHARED_GUARDED_BY(mutex_);
  // By session; bounded by the number of sessions.
  std::map<std::uint64_t, LogRate::Cause> causes_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_CLIENT_LOG_H_
