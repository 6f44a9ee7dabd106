// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/calibration.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace gpushared::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kWarmUp{300};
constexpr unsigned kLaunches = 10;

}  // namespace

double NsPer(const std::function<void()>& launch, const std::function<void()>& wait,
             unsigned launches) {
  wait();
  const auto begin = Clock::now();
  for (unsigned i = 0; i < launches; ++i) launch();
  wait();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / launches;
}

// Measures two lengths, so that the fixed cost of a launch cancels out. Takes the fastest of
// several tries, because everything above a kernel's own duration is noise.
double IterationsPerUs(const std::function<void(unsigned iterations)>& launch,
                       const std::function<void()>& wait) {
  const auto each = [&](unsigned iterations) {
    return NsPer([&] { launch(iterations); }, wait, kLaunches);
  };
  const auto fastest = [&](unsigned iterations) {
    double best = each(iterations);
    for (int i = 0; i < 4; ++i) best = std::min(best, each(iterations));
    return best;
  };
  // Warms the GPU up, because after a pause it runs at a fraction of its clock rate for a while.
  const auto warm = Clock::now() + kWarmUp;
  while (Clock::now() < warm) each(1000);
  unsigned iterations = 1000;
  // Makes the kernels long enough for the difference to exceed the noise.
  while (iterations < 1'000'000 && fastest(iterations) < 0.5e6) iterations *= 2;
  // Alternates the two lengths, so that a slow moment of the machine affects both.
  double one = each(iterations);
  double two = each(2 * iterations);
  for (int i = 1; i < 5 || (i < 50 && two <= one); ++i) {
    one = std::min(one, each(iterations));
    two = std::min(two, each(2 * iterations));
  }
  if (two <= one) throw std::runtime_error("a kernel of twice the length was not slower");
  return iterations / ((two - one) / 1000);
}

unsigned LoopResult(unsigned iterations) {
  unsigned value = 1;
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  return value;
}

}  // namespace gpushared::testing
