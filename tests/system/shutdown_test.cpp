// SPDX-License-Identifier: Apache-2.0
// Shutdown of real servers whose GPU, of the fake driver, never answers.
#include <signal.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"

namespace gpushared::testing {
namespace {

using ::testing::HasSubstr;

TEST(Shutdown, OneSignalEndsServerWhoseDriverNeverAnswers) {
  GpuServer gpu({.statements = "slow cuInit 3600000"});
  gpu.server().Signal(SIGTERM);
  EXPECT_EQ(gpu.server().WaitForExit(), 0);
  EXPECT_THAT(gpu.server().Log(), HasSubstr("did not end within 5 s and is killed"));
}

TEST(Shutdown, OneSignalEndsServerWithEndlessKernelOfDepartedClient) {
  GpuServer gpu;
  {
    Result<Client> client = Client::Connect({.name = "gone", .socket = gpu.socket()});
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    const Result<Module> module = client->LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    const DeviceBuffer flag = *client->AllocateDevice(4);
    ASSERT_TRUE(client->default_stream().Launch(*module->GetKernel("endless"), {}, flag).ok());
    const auto runs = [&] { return std::ranges::count(gpu.Calls(), "cuLaunchKernel") > 0; };
    ASSERT_TRUE(Eventually(runs));
  }
  gpu.server().Signal(SIGTERM);
  EXPECT_EQ(gpu.server().WaitForExit(), 0);
  EXPECT_THAT(gpu.server().Log(), HasSubstr("ends with work that 1 clients left on it"));
}

}  // namespace
}  // namespace gpushared::testing
