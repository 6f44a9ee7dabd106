// SPDX-License-Identifier: Apache-2.0
// The frontier, compared with arithmetic by hand on ten multiprocessors.
#include "scheduler/sim/frontier.h"

#include <array>
#include <chrono>

#include <gtest/gtest.h>

namespace gpushared::simulation {
namespace {

using namespace std::chrono_literals;

FrontierOptions Options() {
  FrontierOptions options{.load = 0.5, .stop = 0us};
  options.front.multiprocessors = 10;
  options.front.costs = {.kernel_gap = {}, .claim = {}, .contention = 0};
  return options;
}

Job Repeat(const Kernel& kernel) { return {"job", std::vector<Kernel>(10, kernel)}; }

// A request that takes 1 ms on half of the device.
const Job kHalfRequest = Repeat({5, 100us});

std::optional<double> LowAt(double inflation, const Job& low,
                            const FrontierOptions& options = Options()) {
  return ComputeFrontier(kHalfRequest, low, std::array{inflation}, options).low.front();
}

TEST(Frontier, KernelsThatOccupyHalfTheDeviceDelayNoRequestThatNeedsTheOther) {
  const Job low = Repeat({5, 1ms});
  EXPECT_NEAR(*LowAt(0.001, low), 0.5, 1e-6);
}

// Low kernels that are restricted to half of the device delay no request, but take twice the time.
TEST(Frontier, ATightBoundCostsTheLowClassHalfItsSpeed) {
  const Job low = Repeat({10, 1ms});
  EXPECT_NEAR(*LowAt(0.001, low), 0.25, 0.01);
  EXPECT_NEAR(*LowAt(1, low), 0.5, 1e-6);
  EXPECT_GT(*LowAt(0.7, low), 0.25);
  EXPECT_LT(*LowAt(0.7, low), 0.5);
}

// A request that arrives in a pause waits for the rest of a block, which is uniformly distributed
// between 0 and 1 ms. Half of the requests arrive in a pause, so the p99 of all requests is the p98
// of these.
TEST(Frontier, FullSpeedDelaysTheTailByAlmostAWholeBlock) {
  const Frontier frontier = ComputeFrontier(kHalfRequest, Repeat({10, 1ms}), {}, Options());
  EXPECT_NEAR(frontier.inflation_at_full_speed, 0.98, 0.002);
}

TEST(Frontier, NonpreemptibleKernelsCannotBeSpread) {
  Kernel kernel{10, 1ms};
  kernel.is_nonpreemptible = true;
  EXPECT_FALSE(LowAt(0.5, Repeat(kernel)));
  EXPECT_FALSE(LowAt(0.05, Repeat({10, 90us}))) << "shorter than the shortest preemptible one";
}

// The mean pause is 2 ms, and half a block is lost at its end.
TEST(Frontier, KnownArrivalsCostHalfABlock) {
  const Frontier frontier = ComputeFrontier(kHalfRequest, Repeat({10, 1ms}), {}, Options());
  EXPECT_NEAR(frontier.low_if_arrivals_known, 0.5 * 0.75, 1e-6);
}

TEST(Frontier, LongerStopsAndContentionLeaveLess) {
  const Job low = Repeat({10, 200us, Kernel::Kind::kCompute});
  FrontierOptions options = Options();
  const double best = *LowAt(0.15, low, options);
  options.stop = 50us;
  EXPECT_LT(*LowAt(0.15, low, options), best);

  Job request = kHalfRequest;
  for (Kernel& kernel : request.kernels) kernel.kind = Kernel::Kind::kCompute;
  options = Options();
  options.front.costs.contention = 4;
  EXPECT_LT(*ComputeFrontier(request, low, std::array{0.05}, options).low.front(),
            *LowAt(0.05, low));
}

}  // namespace
}  // namespace gpushared::simulation
