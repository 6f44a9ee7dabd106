// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SAMPLES_SERVE_ARRIVALS_H_
#define GPUSHARED_SAMPLES_SERVE_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace samples {

// When requests arrive: seconds from the start, ascending. Both make `count` arrivals
// whose mean distance is `mean_gap_s`.

// Gamma-distributed distances with this coefficient of variation: 1 makes a Poisson process,
// 1.5 is burstier, like traffic of many users.
std::vector<double> BurstyArrivals(std::size_t count, double mean_gap_s, std::uint32_t seed,
                                   double variation = 1.5);

// Distances of a trace: a CSV file with a header line whose first column is a time of
// day "YYYY-MM-DD hh:mm:ss.fraction", scaled to the asked mean. Starts at a place
// chosen by `seed` and wraps around at the end. Throws std::runtime_error with path
// and line.
std::vector<double> TraceArrivals(const std::string& path, std::size_t count, double mean_gap_s,
                                  std::uint32_t seed);

}  // namespace samples

#endif  // GPUSHARED_SAMPLES_SERVE_ARRIVALS_H_
