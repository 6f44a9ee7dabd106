// SPDX-License-Identifier: Apache-2.0
// Sensors and energy of a GPU, the clients that used the energy, and the owners of clients: real
// processes on the fake driver and the fake NVML.
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using nlohmann::json;

json AskedFor(GpuServer& gpu, const std::string& command) {
  return json::parse(gpu.server().Ctl({"--json", command}).output);
}

json GetDevice(GpuServer& gpu) { return AskedFor(gpu, "status")["devices"][0]; }

std::int64_t Millijoules(const json& row, const char* key) {
  return std::llround(row.value(key, 0.0) * 1000);
}

// Sets the fake NVML's values and waits until the server has read them.
void SetSensors(GpuServer& gpu, std::uint64_t energy_mj, int power_w, const std::string& xids) {
  gpu.SetMachine(R"({"gpus": [{"board": "H200", "sensors": {"energy_mj": )" +
                 std::to_string(energy_mj) + R"(, "power_mw": )" + std::to_string(power_w * 1000) +
                 R"(, "xids": )" + xids + "}}]}");
  EXPECT_TRUE(Eventually([&] { return GetDevice(gpu)["gpu"]["power_w"] == power_w; }))
      << GetDevice(gpu).dump(1);
}

void RunSteps(const Client& client, int steps) {
  const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const DeviceBuffer word = *client.AllocateDevice(4);
  const Stream stream = *client.CreateStream();
  for (int i = 0; i < steps; ++i) {
    ASSERT_TRUE(stream.Launch(*module->GetKernel("step"), {}, word, 1).ok());
  }
  ASSERT_TRUE(stream.Synchronize().ok());
}

TEST(GpuEnergy, EnergyOfClientsAndIdleEnergyAddUpToTheCountersGrowth) {
  GpuServer gpu({.statements = "kernels 3"});
  const auto connect = [&](SchedulingClass of_class) {
    return *Client::Connect({.scheduling_class = of_class, .socket = gpu.socket()});
  };
  constexpr std::uint64_t kBefore = 5'000'000'001;  // The driver was loaded long ago.
  const Client low = connect(SchedulingClass::kLow);
  SetSensors(gpu, kBefore, 100, "[]");
  RunSteps(low, 100);
  RunSteps(connect(SchedulingClass::kHigh), 50);  // Disconnects before the energy is read.
  SetSensors(gpu, kBefore + 1'234'567, 200, "[]");
  SetSensors(gpu, kBefore + 1'234'567 + 89, 300, "[]");
  const json totals = GetDevice(gpu)["totals"];
  EXPECT_EQ(Millijoules(totals, "energy_j"), 1'234'656);
  std::int64_t classes = 0, owners = 0;
  for (const json& row : totals["classes"]) classes += Millijoules(row, "energy_j");
  for (const json& row : totals["owners"]) owners += Millijoules(row, "energy_j");
  EXPECT_EQ(classes + Millijoules(totals, "energy_idle_j"), 1'234'656);
  EXPECT_EQ(owners, classes);
  EXPECT_GT(Millijoules(totals["classes"]["low"], "energy_j"), 0);
  EXPECT_GT(Millijoules(totals["classes"]["high"], "energy_j"), 0);
  EXPECT_GT(Millijoules(totals, "energy_idle_j"), 0);
  const json client = AskedFor(gpu, "ps")["clients"][0];
  EXPECT_EQ(Millijoules(client, "energy_j"), Millijoules(totals["classes"]["low"], "energy_j"));
}

TEST(GpuEnergy, IncludesTheTimeInWhichTheCounterDidNotAnswer) {
  GpuServer gpu;
  SetSensors(gpu, 1000, 100, "[]");
  gpu.SetMachine(R"({"gpus": [{"board": "H200", "sensors": {"power_mw": 200000}}]})");
  EXPECT_TRUE(Eventually([&] { return GetDevice(gpu)["gpu"]["power_w"] == 200; }));
  SetSensors(gpu, 4000, 300, "[]");
  EXPECT_EQ(Millijoules(GetDevice(gpu)["totals"], "energy_j"), 3000);
}

TEST(GpuEnergy, CounterThatRestartsIsANewBeginning) {
  GpuServer gpu;
  SetSensors(gpu, 9000, 100, "[]");
  SetSensors(gpu, 500, 200, "[]");
  SetSensors(gpu, 1500, 300, "[]");
  EXPECT_EQ(Millijoules(GetDevice(gpu)["totals"], "energy_j"), 1000);
}

TEST(GpuSensors, CountXidsThatTheDriverReports) {
  GpuServer gpu;
  SetSensors(gpu, 0, 100, "[]");
  EXPECT_FALSE(GetDevice(gpu)["gpu"].contains("last_xid"));
  SetSensors(gpu, 0, 200, "[31, 79]");
  EXPECT_EQ(GetDevice(gpu)["gpu"]["last_xid"], 79);
  EXPECT_TRUE(Eventually([&] { return GetDevice(gpu)["totals"]["xids"] == 2; }));
}

TEST(Owners, PsNamesUserAndProgram) {
  GpuServer gpu;
  const Client client = *Client::Connect({.name = "claims to be another", .socket = gpu.socket()});
  const json row = AskedFor(gpu, "ps")["clients"][0];
  EXPECT_EQ(row["program"], "gpu_server_test");
  EXPECT_EQ(row["uid"], ::getuid());
  EXPECT_TRUE(row["user"].is_string());
  EXPECT_FALSE(row.contains("hpc_job"));
}

}  // namespace
}  // namespace gpushared::testing
