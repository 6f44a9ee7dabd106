// SPDX-License-Identifier: Apache-2.0
// Real servers end kernels that run longer than the operator allows.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Client Connect(const std::string& socket, const std::string& name, SchedulingClass its_class) {
  Result<Client> client =
      Client::Connect({.name = name, .scheduling_class = its_class, .socket = socket});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? *std::move(client) : Client();
}

Status RunStep(const Client& client) {
  const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
  if (!module.ok()) return module.status();
  const DeviceBuffer word = *client.AllocateDevice(4);
  const Stream stream = *client.CreateStream();
  Status status = stream.Launch(*module->GetKernel("step"), {}, word, 1);
  return status.ok() ? stream.Synchronize() : status;
}

// Returns the default stream's status after its endless kernel.
Status RunEndless(const Client& client) {
  const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
  if (!module.ok()) return module.status();
  const DeviceBuffer flag = *client.AllocateDevice(4);
  const Status launched = client.default_stream().Launch(*module->GetKernel("endless"), {}, flag);
  return launched.ok() ? client.default_stream().Synchronize() : launched;
}

TEST(KernelLimit, EndsOnlyEndlessKernelOnCpuDevice) {
  ServerProcess server({"--device", "cpu:0", "--kernel-limit", "low=300ms,normal=60s"});
  const Client bad = Connect(server.socket(), "bad", SchedulingClass::kLow);
  const Client good = Connect(server.socket(), "good", SchedulingClass::kNormal);
  const Status ended = RunEndless(bad);
  EXPECT_EQ(ended.code(), StatusCode::kKernelFault) << ended.ToString();
  EXPECT_EQ(bad.default_stream().fault(), FaultKind::kLaunchTimeout);
  EXPECT_THAT(
      ended.message(),
      AllOf(HasSubstr("kernel 'endless' ended by force: it has run 0."),
            HasSubstr("s, kernels of class low may run 0.3 s (--kernel-limit of the server) "
                      "[client 1 'bad' pid ")));
  EXPECT_EQ(RunStep(bad).ToString(), "Ok") << "another stream of the same client";
  EXPECT_TRUE(RunStep(good).ok());
  EXPECT_THAT(server.Log(), Not(HasSubstr("generation 2")));
}

TEST(KernelLimit, EndsGpuWorkerThatNamesKernelToAll) {
  GpuServer gpu({.statements = "", .arguments = {"--kernel-limit", "normal=300ms"}});
  const Client bad = Connect(gpu.socket(), "bad", SchedulingClass::kNormal);
  const Client good = Connect(gpu.socket(), "good", SchedulingClass::kNormal);
  EXPECT_EQ(RunEndless(bad).code(), StatusCode::kDeviceLost);
  for (const Client* client : {&bad, &good}) {
    const Status lost = RunStep(*client);
    EXPECT_EQ(lost.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(lost.message(),
                AllOf(HasSubstr("device cuda:0 lost with all memory on it: kernel 'endless' ended "
                                "by force: it has run 0."),
                      HasSubstr("s, kernels of class normal may run 0.3 s (--kernel-limit of the "
                                "server), and this device cannot end one kernel alone; caused by "
                                "kernel 'endless' [client 1 "
                                "'bad' pid ")));
  }
  EXPECT_TRUE(RunStep(Connect(gpu.socket(), "again", SchedulingClass::kNormal)).ok());
  EXPECT_THAT(gpu.server().Log(), HasSubstr("exited with code 3: device cuda:0 lost"));
}

TEST(KernelLimit, EndsOnlyContainedKernelOnGpu) {
  GpuServer gpu(
      {.statements = "", .arguments = {"--memory", "contain", "--kernel-limit", "normal=300ms"}});
  const Client bad = Connect(gpu.socket(), "bad", SchedulingClass::kNormal);
  const Client good = Connect(gpu.socket(), "good", SchedulingClass::kNormal);
  const std::vector<pid_t> workers = gpu.server().workers();
  const Status ended = RunEndless(bad);
  EXPECT_EQ(ended.code(), StatusCode::kKernelFault) << ended.ToString();
  EXPECT_EQ(bad.default_stream().fault(), FaultKind::kLaunchTimeout);
  EXPECT_THAT(
      ended.message(),
      AllOf(HasSubstr("kernel 'endless' ended by force: it has run 0."),
            HasSubstr("s, kernels of class normal may run 0.3 s (--kernel-limit of the server) "
                      "[client 1 'bad' pid ")));
  EXPECT_EQ(RunStep(bad).ToString(), "Ok") << "another stream of the same client";
  EXPECT_EQ(RunStep(good).ToString(), "Ok");
  EXPECT_EQ(gpu.server().workers(), workers);
}

TEST(EndlessKernel, OfDepartedContainedClientEndsAndItsMemoryIsFreed) {
  GpuServer gpu({.statements = "", .arguments = {"--memory", "contain"}});
  const Client good = Connect(gpu.socket(), "good", SchedulingClass::kNormal);
  const auto returned = [&] {
    const std::vector<std::string> calls = gpu.Calls();
    return std::count(calls.begin(), calls.end(), "cuMemAddressFree");
  };
  {
    const Client bad = Connect(gpu.socket(), "bad", SchedulingClass::kNormal);
    const Result<Module> module = bad.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    const DeviceBuffer flag = *bad.AllocateDevice(4);
    ASSERT_TRUE(bad.default_stream().Launch(*module->GetKernel("endless"), {}, flag).ok());
  }
  EXPECT_TRUE(Eventually([&] { return returned() == 1; }));
  EXPECT_EQ(RunStep(good).ToString(), "Ok");
}

// A driver that blocks the calls of the device thread while a kernel runs, as some drivers do.
class BusyDriver : public ::testing::TestWithParam<bool> {};

TEST_P(BusyDriver, IsDeviceLossThatNamesKernelAndNextWorkerServes) {
  const bool contains = GetParam();
  GpuServer gpu(
      {.statements = "",
       .arguments = {"--kernel-limit", "none", "--memory", contains ? "contain" : "fence"}});
  const Client bad = Connect(gpu.socket(), "bad", SchedulingClass::kNormal);
  const Client good = Connect(gpu.socket(), "good", SchedulingClass::kNormal);
  ASSERT_TRUE(RunStep(good).ok());
  const Result<Module> module = bad.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const DeviceBuffer flag = *bad.AllocateDevice(4);
  ASSERT_TRUE(bad.default_stream().Launch(*module->GetKernel("endless"), {}, flag).ok());
  // The device thread repeatedly queries whether the running work has ended.
  gpu.Script("slow cuEventQuery 60000");
  EXPECT_EQ(bad.Synchronize().code(), StatusCode::kDeviceLost);
  const char* const in_vain =
      contains ? "for 7 s and did not return after kernels were asked to end; " : "for 5 s; ";
  for (const Client* client : {&bad, &good}) {
    const Status lost = RunStep(*client);
    EXPECT_EQ(lost.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(
        lost.message(),
        AllOf(HasSubstr("device cuda:0 lost with all memory on it: the device thread has "
                        "been inside of one call of the driver "),
              HasSubstr(in_vain), HasSubstr("caused by kernel 'endless' [client 1 'bad' pid ")));
  }
  EXPECT_EQ(RunStep(Connect(gpu.socket(), "again", SchedulingClass::kNormal)).ToString(), "Ok");
  EXPECT_THAT(gpu.server().Log(), HasSubstr("exited with code 3: device cuda:0 lost"));
  EXPECT_THAT(gpu.server().Ctl({"devices", "--json"}).output,
              HasSubstr("inside of one call of the driver for "));
}

INSTANTIATE_TEST_SUITE_P(All, BusyDriver, ::testing::Bool(), [](const auto& any) {
  return any.param ? std::string("ContainedKernels") : std::string("FencedKernels");
});

}  // namespace
}  // namespace gpushared::testing
