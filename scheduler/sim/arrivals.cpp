// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/arrivals.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <utility>

namespace gpushared::simulation {
namespace {

constexpr double kSecondsPerDay = 86400;
constexpr double kBurstyVariation = 1.5;

// Returns the running sums of the intervals, which are scaled so that their mean is exact.
std::vector<double> FromGaps(std::vector<double> gaps, double mean_gap_s) {
  const double total = std::accumulate(gaps.begin(), gaps.end(), 0.0);
  const double scale = mean_gap_s * static_cast<double>(gaps.size()) / total;
  double at = 0;
  for (double& gap : gaps) gap = at += gap * scale;
  return gaps;
}

std::vector<double> PoissonArrivals(std::size_t count, double mean_gap_s, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(1 / mean_gap_s);
  std::vector<double> arrivals(count);
  double at = 0;
  for (double& arrival : arrivals) arrival = at += gap(random);
  return arrivals;
}

std::vector<double> BurstyArrivals(std::size_t count, double mean_gap_s, std::uint32_t seed) {
  std::mt19937_64 random(seed);
  std::gamma_distribution<double> gap(1 / (kBurstyVariation * kBurstyVariation), 1.0);
  std::vector<double> gaps(count);
  std::generate(gaps.begin(), gaps.end(), [&] { return gap(random); });
  return FromGaps(std::move(gaps), mean_gap_s);
}

std::vector<double> PeriodicArrivals(std::size_t count, double mean_gap_s) {
  std::vector<double> arrivals(count);
  for (std::size_t i = 0; i < count; ++i) arrivals[i] = mean_gap_s * static_cast<double>(i);
  return arrivals;
}

// Returns the time of day at the start of the line, in seconds; negative if there is none.
double TimeOfDay(const std::string& line) {
  int hours = 0, minutes = 0;
  double seconds = 0;
  const bool is_time =
      std::sscanf(line.c_str(), "%*d-%*d-%*d %d:%d:%lf", &hours, &minutes, &seconds) == 3 &&
      hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60 && seconds >= 0 && seconds < 61;
  return is_time ? hours * 3600.0 + minutes * 60.0 + seconds : -1;
}

Result<std::vector<double>> ReadGaps(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) {
    return Status(StatusCode::kInvalidArgument, "cannot read trace '" + path + "'");
  }
  std::vector<double> gaps;
  double last = -1;
  for (std::size_t number = 2; std::getline(file, line); ++number) {
    const double at = TimeOfDay(line);
    if (at < 0) {
      return Status(StatusCode::kInvalidArgument, "trace '" + path + "' line " +
                                                      std::to_string(number) +
                                                      " does not begin with YYYY-MM-DD hh:mm:ss");
    }
    if (last >= 0) gaps.push_back(at >= last ? at - last : at + kSecondsPerDay - last);
    last = at;
  }
  if (gaps.empty()) {
    return Status(StatusCode::kInvalidArgument, "trace '" + path + "' has fewer than two requests");
  }
  return gaps;
}

Result<std::vector<double>> TraceArrivals(const std::string& path, std::size_t count,
                                          double mean_gap_s, std::uint32_t seed) {
  const Result<std::vector<double>> gaps = ReadGaps(path);
  if (!gaps.ok()) return gaps.status();
  std::vector<double> chosen(count);
  for (std::size_t i = 0; i < count; ++i) chosen[i] = (*gaps)[(seed * 997ull + i) % gaps->size()];
  if (count > 0 && std::accumulate(chosen.begin(), chosen.end(), 0.0) <= 0) {
    return Status(StatusCode::kInvalidArgument,
                  "trace '" + path + "' has " + std::to_string(count) +
                      " requests at the same time, which no scaling separates");
  }
  return FromGaps(std::move(chosen), mean_gap_s);
}

}  // namespace

Result<std::vector<double>> MakeArrivals(const std::string& kind, std::size_t count,
                                         double mean_gap_s, std::uint32_t seed) {
  if (kind == "poisson") return PoissonArrivals(count, mean_gap_s, seed);
  if (kind == "bursty") return BurstyArrivals(count, mean_gap_s, seed);
  if (kind == "periodic") return PeriodicArrivals(count, mean_gap_s);
  return TraceArrivals(kind, count, mean_gap_s, seed);
}

}  // namespace gpushared::simulation
