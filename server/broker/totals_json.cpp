// SPDX-License-Identifier: Apache-2.0
#include "server/broker/totals_json.h"

#include "scheduler/class_name.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;

double SecondsOf(const Total& ns) { return static_cast<double>(ns.Get()) / 1e9; }

json HistogramJson(const TotalHistogram& histogram) {
  json counts = json::array();
  for (const Total& count : histogram.counts) counts.push_back(count.Get());
  return {{"counts", std::move(counts)}, {"sum_s", SecondsOf(histogram.sum_ns)}};
}

json ClassJson(const ClassTotals& totals) {
  return {{"sessions", totals.sessions.Get()},
          {"device_time_s", SecondsOf(totals.device_time_ns)},
          {"commands", totals.commands.Get()},
          {"launches", totals.launches.Get()},
          {"copies", totals.copies.Get()},
          {"fills", totals.fills.Get()},
          {"bytes_in", totals.bytes_in.Get()},
          {"bytes_out", totals.bytes_out.Get()},
          {"bytes_on_device", totals.bytes_on_device.Get()},
          {"commands_refused", totals.commands_refused.Get()},
          {"commands_failed", totals.commands_failed.Get()},
          {"commands_skipped", totals.commands_skipped.Get()},
          {"stops", totals.stops.Get()},
          {"wasted_s", SecondsOf(totals.wasted_ns)},
          {"requests", totals.requests.Get()},
          {"requests_promised", totals.requests_promised.Get()},
          {"requests_kept", totals.requests_kept.Get()},
          {"promises_given_up", totals.promises_given_up.Get()},
          {"memory_out_bytes", totals.memory_out_bytes.Get()},
          {"memory_in_bytes", totals.memory_in_bytes.Get()},
          {"memory_moves", totals.memory_moves.Get()},
          {"memory_waited_s", SecondsOf(totals.memory_waited_ns)},
          {"queue_wait", HistogramJson(totals.queue_wait)},
          {"request_time", HistogramJson(totals.request_time)},
          {"stop_time", HistogramJson(totals.stop_time)}};
}

}  // namespace

json TotalsJson(const DeviceTotals::Layout& totals, const std::set<std::string>& open) {
  json classes, entrances = json::array();
  for (std::size_t each = 0; each < scheduler::kSchedulingClasses; ++each) {
    classes[std::string(scheduler::kClassNames.at(each))] = ClassJson(totals.classes.at(each));
  }
  for (const DeviceTotals::Entrance& entrance : totals.entrances) {
    if (entrance.number.Get() == 0 || !open.contains(entrance.name)) continue;
    for (std::size_t each = 0; each < scheduler::kSchedulingClasses; ++each) {
      const EntranceTotals& of_class = entrance.classes.at(each);
      if (of_class.sessions.Get() == 0 && of_class.commands.Get() == 0 &&
          of_class.device_time_ns.Get() == 0) {
        continue;  // Nobody was there.
      }
      entrances.push_back({{"entrance", std::string(entrance.name)},
                           {"class", scheduler::kClassNames.at(each)},
                           {"sessions", of_class.sessions.Get()},
                           {"device_time_s", SecondsOf(of_class.device_time_ns)},
                           {"commands", of_class.commands.Get()},
                           {"bytes_in", of_class.bytes_in.Get()},
                           {"bytes_out", of_class.bytes_out.Get()},
                           {"bytes_on_device", of_class.bytes_on_device.Get()},
                           {"requests", of_class.requests.Get()},
                           {"requests_promised", of_class.requests_promised.Get()},
                           {"requests_kept", of_class.requests_kept.Get()}});
    }
  }
  return {{"workers_started", totals.workers_started.Get()},
          {"gap_s", SecondsOf(totals.gap_ns)},
          {"gap_used_s", SecondsOf(totals.gap_used_ns)},
          {"host_delay_s", SecondsOf(totals.host_delay_ns)},
          {"classes", std::move(classes)},
          {"entrances", std::move(entrances)}};
}

}  // namespace gpushared::server
