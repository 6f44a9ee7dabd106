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

// The lines of a worker's log that its clients cause, within the bounds of LogRate: per client,
// per uid and in all.
//
// Thread-safe: executor threads call it.
class ClientLog {
 public:
  explicit ClientLog(std::uint32_t own_uid) : rate_(own_uid) {}
  ClientLog(std::uint32_t own_uid, const LogRate::Limits& limits) : rate_(own_uid, limits) {}

  // Whose session it is, until Forget. Lines about sessions that are not known count as those of
  // one stranger.
  void Know(std::uint64_t session, LogRate::Cause cause);
  void Forget(std::uint64_t session);

  // False when the line was held back.
  bool Write(spdlog::level::level_enum level, LogRate::Cause cause, const std::string& text);
  bool GetWrite(spdlog::level::level_enum level, std::uint64_t session, const std::string& text);
  // Says how many lines were held back, when it is time to. To be called now and then.
  void Report();

 private:
  Mutex mutex_;
  LogRate rate_ GPUSHARED_GUARDED_BY(mutex_);
  // By session: at most as many as there are.
  std::map<std::uint64_t, LogRate::Cause> causes_ GPUSHARED_GUARDED_BY(mutex_);
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_CLIENT_LOG_H_
