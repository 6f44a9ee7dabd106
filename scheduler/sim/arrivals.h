// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_SIM_ARRIVALS_H_
#define GPUSHARED_SCHEDULER_SIM_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::simulation {

// Returns `count` arrival times with a mean interval of `mean_gap_s`: seconds from the start,
// ascending. Equal arguments give equal times. `kind` is one of:
//   * poisson: exponential intervals.
//   * bursty: gamma-distributed intervals with a coefficient of variation of 1.5.
//   * periodic: equal intervals.
//   * the path of a trace, whose intervals are scaled to the mean; `seed` chooses where it begins.
//     The CSV file has a header line, and its first column is "YYYY-MM-DD hh:mm:ss.fraction".
//     Returns kInvalidArgument, with path and line, for an invalid trace.
Result<std::vector<double>> MakeArrivals(const std::string& kind, std::size_t count,
                                         double mean_gap_s, std::uint32_t seed);

}  // namespace gpushared::simulation

#endif  // GPUSHARED_SCHEDULER_SIM_ARRIVALS_H_
