// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_EXPLAIN_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_EXPLAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/worker/control/stats.h"
#include "server/worker/output/request_report.h"

namespace gpushared::server {

// Returns the answer to an `explain` request:
// {"client":7,"name":"serve","request":812,"latency_us":..,"latency_target_us":..,
//  "target_met":false,"before_us":..,"waited_us":..,"on_device_us":..,"host_us":..,
//  "longest_wait":{"us":..,"behind":{"client":3,"what":"kernel 'gemm'",..}},
//  "others":[..],..,"waterfall":[..]}
// Rows of a waterfall are ordered by their start times:
// {"client":3,"name":"train","class":"low",
//  "kind":"other","what":"kernel 'gemm'","from_us":-120.5,"to_us":840.0,"cut":"was stopped",..}
// Kind "wait" means that the client had commands ready but none on the device; "own" are its own
// commands. All figures of an "open" request, which has not ended, cover the time so far, and
// "target_met" is omitted as long as the request may still meet its target.
std::string ExplainJson(std::uint64_t session, const RequestReports& reports,
                        const std::vector<SessionFacts>& sessions, scheduler::TimePoint now);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_EXPLAIN_H_
