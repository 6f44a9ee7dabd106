// SPDX-License-Identifier: Apache-2.0
#include "server/broker/totals_json.h"

#include <cstddef>
#include <utility>

#include "scheduler/class_name.h"
#include "server/telemetry/totals/figures.h"

#include <nlohmann/json.hpp>

namespace gpushared::server {
namespace {

using nlohmann::json;

json HistogramJson(const TotalHistogram& histogram) {
  json counts = json::array();
  for (const Total& count : histogram.counts) counts.push_back(count.Get());
  return {{"counts", std::move(counts)},
          {"sum_s", static_cast<double>(histogram.sum_ns.Get()) / 1e9}};
}

json ClassJson(const ClassTotals& totals) {
  json object;
  WriteFigures(totals, kClassFigures, object);
  for (const HistogramFigure& figure : kClassHistograms) {
    object[figure.key] = HistogramJson(totals.*figure.value);
  }
  return object;
}

}  // namespace

json TotalsJson(const DeviceTotals::Layout& totals, const std::set<std::string>& open,
                std::chrono::steady_clock::time_point now) {
  json classes, endpoints = json::array();
  for (std::size_t each = 0; each < scheduler::kSchedulingClasses; ++each) {
    classes[std::string(scheduler::kClassNames.at(each))] = ClassJson(totals.classes.at(each));
  }
  for (const DeviceTotals::Endpoint& endpoint : totals.endpoints) {
    if (endpoint.number.Get() == 0 || !open.contains(endpoint.name)) continue;
    for (std::size_t each = 0; each < scheduler::kSchedulingClasses; ++each) {
      const EndpointTotals& of_class = endpoint.classes.at(each);
      if (of_class.sessions.Get() == 0 && of_class.commands.Get() == 0 &&
          of_class.device_time_ns.Get() == 0) {
        continue;  // No client of this class has connected through the endpoint.
      }
      json object = {{"endpoint", std::string(endpoint.name)},
                     {"class", scheduler::kClassNames.at(each)}};
      WriteFigures(of_class, kEndpointFigures, object);
      endpoints.push_back(std::move(object));
    }
  }
  json owners = json::array();
  for (const DeviceTotals::Owner& row : totals.owners) {
    const std::chrono::steady_clock::time_point left(std::chrono::nanoseconds(row.left_ns.Get()));
    const bool is_shown = row.clients.Get() > 0 || now - left < kOwnersShownFor;
    if (row.number.Get() == 0 || row.name[0] == '\0' || !is_shown) continue;
    json object = json::object();
    ipc::Owner::FromRow(row.name).ForEach([&](std::string_view name, const std::string& value) {
      object[std::string(name)] = value;
    });
    WriteFigures(row.totals, kOwnerFigures, object);
    owners.push_back(std::move(object));
  }
  json object = {{"classes", std::move(classes)},
                 {"endpoints", std::move(endpoints)},
                 {"owners", std::move(owners)}};
  WriteFigures(totals, kDeviceFigures, object);
  return object;
}

}  // namespace gpushared::server
