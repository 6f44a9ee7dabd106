// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_BENCH_DROP_IN_COST_H_
#define GPUSHARED_TESTS_BENCH_DROP_IN_COST_H_

#include "tests/bench/report.h"

namespace gpushared::testing {

// What CUDA's driver interface costs over our own: the same work in turns through the client
// library and through the drop-in, in this process, on a server of its own.
void MeasureDropIn(Report& report);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_DROP_IN_COST_H_
