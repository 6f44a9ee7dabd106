// SPDX-License-Identifier: Apache-2.0
// A kernel of one long block, next to another client that waits for the device.
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

struct Tenant {
  Client client;
  Kernel kernel;
  DeviceBuffer words;
};

class Pauses : public ::testing::TestWithParam<const char*> {
 protected:
  Tenant Join(const std::string& kernel, SchedulingClass its_class) {
    Result<Client> client = Client::Connect(
        {.name = kernel, .scheduling_class = its_class, .socket = server_.socket()});
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    Tenant tenant{.client = *std::move(client), .kernel = {}, .words = {}};
    const Result<Module> module = tenant.client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    tenant.kernel = *module->GetKernel(kernel);
    tenant.words = *tenant.client.AllocateDevice(64);
    EXPECT_TRUE(tenant.client.default_stream().Fill(tenant.words, FillElement::U8(0), 64).ok());
    EXPECT_TRUE(tenant.client.Synchronize().ok());
    return tenant;
  }

  ServerProcess server_{{"--policy", GetParam(), "--device", "cpu:0", "--cpu-threads", "1"}};
};

INSTANTIATE_TEST_SUITE_P(Policies, Pauses,
                         ::testing::Values("priority", "fair", "round_robin", "deadline"));

TEST_P(Pauses, LongBlockIsPausedForOtherClientAndResumes) {
  constexpr int kRounds = 60'000'000;  // About a second.
  const Tenant slow = Join("work", SchedulingClass::kLow);
  const Tenant other = Join("step", SchedulingClass::kHigh);
  const Stream stream = slow.client.default_stream();
  ASSERT_TRUE(stream.Launch(slow.kernel, {.block = {32, 1, 1}}, slow.words, kRounds).ok());
  const Event end = *slow.client.CreateEvent();
  ASSERT_TRUE(stream.Record(end).ok());
  // Long enough for the kernel to begin, which the test cannot observe.
  std::this_thread::sleep_for(50ms);
  unsigned expected = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(other.client.default_stream().Launch(other.kernel, {}, other.words, 1).ok());
    const Status status = other.client.Synchronize();
    ASSERT_TRUE(status.ok()) << status.ToString();
    expected = expected * 3 + 1;
    if (i == 0) {
      EXPECT_EQ(end.Query().code(), StatusCode::kNotReady) << "it waited for the block";
    }
  }
  unsigned steps = 0, blocks = 0;
  ASSERT_TRUE(other.client.default_stream().CopyToHost(&steps, other.words, sizeof steps).ok());
  EXPECT_EQ(steps, expected);
  const Status status = slow.client.Synchronize();
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_TRUE(stream.CopyToHost(&blocks, slow.words, sizeof blocks).ok());
  EXPECT_EQ(blocks, 1u);
}

}  // namespace
}  // namespace gpushared::testing
