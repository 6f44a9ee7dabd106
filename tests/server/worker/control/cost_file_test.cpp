// SPDX-License-Identifier: Apache-2.0
// Learnt kernel costs that are persisted in a file.
#include "server/worker/control/cost_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/worker/harness.h"
#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;
using scheduler::KnownCost;
using server::ReadCosts;
using server::WriteCosts;
using ::testing::HasSubstr;

class CostFile : public ::testing::Test {
 protected:
  static std::vector<KnownCost> Some() {
    return {{.key = 1,
             .grid = {.kernel = ~0ull, .blocks = 7},
             .predicted = 300us,
             .last_sample = 0,
             .samples = 19},
            {.key = ~0ull, .grid = {.kernel = 0, .blocks = 0}, .predicted = 1ns}};
  }
  void Write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    ::chmod(path_.c_str(), 0600);
  }
  std::string Rejection() const {
    const auto costs = ReadCosts(path_, "a device");
    return costs.ok() ? "" : costs.status().message();
  }
  [[nodiscard]] bool Keep(std::string_view conditions, std::span<const KnownCost> costs) const {
    return WriteCosts(path_, conditions, kSeed, costs).ok();
  }
  // Returns the costs that the worker has persisted.
  std::vector<KnownCost> Kept() const {
    const auto kept = ReadCosts(path_, server::CostConditions(SteppedDevice()));
    EXPECT_TRUE(kept.ok()) << kept.status().ToString();
    return kept.ok() && kept->has_value() ? (*kept)->costs : std::vector<KnownCost>();
  }
  static device::DeviceInfo SteppedDevice() {
    device::DeviceInfo info;
    info.name = "stepped device";
    info.multiprocessors = 1;
    return info;
  }

  static constexpr server::HashSeed kSeed = {7, ~0ull};
  ScratchDirectory directory_;
  const std::string path_ = directory_ / "cpu-0.costs";
};

TEST_F(CostFile, RestoresCostsInOrder) {
  ASSERT_TRUE(Keep("a device", Some()));
  const auto back = ReadCosts(path_, "a device");
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  ASSERT_TRUE(back->has_value());
  const std::vector<KnownCost>& costs = (*back)->costs;
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].key, 1u);
  EXPECT_EQ(costs[0].grid.kernel, ~0ull);
  EXPECT_EQ(costs[0].grid.blocks, 7u);
  EXPECT_EQ(costs[0].predicted, 300us);
  EXPECT_EQ(costs[0].samples, 19u);
  EXPECT_EQ(costs[1].key, ~0ull);
  EXPECT_EQ(costs[1].predicted, 1ns);
  EXPECT_EQ((*back)->seed, kSeed);
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(CostFile, HoldsMaximumNumberOfCosts) {
  std::vector<KnownCost> many(server::kCostsKeptMax, {.key = ~0ull,
                                                      .grid = {.kernel = ~0ull, .blocks = ~0ull},
                                                      .predicted = scheduler::kCommandTimeMax});
  ASSERT_TRUE(Keep("a device", many));
  EXPECT_EQ(Rejection(), "");
  many.push_back(many[0]);
  ASSERT_TRUE(Keep("a device", many));
  EXPECT_THAT(Rejection(), HasSubstr("more than the 4096 costs"));
}

TEST_F(CostFile, MissingFileMeansNoCosts) {
  const auto costs = ReadCosts(directory_ / "none", "a device");
  ASSERT_TRUE(costs.ok());
  EXPECT_FALSE(costs->has_value());
}

TEST_F(CostFile, RejectsCostsOfOtherDevice) {
  ASSERT_TRUE(Keep("another\ndevice", Some()));
  EXPECT_THAT(Rejection(), HasSubstr("it is not of this device, 'a device'"));
  EXPECT_TRUE(ReadCosts(path_, "another\ndevice").ok()) << "its name is made one line";
}

// The file is rejected as a whole, whichever byte is changed or missing.
TEST_F(CostFile, DetectsDamageAtAnyByte) {
  ASSERT_TRUE(Keep("a device", Some()));
  const std::string good = ReadFile(path_);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    Write(bad);
    EXPECT_NE(Rejection(), "") << at;
    if (at == 0) continue;  // An empty file counts as no file.
    Write(good.substr(0, at));
    EXPECT_NE(Rejection(), "") << at << " bytes";
  }
  Write(good + good);
  EXPECT_NE(Rejection(), "");
}

TEST_F(CostFile, RejectionsNameTheLine) {
  const std::string head = "gpushared costs 3\ndevice a device\nseed 1 2\n";
  Write(head + "1 2 3 4 5\n1 2 3 0 5\n");
  EXPECT_THAT(Rejection(), HasSubstr("line 5 is not key, kernel, blocks, nanoseconds and samples"));
  for (const char* line :
       {"1 2 3 4", "1 2 3 4 5 6", "g 2 3 4 5", "1 2 3 3600000000001 5", "-1 2 3 4 5", "",
        "10000000000000000 2 3 4 5", "1  2 3 4 5", "1 2 3 4 0", "1 2 3 4 20"}) {
    Write(head + line + "\n");
    EXPECT_THAT(Rejection(), HasSubstr("line 4")) << line;
  }
  Write(head + "1 2 3 4 5\n");
  EXPECT_THAT(Rejection(), HasSubstr("the sum, is missing"));
  Write(head + "sum 0\n");
  EXPECT_THAT(Rejection(), HasSubstr("line 4: the sum is wrong"));
  Write("gpushared costs 2\n");
  EXPECT_THAT(Rejection(), HasSubstr("its first line is not 'gpushared costs 3'"));
  for (const char* seed : {"1 2 3 4", "seed 1", "seed 1 2 3", "seed  1 2", "seed 1 g"}) {
    Write(std::string("gpushared costs 3\ndevice a device\n") + seed + "\n");
    EXPECT_THAT(Rejection(), HasSubstr("line 3 is not the keys' seed")) << seed;
  }
}

TEST_F(CostFile, RejectsAllButSmallRegularFiles) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(Rejection(), HasSubstr("no regular file")) << "and nobody waits for its writer";
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(Rejection(), HasSubstr("no regular file"));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(directory_ / "elsewhere", path_);
  EXPECT_THAT(Rejection(), HasSubstr("cannot be opened"));
  std::filesystem::remove(path_);
  Write(std::string(server::kCostFileBytesMax + 1, 'x'));
  EXPECT_THAT(Rejection(), HasSubstr("more than the 524288 bytes"));
}

// A file of another user is rejected, because costs decide which client runs next.
TEST_F(CostFile, RejectsFileOfOtherUser) {
  ASSERT_TRUE(Keep("a device", Some()));
  EXPECT_EQ(Rejection(), "");
  for (const mode_t mode : {0660, 0602, 0666}) {
    ::chmod(path_.c_str(), mode);
    EXPECT_THAT(Rejection(), HasSubstr("that no other user may write to"));
  }
  ::chmod(path_.c_str(), 0600);
  ::chmod(directory_.path().c_str(), 0777);
  EXPECT_THAT(Rejection(), HasSubstr("writable by users other than its owner"));
  EXPECT_FALSE(Keep("a device", Some()));
  ::chmod(directory_.path().c_str(), 0700);
  EXPECT_EQ(Rejection(), "");
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give files away";
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(Rejection(), HasSubstr("it belongs to uid 65534"));
  ASSERT_EQ(::chown(path_.c_str(), 0, 0), 0);
  ASSERT_EQ(::chown(directory_.path().c_str(), 65534, 65534), 0);
  EXPECT_THAT(Rejection(), HasSubstr("belongs to uid 65534, allowed: root"));
  EXPECT_FALSE(Keep("a device", Some()));
}

TEST_F(CostFile, IsReplacedAtomically) {
  ASSERT_TRUE(Keep("a device", Some()));
  const std::string before = ReadFile(path_);
  std::ofstream(path_ + ".new") << "what a worker left that was killed";
  ASSERT_TRUE(Keep("a device", std::vector<KnownCost>{Some()[0]}));
  EXPECT_NE(ReadFile(path_), before);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));

  const std::string after = ReadFile(path_);
  std::filesystem::create_directories(path_ + ".new/in the way");
  const Status rejected = WriteCosts(path_, "a device", kSeed, Some());
  EXPECT_THAT(rejected.message(), HasSubstr("costs not kept: "));
  EXPECT_EQ(ReadFile(path_), after);
}

// The first worker learns that launches of this kernel are short; the next one learns it from the
// file.
TEST_F(CostFile, NextWorkerUsesPersistedCosts) {
  server::WorkerOptions options;
  options.cost_file = path_;
  for (const bool knows : {false, true}) {
    SCOPED_TRACE(knows);
    WorkerHarness worker({}, options);
    RawClient client = worker.Client({.client_class = SchedulingClass::kLow});
    // A preemptible launch delays the ones after it; a launch that is known to be short does not.
    client.Launch(0, 0, 0, {.x = 3});
    client.Launch(0, 0, 0, {.x = 3});
    ASSERT_FALSE(worker.device().WaitForSubmissions(1).empty());
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(worker.device().running_count(), knows ? 2u : 1u);
    worker.device().RunAtOnce();
    ASSERT_TRUE(client.AwaitFinished(0, 2));
    for (int i = 0; i < 40; ++i) {
      ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0, {.x = 3})));
    }
  }
}

TEST_F(CostFile, WorkerStartsWithoutCostsIfFileIsDamaged) {
  Write("gpushared costs 3\n");
  server::WorkerOptions options;
  options.cost_file = path_;
  {
    WorkerHarness worker({.runs_at_once = true}, options);
    RawClient client = worker.Client();
    ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  }
  EXPECT_EQ(Kept().size(), 1u) << "and replaces it";
}

TEST_F(CostFile, IgnoresCostsOfOtherConditions) {
  const std::string conditions = server::CostConditions(SteppedDevice());
  EXPECT_EQ(server::CostConditions(SteppedDevice()), conditions);
  const auto changed = [](auto change) {
    device::DeviceInfo info = SteppedDevice();
    change(info);
    return server::CostConditions(info);
  };
  std::vector<std::string> all = {
      conditions,
      changed([](device::DeviceInfo& info) { info.name = "another"; }),
      changed([](device::DeviceInfo& info) { info.multiprocessors = 2; }),
      changed([](device::DeviceInfo& info) { info.sm_grants = {{.of_class = 2, .granted = 8}}; }),
      changed([](device::DeviceInfo& info) { info.sm_grants = {{.of_class = 2, .granted = 9}}; }),
      changed([](device::DeviceInfo& info) { info.sm_grants = {{.of_class = 1, .granted = 8}}; })};
  for (std::size_t i = 1; i < all.size(); ++i) {
    ASSERT_TRUE(Keep(all[i], Some()));
    EXPECT_FALSE(ReadCosts(path_, conditions).ok()) << all[i];
  }
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
  EXPECT_EQ(changed([](device::DeviceInfo& info) { info.name = std::string(5000, 'x'); }).size(),
            conditions.size() - SteppedDevice().name.size() + 256)
      << "a long name leaves room for the rest";
}

TEST_F(CostFile, EachDeviceHasItsOwnFile) {
  EXPECT_EQ(server::CostFileName("cuda:0"), "cuda.0.costs");
  EXPECT_EQ(server::CostFileName("MIG-12ab-34"), "MIG-12ab-34.costs");
  std::vector<std::string> all;
  for (const char* device : {"a:b", "a-b", "a.b", "a_b", "a/b", "a%3ab", "a b", "A:b", "ab"}) {
    all.push_back(server::CostFileName(device));
    EXPECT_EQ(all.back().find('/'), std::string::npos);
  }
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

// The saved seed must be the one of the loaded file, because otherwise none of the entries would be
// found again.
TEST_F(CostFile, PeriodicSaveIsCompleteAndKeepsSeed) {
  const std::string conditions = server::CostConditions(SteppedDevice());
  ASSERT_TRUE(Keep(conditions, Some()));
  server::WorkerOptions options;
  options.cost_file = path_;
  options.keep_costs_every = 20ms;
  WorkerHarness worker({.runs_at_once = true}, options);
  RawClient client = worker.Client();
  for (std::uint32_t x = 1; x <= 50; ++x) {
    ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0, {.x = x})));
  }
  EXPECT_TRUE(Eventually([&] { return Kept().size() == 52; }));
  const auto kept = ReadCosts(path_, conditions);
  ASSERT_TRUE(kept.ok() && kept->has_value());
  EXPECT_EQ((*kept)->seed, kSeed);
  EXPECT_EQ((*kept)->costs[0].key, Some()[0].key) << "oldest first";
}

class Learning : public CostFile {
 protected:
  Learning() { options_.cost_file = path_; }
  // The durations learnt by a worker that has ended, in ascending order.
  std::vector<scheduler::Duration> Learnt() const {
    std::vector<scheduler::Duration> all;
    for (const KnownCost& cost : Kept()) all.push_back(cost.predicted);
    std::ranges::sort(all);
    return all;
  }
  // Submits two launches that both reach the device before either has ended.
  static void LaunchTwo(RawClient& client) {
    client.Publish(GetLaunch(0, 0, 0, {.x = 3}, 0));
    client.Publish(GetLaunch(1, 0, 0, {.x = 5}, 0));
    client.Ring();
  }

  server::WorkerOptions options_;
};

TEST_F(Learning, LearnsShortLaunchesThatNeverRunAlone) {
  {
    WorkerHarness worker({}, options_);
    RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
    client.CreateStream(1);
    client.Launch(1, 0, 0, {.x = 5});
    ASSERT_EQ(worker.device().WaitForSubmissions(1).size(), 1u);
    for (std::size_t launches = 2; launches < 42; ++launches) {
      const Sequence launch = client.Launch(0, 0, 0, {.x = 3});
      ASSERT_EQ(worker.device().WaitForSubmissions(launches).size(), launches);
      worker.device().FinishLatest();
      ASSERT_TRUE(client.AwaitFinished(0, launch));
    }
  }
  ASSERT_FALSE(Learnt().empty());
  EXPECT_LT(Learnt().front(), scheduler::Predictor::kFirstGuess);
}

// If such times counted, a client could make another client's kernels look long.
TEST_F(Learning, IgnoresLongTimesNextToOtherClients) {
  {
    WorkerHarness worker({}, options_);
    RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
    RawClient other = worker.Client({.client_class = SchedulingClass::kHigh});
    const Sequence launch = client.Launch(0, 0, 0, {.x = 3});
    const Sequence others = other.Launch(0, 0, 0, {.x = 5});
    ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
    std::this_thread::sleep_for(3ms);
    worker.device().FinishAll();
    ASSERT_TRUE(client.AwaitFinished(0, launch));
    ASSERT_TRUE(other.AwaitFinished(0, others));
  }
  EXPECT_TRUE(Learnt().empty());
}

// If such times did not count, a client whose launches never run alone could hide their duration
// forever.
TEST_F(Learning, LearnsLongTimesNextToSameClientsWork) {
  {
    WorkerHarness worker({}, options_);
    RawClient client = worker.Client({.client_class = SchedulingClass::kHigh});
    client.CreateStream(1);
    LaunchTwo(client);
    ASSERT_EQ(worker.device().WaitForSubmissions(2).size(), 2u);
    std::this_thread::sleep_for(3ms);
    worker.device().FinishAll();
    ASSERT_TRUE(client.AwaitFinished(0, client.published(0)));
    ASSERT_TRUE(client.AwaitFinished(1, client.published(1)));
  }
  ASSERT_FALSE(Learnt().empty());
  EXPECT_GT(Learnt().back(), scheduler::Predictor::kFirstGuess);
}

TEST_F(Learning, LearnsAlwaysStoppedLaunchFromItsPieces) {
  {
    WorkerHarness worker({}, options_);
    RawClient low = worker.Client({.client_class = SchedulingClass::kLow});
    RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
    const Sequence training = low.Launch(0, 0, 0, {.x = 100});
    std::size_t submissions = 1;
    for (const int units : {30, 40}) {
      ASSERT_EQ(worker.device().WaitForSubmissions(submissions).size(), submissions);
      std::this_thread::sleep_for(15ms);
      worker.device().RunUnits(static_cast<std::uint64_t>(units));
      const Sequence request = high.Launch(0, 0, 0);
      ASSERT_FALSE(worker.device().WaitForSubmissions(submissions + 1).empty());
      worker.device().FinishOldest();
      ASSERT_TRUE(high.AwaitFinished(0, request));
      submissions += 2;
    }
    ASSERT_EQ(worker.device().WaitForSubmissions(submissions).size(), submissions);
    EXPECT_EQ(worker.device().submissions().back().first_unit, 70u);
    worker.device().FinishOldest();
    ASSERT_TRUE(low.AwaitFinished(0, training));
  }
  ASSERT_FALSE(Learnt().empty());
  EXPECT_GE(Learnt().back(), 30ms);
}

nlohmann::json StatusAfter(const StepDeviceOptions& device, int launches) {
  WorkerHarness worker(device);
  RawClient client = worker.Client();
  for (int i = 0; i < launches; ++i) {
    EXPECT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  }
  // The lane looks ahead by launch bubbles while a high-class client is connected.
  RawClient high = worker.Client({.client_class = SchedulingClass::kHigh});
  return nlohmann::json::parse(worker.AskAdmin(ipc::AdminVerb::kStatus));
}

TEST(LaunchBubble, IsTimeFromSubmissionToEndWithoutExecution) {
  const auto slow = StatusAfter({.runs_at_once = true, .submitting_takes = 2ms}, 12);
  ASSERT_TRUE(slow.contains("launch_bubble_us"));
  EXPECT_GE(slow["launch_bubble_us"], 2000.0);
  EXPECT_EQ(slow["lookahead_us"], 500.0);
  // The device reports that the launch ran for longer than the whole time.
  const auto quick =
      StatusAfter({.runs_at_once = true, .submitting_takes = 2ms, .ends_later = 3600s}, 12);
  EXPECT_EQ(quick["launch_bubble_us"], 0.0);
  EXPECT_EQ(quick["lookahead_us"], 20.0) << "the lane is told";
}

TEST(Predictions, StatusReportsAccuracy) {
  const auto status = StatusAfter({.runs_at_once = true}, 30);
  EXPECT_GE(status["predictions"], 20);
  EXPECT_LE(status["predictions_exceeded_percent"], 100.0);
  EXPECT_LE(status["prediction_error_p50_percent"], status["prediction_error_p90_percent"]);
}

}  // namespace
}  // namespace gpushared::testing
