// SPDX-License-Identifier: Apache-2.0
#include "samples/serve/arrivals.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>

namespace samples {
namespace {

constexpr double kSecondsPerDay = 86400;

// Sums the inter-arrival times, scaled so that their mean is exact.
std::vector<double> FromGaps(std::vector<double> gaps, double mean_gap_s) {
  const double total = std::accumulate(gaps.begin(), gaps.end(), 0.0);
  const double scale = mean_gap_s * static_cast<double>(gaps.size()) / total;
  double at = 0;
  for (double& gap : gaps) {
    at += gap * scale;
    gap = at;
  }
  return gaps;
}

}  // namespace

std::vector<double> BurstyArrivals(std::size_t count, double mean_gap_s, std::uint32_t seed,
                                   double variation) {
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> gap(1 / (variation * variation), 1.0);
  std::vector<double> gaps(count);
  std::generate(gaps.begin(), gaps.end(), [&] { return gap(random); });
  return FromGaps(std::move(gaps), mean_gap_s);
}

std::vector<double> TraceArrivals(const std::string& path, std::size_t count, double mean_gap_s,
                                  std::uint32_t seed) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("cannot read trace '" + path + "'");
  std::vector<double> gaps;
  double last = -1;
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    int hours = 0, minutes = 0;
    double seconds = 0;
    const bool is_time =
        std::sscanf(line.c_str(), "%*d-%*d-%*d %d:%d:%lf", &hours, &minutes, &seconds) == 3 &&
        hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60 && seconds >= 0 && seconds < 61;
    if (!is_time) {
      throw std::runtime_error("trace '" + path + "' line " + std::to_string(number) +
                               " does not begin with YYYY-MM-DD hh:mm:ss");
    }
    const double at = hours * 3600.0 + minutes * 60.0 + seconds;
    if (last >= 0) gaps.push_back(at >= last ? at - last : at + kSecondsPerDay - last);
    last = at;
  }
  if (gaps.empty()) throw std::runtime_error("trace '" + path + "' has fewer than two requests");
  std::vector<double> chosen(count);
  for (std::size_t i = 0; i < count; ++i) chosen[i] = gaps[(seed * 997ull + i) % gaps.size()];
  if (count > 0 && std::accumulate(chosen.begin(), chosen.end(), 0.0) <= 0) {
    throw std::runtime_error("trace '" + path + "' has " + std::to_string(count) +
                             " requests at the same time, which no scaling separates");
  }
  return FromGaps(std::move(chosen), mean_gap_s);
}

}  // namespace samples
