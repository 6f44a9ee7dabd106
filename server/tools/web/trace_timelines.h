// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_WEB_TRACE_TIMELINES_H_
#define GPUSHARED_SERVER_TOOLS_WEB_TRACE_TIMELINES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "gpushared/result.h"

#include "server/telemetry/admin/trace_watch.h"
#include "server/telemetry/trace/event.h"
#include "server/tools/web/update.h"

#include <nlohmann/json.hpp>

namespace gpushared::web {

// Accumulates the slices of each client into bins of time. Memory depends on the number of bins,
// not on the number of slices.
//
// Thread-compatible.
class SliceBins {
 public:
  static constexpr std::chrono::milliseconds kBin{10};
  static constexpr std::chrono::seconds kPast{10};  // Length of a timeline; the page shows no more.
  // Limit of clients; further ones are omitted until Take.
  static constexpr std::size_t kClientsMax = 256;

  void Add(const trace::Slice& slice);
  // Returns a timeline of the slices added since the last call, or null if there are none. A slice
  // that began long ago may occupy bins that an earlier timeline also contained; the page adds up
  // the times of such bins.
  nlohmann::json Take();

 private:
  // Times of bins, by their index since the clock's zero.
  using Bins = std::map<std::int64_t, std::chrono::nanoseconds>;
  std::map<std::uint64_t, Bins> clients_;
};

// Follows the traces of devices while a client watches the page.
//
// Thread-compatible.
class TraceTimelines {
 public:
  // Delay before a device that could not be followed is tried again.
  static constexpr std::chrono::seconds kRetryAfter{5};
  using Begin = std::function<Result<admin::TraceWatch>(const std::string& device)>;

  explicit TraceTimelines(Begin begin) : begin_(std::move(begin)) {}

  // Follows exactly the devices that are ready according to a server's answer to kStatus. May
  // block.
  void Follow(const nlohmann::json& status, MonotonicTime now);
  // Reads new events. Does not block.
  void Read();
  // Returns the timelines since the last call. A device whose trace is unavailable gets its part of
  // `coarse`, with the reason.
  Timelines Take(Timelines coarse);
  // Called when no client watches the page, so that the devices' workers stop writing traces.
  void StopFollowing() { devices_.clear(); }

 private:
  struct Device {
    std::optional<admin::TraceWatch> watch;
    Status why_not;
    MonotonicTime tried_at{};
    SliceBins bins;
    std::uint64_t lost = 0;
  };

  static void Read(Device& device);

  const Begin begin_;
  std::map<std::string, Device> devices_;
};

}  // namespace gpushared::web

#endif  // GPUSHARED_SERVER_TOOLS_WEB_TRACE_TIMELINES_H_
