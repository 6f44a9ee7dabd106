// SPDX-License-Identifier: Apache-2.0
#include "gpushared/launch_limits.h"

#include <array>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

namespace gpushared {
namespace {

using Of = LaunchExcess::Of;

constexpr LaunchLimits kLimits = {.grid_max = {100, 20, 10},
                                  .block_max = {64, 32, 8},
                                  .threads_per_block_max = 512,
                                  .shared_bytes_per_block_max = 1000};
constexpr LaunchExtents kLargest = {.grid = {100, 20, 10},
                                    .block = {64, 8, 1},
                                    .static_shared_bytes = 400,
                                    .dynamic_shared_bytes = 600};

TEST(LaunchLimits, TheLargestLaunchFits) {
  EXPECT_TRUE(CheckLaunchLimits(kLargest, kLimits).ok());
  EXPECT_EQ(FindExcess(kLargest, kLimits).of, Of::kNothing);
}

TEST(LaunchLimits, RejectsExcessAndZeroAlongAnyAxis) {
  for (std::uint8_t axis = 0; axis < 3; ++axis) {
    for (const bool is_grid : {true, false}) {
      const std::uint32_t most = (is_grid ? kLimits.grid_max : kLimits.block_max)[axis];
      for (const std::uint32_t asked : {0u, most + 1, ~0u}) {
        LaunchExtents launch = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
        (is_grid ? launch.grid : launch.block)[axis] = asked;
        const LaunchExcess excess = CheckLaunchLimits(launch, kLimits);
        EXPECT_EQ(excess.of, is_grid ? Of::kGrid : Of::kBlock);
        EXPECT_EQ(excess.axis, axis);
        EXPECT_EQ(excess.asked, asked);
        EXPECT_EQ(excess.allowed, most);
      }
    }
  }
}

TEST(LaunchLimits, ProductsAndSumsThatWrapDoNotFit) {
  constexpr LaunchLimits kWide = {.grid_max = {~0u, ~0u, ~0u},
                                  .block_max = {~0u, ~0u, ~0u},
                                  .threads_per_block_max = 1024,
                                  .shared_bytes_per_block_max = 1024};
  for (const std::array<std::uint32_t, 3>& block :
       {std::array{1u << 16, 1u << 16, 1u}, {1u << 22, 1u << 21, 1u << 21}, {~0u, ~0u, ~0u}}) {
    EXPECT_EQ(CheckLaunchLimits({.grid = {1, 1, 1}, .block = block}, kWide).of, Of::kThreads);
  }
  EXPECT_EQ(CheckLaunchLimits({.grid = {1, 1, 1},
                               .block = {1, 1, 1},
                               .static_shared_bytes = 1024,
                               .dynamic_shared_bytes = ~0u},
                              kWide)
                .of,
            Of::kShared);
}

TEST(LaunchLimits, RequiredBlockAndClusterAreExactAlongEachAxis) {
  LaunchLimits limits = kLimits;
  limits.required_block = {32, 2, 1};
  limits.required_cluster = {2, 1, 1};
  LaunchExtents launch = {.grid = {4, 1, 1}, .block = {32, 2, 1}};
  EXPECT_TRUE(CheckLaunchLimits(launch, limits).ok()) << "no cluster is said";
  launch.cluster = {2, 1, 1};
  EXPECT_TRUE(CheckLaunchLimits(launch, limits).ok());
  launch.cluster = {1, 2, 1};
  EXPECT_EQ(CheckLaunchLimits(launch, limits).of, Of::kCluster);
  launch.block = {64, 1, 1};
  const LaunchExcess excess = CheckLaunchLimits(launch, limits);
  EXPECT_EQ(excess.of, Of::kExactBlock);
  EXPECT_EQ(
      excess.Message("k", "cpu:0"),
      "launch rejected: kernel 'k' asks for 64 threads per block along x, it was compiled for "
      "exactly 32 (.reqntid)");
  launch.cluster = {};
  launch.block = {32, 2, 2};
  EXPECT_EQ(CheckLaunchLimits(launch, limits).axis, 2);
}

TEST(LaunchLimits, ReportsRequestedAndAllowedValueOfEachExcess) {
  const auto message = [](const LaunchExtents& launch) {
    return CheckLaunchLimits(launch, kLimits).Message("k", "cpu:0");
  };
  EXPECT_EQ(message({.grid = {1, 21, 1}, .block = {1, 1, 1}}),
            "launch rejected: kernel 'k' asks for 21 blocks along y, device cpu:0 allows 1 to 20");
  EXPECT_EQ(message({.grid = {1, 1, 1}, .block = {1, 1, 9}}),
            "launch rejected: kernel 'k' asks for 9 threads per block along z, device cpu:0 allows "
            "1 to 8");
  EXPECT_EQ(message({.grid = {1, 1, 1}, .block = {64, 9, 1}}),
            "launch rejected: kernel 'k' asks for 576 threads per block, it allows 512 on device "
            "cpu:0");
  LaunchExtents shared = kLargest;
  ++shared.dynamic_shared_bytes;
  EXPECT_EQ(message(shared),
            "launch rejected: kernel 'k' asks for 1001 bytes of static and dynamic shared memory "
            "per block, device cpu:0 allows 1000");
}

}  // namespace
}  // namespace gpushared
