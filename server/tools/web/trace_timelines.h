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

// How long each client ran in each bin of time, from slices: as many numbers for a million slices
// as for one.
//
// Thread-compatible.
class SliceBins {
 public:
  static constexpr std::chrono::milliseconds kBin{10};
  static constexpr std::chrono::seconds kPast{10};  // The page shows no more.
  static constexpr std::size_t kClientsMax = 256;   // Further ones are left out until Take.

  void Add(const trace::Slice& slice);
  // A timeline of what was added since; null where that is nothing. A slice that began long ago is
  // in bins that an earlier one had: the page adds them up.
  nlohmann::json Take();

 private:
  using Bins = std::map<std::int64_t, std::chrono::nanoseconds>;  // By number since the clock's 0.
  std::map<std::uint64_t, Bins> clients_;
};

// Follows the traces of devices while somebody looks.
//
// Thread-compatible.
class TraceTimelines {
 public:
  // Where a device could not be followed, it is tried again so much later.
  static constexpr std::chrono::seconds kAgainAfter{5};
  using Begin = std::function<Result<admin::TraceWatch>(const std::string& device)>;

  explicit TraceTimelines(Begin begin) : begin_(std::move(begin)) {}

  // Follows those of a server's answer to kStatus that are ready, and no others. May block.
  void Follow(const nlohmann::json& status, MonotonicTime now);
  // Reads on. Never waits.
  void Read();
  // What was read since. A device whose trace is not to be had takes its part of `coarse`, with
  // why.
  Timelines Take(Timelines coarse);
  // Nobody looks any more: the devices' workers write no more either.
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
