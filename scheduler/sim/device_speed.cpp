// SPDX-License-Identifier: Apache-2.0
#include "scheduler/sim/device_speed.h"

#include <algorithm>
#include <cstddef>

namespace gpushared::simulation {
namespace {

constexpr std::size_t kPieces = 20;
// Minimum of the mean number of kernels in a piece; differences between fewer kernels do not
// average out.
constexpr std::size_t kStepsLeast = 9;
// Difference from which on the speed has changed; the pieces of a device with constant speed differ
// by less.
constexpr double kChange = 0.1;

std::vector<Profile::Step> GetSteps(const Profile& profile) {
  std::vector<Profile::Step> steps;
  for (const Profile::Request& request : profile.requests)
    steps.insert(steps.end(), request.steps.begin(), request.steps.end());
  return steps;
}

std::vector<double> GetMeans(const std::vector<Profile::Step>& steps, std::size_t kernels) {
  std::vector<double> means(kernels), counts(kernels);
  for (const Profile::Step& step : steps) {
    means[step.kernel] += step.us;
    ++counts[step.kernel];
  }
  for (std::size_t i = 0; i < kernels; ++i) means[i] /= std::max(counts[i], 1.0);
  return means;
}

}  // namespace

bool DeviceSpeed::has_changed() const { return fast < 1 - kChange || slow > 1 + kChange; }

DeviceSpeed GetDeviceSpeed(const Profile& profile) {
  DeviceSpeed speed;
  const std::vector<Profile::Step> steps = GetSteps(profile);
  if (steps.size() < kPieces * kStepsLeast) return speed;
  const std::vector<double> means = GetMeans(steps, profile.kernels.size());
  double total_us = 0;
  for (const Profile::Step& step : steps) total_us += step.us;
  std::vector<double> pieces;
  double took_us = 0, usual_us = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    took_us += steps[i].us;
    usual_us += means[steps[i].kernel];
    if (took_us < total_us / kPieces && i + 1 < steps.size()) continue;
    pieces.push_back(took_us / usual_us);
    speed.of_steps.resize(i + 1, pieces.back());
    took_us = usual_us = 0;
  }
  std::sort(pieces.begin(), pieces.end());
  if (pieces.size() < 4) return {};
  speed.fast = std::min(pieces[1], 1.0);
  speed.slow = std::max(pieces[pieces.size() - 2], 1.0);
  return speed;
}

Profile AtSpeed(Profile profile, const DeviceSpeed& speed, double wanted) {
  if (speed.of_steps.empty()) return profile;
  auto had = speed.of_steps.begin();
  for (Profile::Request& request : profile.requests)
    for (Profile::Step& step : request.steps) step.us = std::max(step.us * wanted / *had++, 0.001);
  return profile;
}

}  // namespace gpushared::simulation
