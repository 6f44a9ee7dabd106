// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SAMPLES_SERVE_ARRIVALS_H_
#define GPUSHARED_SAMPLES_SERVE_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace samples {

// Arrival times of requests: seconds from the start, ascending. Both functions return `count`
// arrivals with a mean inter-arrival time of `mean_gap_s`.

// Returns arrivals with gamma-distributed inter-arrival times. `variation` is their coefficient of
// variation: 1 makes a Poisson process, and 1.5 is burstier, like the traffic of many users.
std::vector<double> BurstyArrivals(std::size_t count, double mean_gap_s, std::uint32_t seed,
                                   double variation = 1.5);

// Inter-arrival times of a trace: a CSV file with a header line whose first column is a time of day
// "YYYY-MM-DD hh:mm:ss.fraction", scaled to the requested mean. Starts at a position chosen by
// `seed` and wraps around at the end. Throws std::runtime_error with path and line.
std::vector<double> TraceArrivals(const std::string& path, std::size_t count, double mean_gap_s,
                                  std::uint32_t seed);

}  // namespace samples

#endif  // GPUSHARED_SAMPLES_SERVE_ARRIVALS_H_
