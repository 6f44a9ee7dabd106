// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_BENCH_DROP_IN_COST_H_
#define GPUSHARED_TESTS_BENCH_DROP_IN_COST_H_

#include "tests/bench/report.h"

namespace gpushared::testing {

// Measures the cost of CUDA's driver interface compared with our own: the same work alternates
// between the client library and the drop-in, in this process, on a dedicated server.
void MeasureDropIn(Report& report);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_DROP_IN_COST_H_
