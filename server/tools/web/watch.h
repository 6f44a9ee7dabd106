// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_WATCH_H_
#define GPUSHARED_SERVER_TOOLS_WEB_WATCH_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>

#include "gpushared/mutex.h"
#include "gpushared/result.h"

#include "ipc/wire/control.h"
#include "server/tools/web/trace_timelines.h"
#include "server/tools/web/update.h"

#include <nlohmann/json.hpp>

namespace gpushared::web {

// Asks the server for what the page shows, while somebody looks at it, and publishes that as
// server-sent events.
//
// Thread-safe. Its thread asks and publishes.
class Watch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{250};
  // A trace holds as many commands as a device runs in this time, and more.
  static constexpr std::chrono::milliseconds kReadPeriod{50};
  static constexpr std::chrono::milliseconds kPeriodWithoutServer{1000};
  using Ask = std::function<Result<nlohmann::json>(const ipc::Admin& question)>;
  using Publish = std::function<void(std::string event)>;

  // `ask` and `begin` may block; they are called on the thread of this object.
  Watch(Ask ask, TraceTimelines::Begin begin, std::string host);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Once. `publish` is called on the thread of this object until Stop has returned.
  void Start(Publish publish);
  // So many look at the page.
  void SetWatchers(std::size_t watchers);
  // Waits for a server's answer that is under way. Idempotent.
  void Stop();

 private:
  void Run();
  bool AwaitWatchers();
  // False when it is over.
  bool ReadUntil(MonotonicTime end);
  // Returns for how long nothing more is to be published.
  std::chrono::milliseconds PublishUpdate();

  const Ask ask_;
  const std::string host_;
  Publish publish_;
  // The thread's.
  GrowthTimelines growth_;
  TraceTimelines traces_;

  Mutex mutex_;
  std::condition_variable changed_;
  std::size_t watchers_ GPUSHARED_GUARDED_BY(mutex_) = 0;
  bool is_over_ GPUSHARED_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_WATCH_H_
