// SPDX-License-Identifier: Apache-2.0
#include "server/web/watch.h"

#include <utility>

namespace gpushared::web {

using nlohmann::json;

Watch::Watch(Ask ask, std::string host) : ask_(std::move(ask)), host_(std::move(host)) {}

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
  while (true) {
    {
      MutexLock lock(mutex_);
      while (watchers_ == 0 && !is_over_) {
        growth_ = {};  // What happens unseen is no bin.
        changed_.wait(lock.waitable());
      }
      if (is_over_) return;
    }
    const auto next = std::chrono::steady_clock::now() + PublishUpdate();
    MutexLock lock(mutex_);
    while (!is_over_ && changed_.wait_until(lock.waitable(), next) == std::cv_status::no_timeout) {
    }
  }
}

std::chrono::milliseconds Watch::PublishUpdate() {
  const Result<json> status = ask_({.verb = ipc::AdminVerb::kStatus});
  const Result<json> clients =
      status.ok() ? ask_({.verb = ipc::AdminVerb::kClients}) : Result<json>(status.status());
  const MonotonicTime now = std::chrono::steady_clock::now();
  const std::string text =
      clients.ok() ? UpdateText(*status, *clients, growth_.Take(*clients, now), host_, now)
                   : FailureText(std::string(clients.status().message()), host_, now);
  publish_("data: " + text + "\n\n");
  return clients.ok() ? kPeriod : kPeriodWithoutServer;
}

}  // namespace gpushared::web
