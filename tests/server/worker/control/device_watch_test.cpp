// SPDX-License-Identifier: Apache-2.0
// A device thread that is blocked inside a call of its device, and sensors whose reading is
// blocked.
#include "server/worker/control/device_watch.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/control/worker.h"
#include "tests/server/worker/harness.h"
#include "tests/support/log_text.h"

namespace gpushared::testing {
namespace {

using server::DeviceWatch;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using enum DeviceWatch::Verdict;

// ---- when it is blocked

DeviceWatch FivePolls() {
  return DeviceWatch({.interval = milliseconds(100),
                      .turn_max = milliseconds(500),
                      .leaves_within = milliseconds(200)});
}

TEST(DeviceWatch, StopsKernelsOnceThenReportsLossOnce) {
  DeviceWatch watch = FivePolls();
  for (int look = 0; look < 5; ++look) EXPECT_EQ(watch.Poll(7), kFine);
  EXPECT_EQ(watch.Poll(7), kEndKernels);
  EXPECT_EQ(watch.blocked_for(), milliseconds(500));
  EXPECT_EQ(watch.Poll(7), kFine);
  EXPECT_EQ(watch.Poll(7), kLost);
  EXPECT_EQ(watch.blocked_for(), milliseconds(700));
  for (int look = 0; look < 20; ++look) EXPECT_EQ(watch.Poll(7), kFine);
}

TEST(DeviceWatch, DoesNotReportSleepingOrProgressingThread) {
  DeviceWatch watch = FivePolls();
  for (int look = 0; look < 50; ++look) EXPECT_EQ(watch.Poll(8), kFine) << "between two turns";
  for (std::uint64_t turn = 9; turn < 200; turn += 2) EXPECT_EQ(watch.Poll(turn), kFine);
}

TEST(DeviceWatch, CountsEachIterationSeparately) {
  DeviceWatch watch = FivePolls();
  for (const std::uint64_t turn : {1, 3, 5}) {
    for (int look = 0; look < 5; ++look) EXPECT_EQ(watch.Poll(turn), kFine);
  }
  EXPECT_EQ(watch.Poll(5), kEndKernels);
  EXPECT_EQ(watch.Poll(7), kFine) << "it came back";
  for (int look = 0; look < 4; ++look) EXPECT_EQ(watch.Poll(7), kFine);
  EXPECT_EQ(watch.Poll(7), kEndKernels);
}

TEST(DeviceWatch, ChecksAtMostOncePerSecond) {
  EXPECT_EQ(DeviceWatch::LimitsFor(seconds(60), {}).interval, seconds(1));
  EXPECT_EQ(DeviceWatch::LimitsFor(seconds(5), {}).interval, milliseconds(500));
}

// ---- what follows

server::WorkerOptions CallMax(milliseconds call_max, milliseconds leaves_within = seconds(2)) {
  server::WorkerOptions options;
  options.settings.kernel_limits = {};  // A longer limit would apply instead.
  options.call_max = call_max;
  options.leaves_within = leaves_within;
  return options;
}

TEST(BlockedDeviceThread, IsDeviceLossReportedToAllClientsWithKernel) {
  WorkerHarness worker({.launches_block = true}, CallMax(milliseconds(100)));
  RawClient slow = worker.Client({.name = "slow", .client_class = SchedulingClass::kLow});
  RawClient other = worker.Client({.name = "other"});
  slow.Launch(0, 0, 0);
  const auto is_loss = AllOf(
      HasSubstr("device step:0 lost with all memory on it: the device thread has been inside of "
                "one call of the driver for 0.1"),
      HasSubstr(" s; caused by kernel 'null' [client 1 'slow' pid "),
      Not(HasSubstr("client 2 'o")));
  for (RawClient* const client : {&slow, &other}) {
    const Status end = client->AwaitEnd();
    EXPECT_EQ(end.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(std::string(end.message()).substr(0, end.message().rfind('[')), is_loss);
  }
  const auto told = worker.Await<ipc::ChannelReply>();
  ASSERT_TRUE(told);
  EXPECT_EQ(told->code, StatusCode::kDeviceLost);
  EXPECT_THAT(told->text, is_loss);
  EXPECT_EQ(worker.AwaitExit(), server::kWorkerLostDevice) << "it is not waited for";
}

TEST(BlockedDeviceThread, ResumesWhenPollingKernelsAreRequestedToEnd) {
  const LogText log;
  {
    WorkerHarness worker({.can_kill = false,
                          .may_be_killed = true,
                          .launches_block = true,
                          .polling_kernels_end = true},
                         CallMax(milliseconds(50)));
    RawClient client = worker.Client();
    const Sequence launch = client.Launch(0, 0, 0);
    ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1U);
    EXPECT_EQ(worker.device().end_requests(), 1U);
    worker.device().FinishOldest();
    EXPECT_TRUE(client.AwaitFinished(0, launch));
    EXPECT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok())
        << "the session lives on";
  }
  EXPECT_EQ(log.Count("can be ended without the driver are asked to end"), 1U);
}

TEST(BlockedDeviceThread, IsDeviceLossIfKernelsIgnoreRequestToEnd) {
  WorkerHarness worker({.can_kill = false, .may_be_killed = true, .launches_block = true},
                       CallMax(milliseconds(50), milliseconds(100)));
  RawClient client = worker.Client();
  client.Launch(0, 0, 0);
  EXPECT_THAT(
      std::string(client.AwaitEnd().message()),
      HasSubstr("for 0.15 s and did not return after kernels were asked to end; caused by"));
  EXPECT_EQ(worker.device().end_requests(), 1U);
  EXPECT_EQ(worker.AwaitExit(), server::kWorkerLostDevice);
}

// ---- sensors

TEST(BlockedSensors, DelayNeitherSessionsNorTheEndOfTheWorker) {
  struct Driver {
    std::promise<void> is_called, answers;
  };
  const auto driver = std::make_shared<Driver>();
  {
    server::WorkerOptions options;
    options.read_gpu = [driver] {
      driver->is_called.set_value();
      driver->answers.get_future().wait();
      return device::GpuReadings{};
    };
    WorkerHarness worker(testing::kAtOnce, std::move(options));
    ASSERT_EQ(driver->is_called.get_future().wait_for(seconds(30)), std::future_status::ready);
    RawClient client = worker.Client();
    EXPECT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  }
  driver->answers.set_value();
  EXPECT_TRUE(testing::Eventually([&] { return driver.use_count() == 1; }));
}

TEST(BlockedDeviceThread, MayBlockForLongestKernelLimit) {
  server::WorkerOptions options = CallMax(milliseconds(20));
  options.settings.kernel_limits = {std::nullopt, seconds(60), milliseconds(10)};
  options.settings.kernel_limits_given = {true, true, true};
  WorkerHarness worker({.runs_at_once = true, .submitting_takes = milliseconds(300)}, options);
  RawClient client = worker.Client();
  EXPECT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
}

TEST(BlockedDeviceThread, DoesNotIncludeSleepDuringKernel) {
  WorkerHarness worker({}, CallMax(milliseconds(20)));
  RawClient client = worker.Client();
  const Sequence launch = client.Launch(0, 0, 0);
  ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1U);
  std::this_thread::sleep_for(milliseconds(200));
  worker.device().FinishOldest();
  EXPECT_TRUE(client.AwaitFinished(0, launch));
}

// A debugger, or a machine that is suspended, stops both threads, so the watcher must not treat its
// own pause as a loss.
TEST(BlockedDeviceThread, IsNoLossWhileWatcherIsStoppedToo) {
  WorkerHarness worker({.runs_at_once = true, .submitting_takes = milliseconds(400)},
                       CallMax(milliseconds(200)));
  RawClient client = worker.Client();
  Sequence launch = 0;
  worker.WhileControlStands([&] {
    launch = client.Launch(0, 0, 0);
    EXPECT_EQ(worker.device().WaitForSubmissions(1).size(), 1U);
  });
  EXPECT_TRUE(client.AwaitFinished(0, launch));
  EXPECT_TRUE(client.Ask<ipc::Done>(ipc::UnloadModule{.module = 0}).ok());
}

}  // namespace
}  // namespace gpushared::testing
