// SPDX-License-Identifier: Apache-2.0
// A GPU whose context dies under several clients: real processes on the fake driver.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/server/other_user.h"
#include "tests/support/gpu_server.h"
#include "tests/support/raw_client.h"

namespace gpushared::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A client with a word of device memory that is initially 1, and a kernel that changes it to 4.
struct Tenant {
  Client client;
  Kernel step;
  DeviceBuffer word;

  Status Launch() const { return client.default_stream().Launch(step, {}, word, 1); }
  Status Run() const {
    if (Status status = Launch(); !status.ok()) return status;
    return client.Synchronize();
  }
  unsigned Word() const {
    unsigned value = 0;
    EXPECT_TRUE(client.default_stream().CopyToHost(&value, word, sizeof value).ok());
    return value;
  }
};

class DeviceLoss : public ::testing::Test {
 protected:
  // Clients that join with the high class can submit work to the GPU while it runs other work.
  Tenant Join(const std::string& name, SchedulingClass its_class = SchedulingClass::kNormal) {
    Result<Client> client =
        Client::Connect({.name = name, .scheduling_class = its_class, .socket = gpu_.socket()});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    if (!client.ok()) return {};
    Tenant tenant{.client = *std::move(client), .step = {}, .word = {}};
    const Result<Module> module = tenant.client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    if (!module.ok()) return {};
    tenant.step = *module->GetKernel("step");
    tenant.word = *tenant.client.AllocateDevice(4);
    const unsigned one = 1;
    EXPECT_TRUE(tenant.client.default_stream().CopyToDevice(tenant.word, &one, sizeof one).ok());
    EXPECT_TRUE(tenant.client.Synchronize().ok());
    return tenant;
  }
  // Waits until the driver has received `count` calls of `name`.
  void AwaitCalls(const std::string& name, long count) {
    EXPECT_TRUE(Eventually([&] {
      const std::vector<std::string> calls = gpu_.Calls();
      return std::count(calls.begin(), calls.end(), name) >= count;
    })) << name;
  }
  static void ExpectLost(const Tenant& tenant, const std::string& who) {
    const Status status = tenant.Run();
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.ToString();
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("device cuda:0 lost with all memory on it: "), HasSubstr(who)));
  }

  GpuServer gpu_;
};

class StickyCode : public DeviceLoss, public ::testing::WithParamInterface<int> {};

TEST_P(StickyCode, NamesKernelsClientToAllAndTheyReconnectAtOnce) {
  const Tenant good = Join("good");
  const Tenant bad = Join("bad");
  EXPECT_TRUE(good.Run().ok());
  const std::string code = std::to_string(GetParam());
  gpu_.Script("fault 1 " + code);
  EXPECT_EQ(bad.Run().code(), StatusCode::kDeviceLost);

  ExpectLost(bad, "caused by kernel 'step' [client 2 'bad' pid ");
  ExpectLost(good, "caused by kernel 'step' [client 2 'bad' pid ");
  EXPECT_THAT(good.Run().message(), HasSubstr("(" + code + ")"));
  // Connects without a pause or a second attempt, because a client that was notified of the loss
  // finds the next worker or waits for it.
  const Tenant again = Join("again");
  EXPECT_TRUE(again.Run().ok());
  EXPECT_EQ(again.Word(), 4U);
  EXPECT_THAT(gpu_.server().Log(), AllOf(HasSubstr("exited with code 3: device cuda:0 lost"),
                                         HasSubstr("generation 2 starts in 0")));
}

INSTANTIATE_TEST_SUITE_P(Codes, StickyCode,
                         ::testing::Values(214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718,
                                           719, 721, 810, 911),
                         ::testing::PrintToStringParamName());

class StickyCodeAtLaunch : public DeviceLoss, public ::testing::WithParamInterface<int> {};

// The driver reports a dead context in the next call, which may be the launch of an innocent
// kernel.
TEST_P(StickyCodeAtLaunch, BlamesRunningKernelsNotReportingLaunch) {
  const Tenant messenger = Join("messenger", SchedulingClass::kHigh);
  const Tenant culprit = Join("culprit");
  gpu_.Script("hold");
  ASSERT_TRUE(culprit.Launch().ok());
  AwaitCalls("cuLaunchKernel", 1);
  gpu_.Script("fail cuLaunchKernel 1 " + std::to_string(GetParam()));
  ASSERT_TRUE(messenger.Launch().ok());

  ExpectLost(messenger, "caused by kernel 'step' [client 2 'culprit' pid ");
  EXPECT_THAT(messenger.Run().message(),
              AllOf(HasSubstr("cuLaunchKernel: "), Not(HasSubstr("one of"))));
  ExpectLost(culprit, "caused by kernel 'step' [client 2 'culprit' pid ");
}

INSTANTIATE_TEST_SUITE_P(Codes, StickyCodeAtLaunch,
                         ::testing::Values(214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718,
                                           719, 721, 810, 911),
                         ::testing::PrintToStringParamName());

TEST_F(DeviceLoss, NamesEveryKernelThatMayHaveCausedIt) {
  const Tenant first = Join("first"), second = Join("second", SchedulingClass::kHigh),
               idle = Join("idle");
  gpu_.Script("hold");
  ASSERT_TRUE(first.Launch().ok());
  // Waits until the kernel has been submitted, because high-class work that came first would delay
  // it.
  AwaitCalls("cuLaunchKernel", 1);
  ASSERT_TRUE(second.Launch().ok());
  AwaitCalls("cuLaunchKernel", 2);
  gpu_.Script("sticky 716");
  for (const Tenant* tenant : {&first, &second, &idle}) {
    ExpectLost(*tenant, "caused by one of kernel 'step' [client ");
    EXPECT_THAT(tenant->Run().message(), AllOf(HasSubstr("'first'"), HasSubstr("'second'")));
  }
}

TEST_F(DeviceLoss, BlamesNoClientIfNothingRan) {
  const Tenant tenant = Join("alone");
  gpu_.Script("fail cuLaunchKernel 1 700");
  EXPECT_EQ(tenant.Run().code(), StatusCode::kDeviceLost);
  ExpectLost(tenant, "no client had work running");
}

// A client that does not read its socket can query the reason from the broker later.
TEST_F(DeviceLoss, KeepsReasonForLateQueries) {
  const Tenant bad = Join("bad");
  Result<RawClient> deaf = RawClient::Connect(gpu_.socket());
  ASSERT_TRUE(deaf.ok());
  ASSERT_TRUE(deaf->Join({}).ok());
  const std::uint64_t session = deaf->welcome().session;
  gpu_.Script("fault 1 700");
  EXPECT_EQ(bad.Run().code(), StatusCode::kDeviceLost);

  Result<RawClient> asker = RawClient::Connect(gpu_.socket());
  ASSERT_TRUE(asker.ok());
  const Result<ipc::Ended> ended = asker->Ask<ipc::Ended>(ipc::Why{session});
  ASSERT_TRUE(ended.ok()) << ended.status().ToString();
  EXPECT_EQ(ended->status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(ended->status.message(),
              AllOf(HasSubstr("lost with all memory on it"),
                    HasSubstr("caused by kernel 'step' [client 1 'bad' pid ")));
  // The operator sees the reason in the output of gpusharedctl.
  const std::string said = "exited with code 3: device cuda:0 lost";
  std::string devices;
  EXPECT_TRUE(Eventually([&] {
    devices = gpu_.server().Ctl({"devices", "--json"}).output;
    return devices.find(said) != std::string::npos;
  })) << devices;
}

// Error codes of a launch that leave the context alive: an invalid value, too many resources, not
// ready.
class LaunchCode : public DeviceLoss, public ::testing::WithParamInterface<int> {};

TEST_P(LaunchCode, NonStickyCodeFailsOnlyItsLaunch) {
  const Tenant good = Join("good"), bad = Join("bad", SchedulingClass::kHigh);
  gpu_.Script("hold");
  ASSERT_TRUE(good.Launch().ok());
  AwaitCalls("cuLaunchKernel", 1);
  gpu_.Script("fail cuLaunchKernel 1 " + std::to_string(GetParam()));
  ASSERT_TRUE(bad.Launch().ok());
  AwaitCalls("cuLaunchKernel", 2);
  gpu_.Script("go");
  const Status rejected = bad.client.Synchronize();
  EXPECT_FALSE(rejected.ok());
  EXPECT_NE(rejected.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(rejected.message(),
              AllOf(HasSubstr("launch of kernel 'step' failed: cuLaunchKernel: "),
                    HasSubstr("(" + std::to_string(GetParam()) + ")"), HasSubstr("'bad'")));
  EXPECT_TRUE(good.client.Synchronize().ok());
  EXPECT_EQ(good.Word(), 4U);
  // The session continues: another of its streams works.
  Stream stream = *bad.client.CreateStream();
  EXPECT_TRUE(stream.Launch(bad.step, {}, bad.word, 1).ok());
  EXPECT_TRUE(stream.Synchronize().ok());
  EXPECT_THAT(gpu_.server().Log(), Not(HasSubstr("generation 2")));
}

INSTANTIATE_TEST_SUITE_P(Codes, LaunchCode, ::testing::Values(1, 2, 98, 701, 801),
                         ::testing::PrintToStringParamName());

TEST(SharedGpu, FencesOtherUsersKernelsUnlessConfiguredOtherwise) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const auto connect_as_nobody = [](const GpuServer& gpu) {
    // Opens the server's directory to other users, because it was created for its owner only.
    std::filesystem::permissions(std::filesystem::path(gpu.socket()).parent_path(),
                                 std::filesystem::perms::all);
    return AsNobody([&] {
      Result<RawClient> client = RawClient::Connect(gpu.socket());
      return client.ok() && client->Join({}).ok() ? 0 : 1;
    });
  };
  GpuServer fenced;
  EXPECT_EQ(connect_as_nobody(fenced), 0);
  EXPECT_THAT(fenced.server().Log(), HasSubstr("memory fence"));

  const std::string file = (std::filesystem::temp_directory_path() / "gpushared-trust.toml");
  std::ofstream(file) << "[[access]]\nuid = 65534\nmemory = \"off\"\n";
  GpuServer trusting({.statements = "", .arguments = {"--config", file}});
  EXPECT_EQ(connect_as_nobody(trusting), 0);
  EXPECT_THAT(trusting.server().Log(), HasSubstr("memory off"));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace gpushared::testing
