// SPDX-License-Identifier: Apache-2.0
// A client whose work runs much longer than predicted, next to another client of its class.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

using namespace std::chrono_literals;

constexpr LaunchShape kShape{.grid = {16, 1, 1}, .block = {64, 1, 1}};
constexpr int kShortRounds = 1;
constexpr int kLongRounds = 2'000'000'000;  // Beyond the kernel limit on any machine.

class OutlivedWork : public ::testing::TestWithParam<std::string> {
 protected:
  Client Connect(const std::string& name) const {
    ClientOptions options;
    options.socket = server_.socket();
    options.name = name;
    Result<Client> client = Client::Connect(options);
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return *std::move(client);
  }
  static Kernel Work(const Client& client) {
    const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    EXPECT_TRUE(module.ok()) << module.status().ToString();
    return *module->GetKernel("work");
  }

  ServerProcess server_{{"--policy", GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(Policies, OutlivedWork,
                         ::testing::Values("round_robin", "fair", "priority", "deadline"));

TEST_P(OutlivedWork, OfKernelLearntAsShortYieldsToClientOfSameClass) {
  const Client liar = Connect("liar"), honest = Connect("honest");
  const Kernel lie = Work(liar), work = Work(honest);
  const DeviceBuffer lies = *liar.AllocateDevice(4), done = *honest.AllocateDevice(4);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(liar.default_stream().Launch(lie, kShape, lies, kShortRounds).ok());
    ASSERT_TRUE(liar.default_stream().Synchronize().ok());
  }
  std::vector<Stream> streams;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(*liar.CreateStream());
    ASSERT_TRUE(streams.back().Launch(lie, kShape, lies, kLongRounds).ok());
  }
  std::this_thread::sleep_for(20ms);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(honest.default_stream().Launch(work, kShape, done, kShortRounds).ok());
    ASSERT_TRUE(honest.default_stream().Synchronize().ok());
  }
  for (const Stream& stream : streams) {
    EXPECT_EQ(stream.Query().code(), StatusCode::kNotReady)
        << "the other client waited for its end";
  }
}

}  // namespace
}  // namespace gpushared::testing
