// SPDX-License-Identifier: Apache-2.0
// NVML's answers become boards and layouts; its rejections become messages.

#include "server/tools/mig/gpu.h"

#include <gmock/gmock.h>

#include "server/tools/mig/boards.h"
#include "tests/mig/mig_case.h"

namespace gpushared::mig {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using MigGpuTest = MigCase;

TEST_F(MigGpuTest, ReadsBoardsAsDocumented) {
  for (const KnownBoard& known : KnownBoards()) {
    const std::string name = known.board.name == "H100-80" ? "H100" : known.board.name;
    // Without MIG mode the driver reports no names, so they are composed like those of NVIDIA's
    // libraries.
    for (const char* mig : {"true", "false"}) {
      Machine(R"({"gpus": [{"board": ")" + name + R"(", "mig": )" + mig + "}]}");
      const MigGpu gpu = Gpu();
      EXPECT_EQ(gpu.trouble, "");
      EXPECT_TRUE(gpu.has_mig);
      EXPECT_EQ(gpu.board.slices, known.board.slices);
      ASSERT_EQ(gpu.board.profiles.size(), known.board.profiles.size()) << name;
      for (const Profile& profile : gpu.board.profiles) {
        const Profile* const expected = known.board.Find(profile.id);
        ASSERT_NE(expected, nullptr);
        EXPECT_EQ(profile.name, expected->name) << name << " " << mig;
        EXPECT_EQ(profile.starts, expected->starts) << profile.name;
        EXPECT_EQ(profile.count_max, expected->count_max) << profile.name;
        EXPECT_EQ(profile.memory_slices, expected->memory_slices) << profile.name;
        EXPECT_EQ(profile.compute_slices, expected->compute_slices) << profile.name;
      }
    }
  }
}

TEST_F(MigGpuTest, InstancesHaveDevicesAndUsers) {
  Machine(R"({"gpus": [{"board": "A100-40", "mig": true, "instances": [
      {"profile": "1g.10gb", "start": 2, "processes": [4711]},
      {"profile": "3g.20gb", "start": 4, "compute": [
          {"slices": 1, "start": 2}, {"slices": 2, "start": 0, "processes": [5, 6]}]}]}]})");
  const MigGpu gpu = Gpu();
  EXPECT_EQ(gpu.trouble, "");
  EXPECT_EQ(gpu.layout(), (Layout{{15, 2, {1}}, {9, 4, {2, 1}}}));
  EXPECT_THAT(gpu.processes, ElementsAre(4711U, 5U, 6U));
  ASSERT_EQ(gpu.instances[1].compute.size(), 2U);
  EXPECT_NE(gpu.instances[1].compute[0].uuid, gpu.instances[1].compute[1].uuid);
  std::vector<std::uint32_t> users;
  for (const LiveCompute& compute : gpu.instances[1].compute) {
    users.insert(users.end(), compute.processes.begin(), compute.processes.end());
  }
  EXPECT_THAT(users, ElementsAre(5U, 6U));
}

// The fake driver makes the same rejections as NVIDIA's: the order 19,19,14,9 with the positions
// that it chose.
TEST_F(MigGpuTest, NaiveOrderFailsHalfWay) {
  Machine(R"({"gpus": [{"board": "A100-40", "mig": true}]})");
  const MigGpu gpu = Gpu();
  EXPECT_TRUE(control().Create(gpu, {19, 6, {1}}).ok());
  EXPECT_TRUE(control().Create(gpu, {19, 4, {1}}).ok());
  EXPECT_TRUE(control().Create(gpu, {14, 0, {2}}).ok());
  for (const std::uint32_t start : {0U, 4U}) {
    const Status made = control().Create(gpu, {9, start, {3}});
    EXPECT_EQ(made.code(), StatusCode::kLimitExceeded);
    EXPECT_THAT(made.message(), HasSubstr("Insufficient Resources (23)"));
  }
  EXPECT_EQ(Gpu().instances.size(), 3U);
}

TEST_F(MigGpuTest, InstancesAreMadeAndDestroyed) {
  Machine(R"({"gpus": [{"board": "A100-40", "mig": true}]})");
  const MigGpu gpu = Gpu();
  // The first free positions would leave none for the second 2c.
  ASSERT_TRUE(control().Create(gpu, {0, 0, {3, 2, 2}}).ok());
  const MigGpu made = Gpu();
  ASSERT_EQ(made.instances.size(), 1U);
  EXPECT_EQ(made.instances[0].compute.size(), 3U);
  ASSERT_TRUE(control().Destroy(made, made.instances[0]).ok());
  EXPECT_THAT(Gpu().instances, IsEmpty());
  EXPECT_THAT(control().Destroy(made, made.instances[0]).message(), HasSubstr("Not Found (6)"));
}

TEST_F(MigGpuTest, UsedInstancesAreNotDestroyed) {
  Machine(R"({"gpus": [{"board": "A30", "mig": true, "instances": [
      {"profile": "2g.12gb", "start": 2, "processes": [5]}]}]})");
  const MigGpu gpu = Gpu();
  const Status destroyed = control().Destroy(gpu, gpu.instances.at(0));
  EXPECT_EQ(destroyed.code(), StatusCode::kNotReady);
  EXPECT_THAT(destroyed.message(),
              AllOf(HasSubstr("GPU 0 (NVIDIA A30): 2g.12gb at 2"), HasSubstr("(19)")));
  EXPECT_EQ(Gpu().layout(), gpu.layout());
}

TEST_F(MigGpuTest, ReportsMissingRights) {
  Machine(R"({"privileged": false, "gpus": [{"board": "A30", "mig": true}]})");
  EXPECT_THAT(Gpu().trouble, AllOf(HasSubstr("Insufficient Permissions (4)"), HasSubstr("root")));
  EXPECT_EQ(control().Find(Gpu().uuid).status().code(), StatusCode::kUnavailable);
  const Status mode = control().SetMode(Gpu(), false);
  EXPECT_EQ(mode.code(), StatusCode::kPermissionDenied);
}

TEST_F(MigGpuTest, ModesChangeOrSayWhyNot) {
  Machine(R"({"gpus": [{"board": "A30"}, {"board": "A30", "processes": [5]},
      {"board": "A30", "reset_required": true}]})");
  EXPECT_TRUE(control().SetMode(Gpu(0), true).ok());
  EXPECT_TRUE(Gpu(0).is_enabled);
  EXPECT_EQ(control().SetMode(Gpu(1), true).code(), StatusCode::kNotReady);
  EXPECT_EQ(control().SetMode(Gpu(2), true).code(), StatusCode::kUnsupported);
  for (const std::size_t index : {1U, 2U}) {
    EXPECT_FALSE(Gpu(index).is_enabled);
    EXPECT_TRUE(Gpu(index).is_pending);
  }
}

// A partial list of instances would let a plan destroy the others.
TEST_F(MigGpuTest, ReportsContradictions) {
  Machine(R"({"gpus": [{"board": "A30", "mig": true, "instances": [
      {"profile": "1g.6gb", "start": 0}]}],
      "fail": [{"call": "nvmlDeviceGetGpuInstanceProfileInfoV", "at": 1, "code": 3},
               {"call": "nvmlDeviceGetGpuInstanceProfileInfo", "code": 3}]})");
  EXPECT_THAT(Gpu().trouble, HasSubstr("NVML contradicts itself: MIG-"));
}

TEST_F(MigGpuTest, ReportsEveryFailureOfInstanceQueries) {
  for (const char* call :
       {"nvmlDeviceGetMigMode", "nvmlDeviceGetGpuInstancePossiblePlacements",
        "nvmlDeviceGetGpuInstances", "nvmlGpuInstanceGetInfo",
        "nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances",
        "nvmlComputeInstanceGetInfo", "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetUUID"}) {
    Machine(R"({"gpus": [{"mig": true, "instances": [{"profile": "1g.18gb", "start": 0}]}],
        "fail": [{"call": ")" +
            std::string(call) + R"(", "code": 999}]})");
    EXPECT_THAT(Gpu().trouble, HasSubstr(call));
  }
}

TEST_F(MigGpuTest, OmitsGpusWithoutMig) {
  Machine(R"({"gpus": [{}], "fail": [{"call": "nvmlDeviceGetMigMode", "code": 3}]})");
  EXPECT_FALSE(Gpu().has_mig);
  EXPECT_EQ(Gpu().trouble, "");
  EXPECT_THAT(control().Find("GPU-f").status().message(), HasSubstr("GPU-f"));
}

}  // namespace
}  // namespace gpushared::mig
