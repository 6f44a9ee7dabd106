// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_CONTROL_EXPLAIN_H_
#define GPUSHARED_SERVER_WORKER_CONTROL_EXPLAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/worker/control/stats.h"
#include "server/worker/device_thread/request_report.h"

namespace gpushared::server {

// {"client":7,"name":"serve","request":812,"latency_us":..,"promise_us":..,"kept":false,
//  "before_us":..,"waited_us":..,"on_device_us":..,"host_us":..,"longest_wait":{"us":..,
//  "behind":{"client":3,"what":"kernel 'gemm'",..}},"others":[..],..}
std::string ExplainJson(std::uint64_t session, const RequestsTold& told,
                        const std::vector<SessionFacts>& sessions, scheduler::TimePoint now);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_CONTROL_EXPLAIN_H_
