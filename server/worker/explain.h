// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_WORKER_EXPLAIN_H_
#define GPUSHARED_SERVER_WORKER_EXPLAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/worker/request_report.h"
#include "server/worker/stats.h"

namespace gpushared::server {

// The device thread's knowledge of a client's requests.
struct RequestsTold {
  RequestReport report;  // Of the one that was asked about; number 0: it is not known.
  // Of those known, in the order of their ends; 0: none.
  std::uint64_t first = 0, last = 0;
};

// {"client":7,"name":"serve","request":812,"latency_us":..,"promise_us":..,"kept":false,
//  "before_us":..,"waited_us":..,"on_device_us":..,"host_us":..,"longest_wait":{"us":..,
//  "behind":{"client":3,"what":"kernel 'gemm'",..}},"others":[..],..}
std::string ExplainJson(std::uint64_t session, const RequestsTold& told,
                        const std::vector<SessionFacts>& sessions, scheduler::TimePoint now);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_WORKER_EXPLAIN_H_
