// SPDX-License-Identifier: Apache-2.0
#include "server/worker/control/client_log.h"

#include <chrono>
#include <limits>
#include <optional>

#include <spdlog/spdlog.h>

namespace gpushared::server {

namespace {

// No user has this uid.
constexpr LogRate::Cause kUnknownClient{.uid = std::numeric_limits<std::uint32_t>::max(), .pid = 0};

}  // namespace

void ClientLog::Know(std::uint64_t session, LogRate::Cause cause) {
  const MutexLock lock(mutex_);
  causes_[session] = cause;
}

void ClientLog::Forget(std::uint64_t session) {
  const MutexLock lock(mutex_);
  causes_.erase(session);
}

bool ClientLog::Write(spdlog::level::level_enum level, LogRate::Cause cause,
                      const std::string& text) {
  {
    const MutexLock lock(mutex_);
    if (!rate_.Allow(cause, text.size(), std::chrono::steady_clock::now())) return false;
  }
  spdlog::log(level, "{}", text);
  return true;
}

bool ClientLog::GetWrite(spdlog::level::level_enum level, std::uint64_t session,
                         const std::string& text) {
  LogRate::Cause cause = kUnknownClient;
  {
    const MutexLock lock(mutex_);
    if (const auto found = causes_.find(session); found != causes_.end()) cause = found->second;
  }
  return Write(level, cause, text);
}

void ClientLog::Report() {
  std::optional<std::string> report;
  {
    const MutexLock lock(mutex_);
    report = rate_.Report(std::chrono::steady_clock::now());
  }
  if (report) spdlog::warn("{}", *report);
}

}  // namespace gpushared::server
