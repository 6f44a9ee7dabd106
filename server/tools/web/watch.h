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

// Polls the server for the data of the page while a client watches it, and publishes the data as
// server-sent events.
//
// Thread-safe. A separate thread polls and publishes.
class Watch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{250};
  // Interval of reading traces. A trace's ring covers about a second under usual loads, but only
  // 40 ms at the highest load, when events are lost.
  static constexpr std::chrono::milliseconds kReadPeriod{50};
  static constexpr std::chrono::milliseconds kPeriodWithoutServer{1000};
  using Ask = std::function<Result<nlohmann::json>(const ipc::Admin& question)>;
  using Publish = std::function<void(std::string event)>;

  // `ask` and `begin` may block; they are called on the thread of this object.
  Watch(Ask ask, TraceTimelines::Begin begin, std::string host);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Must be called once. `publish` is called on the thread of this object until Stop has returned.
  void Start(Publish publish);
  // Sets the number of clients that watch the page.
  void SetWatchers(std::size_t watchers);
  // Waits until a running query to the server has ended. Idempotent.
  void Stop();

 private:
  void Run();
  bool AwaitWatchers();
  // Reads traces until `end`. Returns false when the object is being stopped.
  bool ReadUntil(MonotonicTime end);
  // Publishes an update, and returns the time until the next one.
  std::chrono::milliseconds PublishUpdate();

  const Ask ask_;
  const std::string host_;
  Publish publish_;
  // Used only by the thread of this object.
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
