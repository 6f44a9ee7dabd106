// SPDX-License-Identifier: Apache-2.0
#include "server/tools/web/watch.h"

#include <algorithm>
#include <utility>

namespace gpushared::web {

using nlohmann::json;

Watch::Watch(Ask ask, TraceTimelines::Begin begin, std::string host)
    : ask_(std::move(ask)), host_(std::move(host)), traces_(std::move(begin)) {}

Watch::~Watch() { Stop(); }

void Watch::Start(Publish publish) {
  publish_ = std::move(publish);
  thread_ = std::thread([this] { Run(); });
}

void Watch::SetWatchers(std::size_t watchers) {
  {
    const MutexLock lock(mutex_);
    watchers_ = watchers;
  }
  changed_.notify_all();
}

void Watch::Stop() {
  {
    const MutexLock lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watch::Run() {
  while (AwaitWatchers()) {
    const MonotonicTime begin = std::chrono::steady_clock::now();
    if (!ReadUntil(begin + PublishUpdate())) return;
  }
}

bool Watch::AwaitWatchers() {
  MutexLock lock(mutex_);
  while (watchers_ == 0 && !is_over_) {
    // The timelines start again, because time without watchers is not part of them.
    growth_ = {};
    traces_.StopFollowing();
    changed_.wait(lock.waitable());
  }
  return !is_over_;
}

bool Watch::ReadUntil(MonotonicTime end) {
  while (true) {
    traces_.Read();
    const MonotonicTime now = std::chrono::steady_clock::now();
    MutexLock lock(mutex_);
    if (is_over_ || now >= end) return !is_over_;
    changed_.wait_until(lock.waitable(), std::min(end, now + kReadPeriod));
  }
}

std::chrono::milliseconds Watch::PublishUpdate() {
  const Result<json> status = ask_({.verb = ipc::AdminVerb::kStatus});
  const Result<json> clients =
      status.ok() ? ask_({.verb = ipc::AdminVerb::kClients}) : Result<json>(status.status());
  const MonotonicTime now = std::chrono::steady_clock::now();
  std::string text;
  if (clients.ok()) {
    traces_.Follow(*status, now);
    traces_.Read();
    text = UpdateText(*status, *clients, traces_.Take(growth_.Take(*clients, now)), host_, now);
  } else {
    text = FailureText(std::string(clients.status().message()), host_, now);
  }
  publish_("data: " + text + "\n\n");
  return clients.ok() ? kPeriod : kPeriodWithoutServer;
}

}  // namespace gpushared::web
