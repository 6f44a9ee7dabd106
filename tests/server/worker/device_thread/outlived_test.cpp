// SPDX-License-Identifier: Apache-2.0
// Commands that run for much longer than predicted.
#include <chrono>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/worker/harness.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

// Before the first measurement, fills are predicted from their size. Those of this size are
// predicted to take 10 to 100 us.
constexpr std::uint64_t FillBytes(std::uint64_t units) { return units * device::kCopyPieceBytes; }

std::vector<std::uint64_t> UnitsFrom(const std::vector<StepDevice::Submission>& seen,
                                     std::size_t first) {
  std::vector<std::uint64_t> units;
  for (std::size_t i = first; i < seen.size(); ++i) units.push_back(seen[i].units);
  return units;
}

class OutlivedWork : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Policies, OutlivedWork,
                         ::testing::Values("round_robin", "fair", "priority", "deadline"));

TEST_P(OutlivedWork, YieldsToSameClassAndResumesInOrder) {
  WorkerHarness worker({}, {.settings = {.policy = GetParam()}});
  RawClient liar = worker.Client({.name = "liar"});
  RawClient honest = worker.Client({.name = "honest"});
  for (const std::uint64_t units : {4, 5, 6}) liar.Fill(0, liar.base(), FillBytes(units), 1);
  ASSERT_EQ(worker.device().WaitForSubmissions(3).size(), 3u);
  worker.device().RunUnits(2);
  // Submits more than the window holds, so that some wait in the lane and one in the ring.
  Sequence last = 0;
  for (const std::uint64_t units : {100, 101, 102}) {
    last = liar.Fill(0, liar.base(), FillBytes(units), 1);
  }
  const Sequence asked = honest.Launch(0, 0, 0);

  auto seen = worker.device().WaitForSubmissions(4);
  while (!seen.empty() && seen.back().kernel.empty()) {
    seen = worker.device().WaitForSubmissions(seen.size() + 1);
  }
  ASSERT_FALSE(seen.empty()) << "it waits for work that was predicted to be short";
  EXPECT_EQ(liar.finished(0), 0u);
  const std::size_t served = seen.size();
  worker.device().FinishOldest();
  ASSERT_TRUE(honest.AwaitFinished(0, asked));
  seen = worker.device().WaitForSubmissions(served + 1);
  ASSERT_GT(seen.size(), served);
  EXPECT_EQ(seen[served].units, 4u);
  EXPECT_EQ(seen[served].first_unit, 2u);
  worker.device().RunAtOnce();
  ASSERT_TRUE(liar.AwaitFinished(0, last));
  EXPECT_THAT(UnitsFrom(worker.device().submissions(), served),
              ::testing::ElementsAre(4, 5, 6, 100, 101, 102));
}

TEST(OutlivedCommand, DelaysItsStreamWhileItMayBeStopped) {
  WorkerHarness worker({}, {.settings = {.policy = "fair"}});
  RawClient client = worker.Client();
  const RawClient other = worker.Client();
  client.CreateStream(1);
  client.Fill(0, client.base(), FillBytes(4), 1);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  std::this_thread::sleep_for(10ms);  // Longer than the command's predicted time.
  const Sequence behind = client.Fill(0, client.base(), FillBytes(5), 1);
  client.Fill(1, client.base(), FillBytes(6), 1);
  // An answer on the socket proves that the worker has taken both commands.
  ASSERT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
  std::this_thread::sleep_for(5ms);
  for (const auto& each : worker.device().submissions()) EXPECT_NE(each.units, 5u);
  worker.device().RunAtOnce();
  ASSERT_TRUE(client.AwaitFinished(0, behind));
}

TEST(OutlivedCommand, OfTheHighClassIsNotStopped) {
  WorkerHarness worker({}, {.settings = {.policy = "priority"}});
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  RawClient other = worker.Client({.client_class = SchedulingClass::kHigh});
  const Sequence last = high.Fill(0, high.base(), FillBytes(4), 1);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
  other.Launch(0, 0, 0);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(worker.device().stops_asked(), 0u);
  worker.device().RunAtOnce();
  ASSERT_TRUE(high.AwaitFinished(0, last));
}

}  // namespace
}  // namespace gpushared::testing
