// SPDX-License-Identifier: Apache-2.0
// What is learnt of kernels, kept on disk.
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/cost_file.h"
#include "tests/server/worker_harness.h"
#include "tests/support/read_file.h"
#include "tests/support/scratch_folder.h"

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
    return {{.key = 1, .grid = {.kernel = ~0ull, .blocks = 7}, .predicted = 300us},
            {.key = ~0ull, .grid = {.kernel = 0, .blocks = 0}, .predicted = 1ns}};
  }
  void Write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }
  std::string Refusal() const {
    const auto costs = ReadCosts(path_, "a device");
    return costs.ok() ? "" : costs.status().message();
  }

  ScratchFolder folder_;
  const std::string path_ = folder_ / "cpu-0.costs";
};

TEST_F(CostFile, CostsComeBackInTheirOrder) {
  ASSERT_TRUE(WriteCosts(path_, "a device", Some()).ok());
  const auto back = ReadCosts(path_, "a device");
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[0].key, 1u);
  EXPECT_EQ((*back)[0].grid.kernel, ~0ull);
  EXPECT_EQ((*back)[0].grid.blocks, 7u);
  EXPECT_EQ((*back)[0].predicted, 300us);
  EXPECT_EQ((*back)[1].key, ~0ull);
  EXPECT_EQ((*back)[1].predicted, 1ns);
  struct stat facts {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(CostFile, AsManyAsMayBeKeptFit) {
  std::vector<KnownCost> many(server::kCostsKeptMax, {.key = ~0ull,
                                                      .grid = {.kernel = ~0ull, .blocks = ~0ull},
                                                      .predicted = scheduler::kCommandTimeMax});
  ASSERT_TRUE(WriteCosts(path_, "a device", many).ok());
  EXPECT_EQ(Refusal(), "");
  many.push_back(many[0]);
  ASSERT_TRUE(WriteCosts(path_, "a device", many).ok());
  EXPECT_THAT(Refusal(), HasSubstr("more than the 4096 costs"));
}

TEST_F(CostFile, NoFileIsNoCosts) {
  const auto costs = ReadCosts(folder_ / "none", "a device");
  ASSERT_TRUE(costs.ok());
  EXPECT_TRUE(costs->empty());
}

TEST_F(CostFile, AnotherDeviceIsRefused) {
  ASSERT_TRUE(WriteCosts(path_, "another\ndevice", Some()).ok());
  EXPECT_THAT(Refusal(), HasSubstr("it is not of this device, 'a device'"));
  EXPECT_TRUE(ReadCosts(path_, "another\ndevice").ok()) << "its name is made one line";
}

// Whatever byte is changed or missing, the file is refused as a whole.
TEST_F(CostFile, DamageIsSeenWhereverItIs) {
  ASSERT_TRUE(WriteCosts(path_, "a device", Some()).ok());
  const std::string good = ReadFile(path_);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    Write(bad);
    EXPECT_NE(Refusal(), "") << at;
    if (at == 0) continue;  // An empty file is none.
    Write(good.substr(0, at));
    EXPECT_NE(Refusal(), "") << at << " bytes";
  }
  Write(good + good);
  EXPECT_NE(Refusal(), "");
}

TEST_F(CostFile, RefusalsNameTheLine) {
  const std::string head = "gpushared costs 1\ndevice a device\n";
  Write(head + "1 2 3 4\n1 2 3 0\n");
  EXPECT_THAT(Refusal(), HasSubstr("line 4 is not key, kernel, blocks and nanoseconds"));
  for (const char* line : {"1 2 3", "1 2 3 4 5", "g 2 3 4", "1 2 3 3600000000001", "-1 2 3 4", "",
                           "10000000000000000 2 3 4", "1  2 3 4"}) {
    Write(head + line + "\n");
    EXPECT_THAT(Refusal(), HasSubstr("line 3")) << line;
  }
  Write(head + "1 2 3 4\n");
  EXPECT_THAT(Refusal(), HasSubstr("the sum, is missing"));
  Write(head + "sum 0\n");
  EXPECT_THAT(Refusal(), HasSubstr("line 3: the sum is wrong"));
  Write("gpushared costs 2\n");
  EXPECT_THAT(Refusal(), HasSubstr("its first line is not 'gpushared costs 1'"));
}

TEST_F(CostFile, WhatIsNoSmallRegularFileIsRefused) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), HasSubstr("no regular file")) << "and nobody waits for its writer";
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(Refusal(), HasSubstr("no regular file"));
  std::filesystem::remove(path_);
  std::filesystem::create_symlink(folder_ / "elsewhere", path_);
  EXPECT_THAT(Refusal(), HasSubstr("cannot be opened"));
  std::filesystem::remove(path_);
  Write(std::string(server::kCostFileBytesMax + 1, 'x'));
  EXPECT_THAT(Refusal(), HasSubstr("more than the 524288 bytes"));
}

TEST_F(CostFile, IsReplacedAsAWholeOrNotAtAll) {
  ASSERT_TRUE(WriteCosts(path_, "a device", Some()).ok());
  const std::string before = ReadFile(path_);
  std::ofstream(path_ + ".new") << "what a worker left that was killed";
  ASSERT_TRUE(WriteCosts(path_, "a device", std::vector<KnownCost>{Some()[0]}).ok());
  EXPECT_NE(ReadFile(path_), before);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));

  const std::string after = ReadFile(path_);
  std::filesystem::create_directories(path_ + ".new/in the way");
  const Status refused = WriteCosts(path_, "a device", Some());
  EXPECT_THAT(refused.message(), HasSubstr("costs not kept: "));
  EXPECT_EQ(ReadFile(path_), after);
}

// A launch of a kernel that was never stopped because it is known to be short.
TEST_F(CostFile, WhatOneWorkerLearntTheNextOneKnows) {
  server::WorkerOptions options;
  options.cost_file = path_;
  for (const bool knows : {false, true}) {
    SCOPED_TRACE(knows);
    WorkerHarness worker({}, options);
    RawClient client = worker.Client({.client_class = ipc::ClientClass::kLow});
    // What may be stopped holds back what follows; what is known to be short does not.
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

TEST_F(CostFile, AWorkerBeginsWithNothingWhereTheFileIsDamaged) {
  Write("gpushared costs 1\n");
  server::WorkerOptions options;
  options.cost_file = path_;
  {
    WorkerHarness worker({.runs_at_once = true}, options);
    RawClient client = worker.Client();
    ASSERT_TRUE(client.AwaitFinished(0, client.Launch(0, 0, 0)));
  }
  EXPECT_TRUE(ReadCosts(path_, "stepped device").ok()) << "and replaces it";
}

}  // namespace
}  // namespace gpushared::testing
