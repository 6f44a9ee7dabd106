// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_BROKER_TOTALS_JSON_H_
#define GPUSHARED_SERVER_BROKER_TOTALS_JSON_H_

#include <chrono>
#include <set>
#include <string>

#include "server/telemetry/totals/device_totals.h"

#include <nlohmann/json_fwd.hpp>

namespace gpushared::server {

// {"workers_started":2,"gap_s":..,"gap_used_s":..,"host_steal_s":..,
//  "classes":{"high":{"sessions":..,"device_time_s":..,"commands":..,
//                     "queue_wait":{"counts":[..],"sum_s":..},..},..},
//  "endpoints":[{"endpoint":"main","class":"high","sessions":..,"device_time_s":..,..},..],
//  "owners":[{"uid":"1000","pod":"web-1",..,"device_time_s":..,..},..]}
// Times are in seconds. A histogram's counts are those of TotalHistogram, not cumulative.
// Endpoints not in `open` are omitted, and so are owners whose last client left more than
// kOwnersShownFor ago. Thread-safe.
nlohmann::json TotalsJson(const DeviceTotals::Layout& totals, const std::set<std::string>& open,
                          std::chrono::steady_clock::time_point now);

// Longer than usual scrape intervals of Prometheus, so that it gets the last values of an owner.
inline constexpr std::chrono::minutes kOwnersShownFor{5};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_BROKER_TOTALS_JSON_H_
