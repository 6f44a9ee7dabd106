// SPDX-License-Identifier: Apache-2.0
// GPU kernels that are preempted by more urgent ones: real processes on the fake driver, with a
// compiler whose code it accepts.

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

// More than two waves of blocks on the fake GPU, because the worker does not stop shorter launches.
constexpr std::uint32_t kBlocks = 9000;
constexpr int kRounds = 1300;

struct ClaimTenant {
  Client client;
  Module module;
  DeviceBuffer runs;  // Number of runs of each block.

  ClaimTenant(const GpuServer& gpu, SchedulingClass its_class, const std::string& name) {
    client =
        *Client::Connect({.name = name, .scheduling_class = its_class, .socket = gpu.socket()});
    module = *client.LoadModuleFile(GPUSHARED_CLAIM_KERNELS);
    runs = *client.AllocateDevice(kBlocks * 4);
  }
  Status Launch(std::uint32_t blocks, int rounds) {
    return client.default_stream().Launch(
        *module.GetKernel("work"), {.grid = {blocks, 1, 1}, .block = {64, 1, 1}}, runs, rounds);
  }
};

std::uint64_t GetStops(GpuServer& gpu, const std::string& name) {
  const auto clients = nlohmann::json::parse(gpu.server().Ctl({"ps", "--json"}).output)["clients"];
  for (const auto& client : clients) {
    if (client["name"] == name) return client["stops"];
  }
  return 0;
}

void StopsForHigh(const std::vector<std::string>& arguments) {
  // Few multiprocessors, so that the launch has several waves of blocks and can be stopped between
  // them.
  GpuServer gpu({.statements = "sms 16", .arguments = arguments, .has_compiler = true});
  ClaimTenant high(gpu, SchedulingClass::kHigh, "urgent");
  ClaimTenant low(gpu, SchedulingClass::kLow, "patient");
  std::vector<std::uint32_t> zeros(kBlocks);
  std::uint32_t launches = 0;
  // Tries several times, because the preemptible form is compiled in the background and a stop may
  // come too late.
  for (; launches < 100 && GetStops(gpu, "patient") < 2; ++launches) {
    ASSERT_TRUE(low.Launch(kBlocks, kRounds).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_TRUE(high.Launch(1, 1).ok());
    const Status urgent = high.client.Synchronize();
    ASSERT_TRUE(urgent.ok()) << urgent.ToString();
    const Status patient = low.client.Synchronize();
    ASSERT_TRUE(patient.ok()) << patient.ToString();
  }
  EXPECT_GE(GetStops(gpu, "patient"), 2U) << gpu.server().Log();
  EXPECT_EQ(GetStops(gpu, "urgent"), 0U);
  std::vector<std::uint32_t> runs(kBlocks);
  ASSERT_TRUE(
      low.client.default_stream().CopyToHost(runs.data(), low.runs.address(), kBlocks * 4).ok());
  ASSERT_TRUE(low.client.Synchronize().ok());
  EXPECT_EQ(runs, std::vector<std::uint32_t>(kBlocks, launches))
      << "each block once in each launch";
}

TEST(GpuClaims, PreemptsLowKernelsForHighOnesAndLosesNoBlock) { StopsForHigh({}); }

TEST(GpuClaims, PreemptsFencedKernelsForHighOnesAndLosesNoBlock) {
  StopsForHigh({"--memory", "fence"});
}

// A load may wait for all running work and meanwhile block the driver call that would stop it, so
// the worker stops the work first.
TEST(GpuClaims, StopsKernelsForBlockingLoadsAndLosesNoBlock) {
  GpuServer gpu({.statements = "sms 16; lock on", .has_compiler = true});
  const ClaimTenant high(gpu, SchedulingClass::kHigh, "idle");
  ClaimTenant low(gpu, SchedulingClass::kLow, "patient");
  const Client loader = *Client::Connect(
      {.name = "loader", .scheduling_class = SchedulingClass::kNormal, .socket = gpu.socket()});
  std::uint32_t launches = 0;
  // Tries several times, because the preemptible form is compiled in the background and a load may
  // come too late.
  for (; launches < 100 && GetStops(gpu, "patient") < 2; ++launches) {
    ASSERT_TRUE(low.Launch(kBlocks, kRounds).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const Result<Module> module = loader.LoadModuleFile(GPUSHARED_CLAIM_KERNELS);
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    const Status patient = low.client.Synchronize();
    ASSERT_TRUE(patient.ok()) << patient.ToString();
  }
  EXPECT_GE(GetStops(gpu, "patient"), 2U) << gpu.server().Log();
  std::vector<std::uint32_t> runs(kBlocks);
  ASSERT_TRUE(
      low.client.default_stream().CopyToHost(runs.data(), low.runs.address(), kBlocks * 4).ok());
  ASSERT_TRUE(low.client.Synchronize().ok());
  EXPECT_EQ(runs, std::vector<std::uint32_t>(kBlocks, launches))
      << "each block once in each launch";
}

// The worker maps every client's memory, so it must leave the parsing of clients' data to child
// processes.
TEST(GpuModules, AreParsedByChildProcessesUnderEveryIsolation) {
  for (const std::string isolation : {"off", "fence", "contain"}) {
    GpuServer gpu({.arguments = {"--memory", isolation}, .has_compiler = true});
    ClaimTenant tenant(gpu, SchedulingClass::kNormal, "reader");
    EXPECT_TRUE(tenant.Launch(8, 1).ok());
    EXPECT_TRUE(tenant.client.Synchronize().ok());
    const auto rejected = tenant.client.LoadModule(".version 8.0\n.target sm_75\nnonsense\n");
    EXPECT_EQ(rejected.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(rejected.status().message(), ::testing::HasSubstr("line 3")) << isolation;
    const auto status = nlohmann::json::parse(gpu.server().Ctl({"status", "--json"}).output);
    const auto& loader = status["devices"][0]["loader"];
    // Without isolation, modules that this server cannot parse are passed to the driver.
    EXPECT_EQ(loader["read"], isolation == "off" ? 2 : 1) << status.dump();
    EXPECT_EQ(loader["rejected"], isolation == "off" ? 0 : 1) << status.dump();
    EXPECT_EQ(loader["crashed"], 0) << status.dump();
    EXPECT_EQ(loader["unplaced_bytes"], 0) << status.dump();
  }
}

TEST(GpuClaims, WithoutCompilerKernelsRunToCompletionAndLogSaysWhy) {
  GpuServer gpu({.statements = "", .arguments = {"--policy", "priority"}});
  ClaimTenant high(gpu, SchedulingClass::kHigh, "urgent");
  ClaimTenant low(gpu, SchedulingClass::kLow, "patient");
  ASSERT_TRUE(low.Launch(kBlocks, kRounds).ok());
  ASSERT_TRUE(high.Launch(1, 1).ok());
  EXPECT_TRUE(high.client.Synchronize().ok());
  EXPECT_TRUE(low.client.Synchronize().ok());
  EXPECT_EQ(GetStops(gpu, "patient"), 0U);
}

}  // namespace
}  // namespace gpushared::testing
