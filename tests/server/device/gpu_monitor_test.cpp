// SPDX-License-Identifier: Apache-2.0
#include "server/device/inventory/gpu_monitor.h"

#include <stdlib.h>

#include <fstream>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/fake_nvml/fake_nvml.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::device {
namespace {

constexpr const char* kUuid = "GPU-a0000001-fa4e-4000-8000-000000000000";

class GpuMonitorTest : public ::testing::Test {
 protected:
  ~GpuMonitorTest() override {
    EXPECT_EQ(fake_nvml_open(), 0) << "NVML was left open";
    fake_nvml_set(nullptr);
  }
  // Describes two GPUs; the second one has these sensors.
  static void SetSensors(const std::string& sensors, const std::string& more = "") {
    const std::string machine =
        R"({"gpus": [{"sensors": {"power_mw": 1}}, {"sensors": )" + sensors + "}]" + more + "}";
    const char* wrong = fake_nvml_set(machine.c_str());
    EXPECT_EQ(wrong, nullptr) << wrong;
  }
};

TEST_F(GpuMonitorTest, ReadsTheSensorsOfItsGpu) {
  SetSensors(R"({"energy_mj": 7000, "utilization": 50, "power_mw": 300500, "temperature": 61,
                 "sm_clock": 1980, "memory_clock": 2619, "memory_used": 4096, "ecc_corrected": 3,
                 "ecc_uncorrected": 0})");
  GpuMonitor monitor(kUuid);
  const GpuReadings readings = monitor.Read();
  EXPECT_EQ(readings.energy_mj, 7000U);
  EXPECT_EQ(readings.utilization, 0.5);
  EXPECT_EQ(readings.power_w, 300.5);
  EXPECT_EQ(readings.temperature_c, 61.0);
  EXPECT_EQ(readings.sm_clock_hz, 1980e6);
  EXPECT_EQ(readings.memory_clock_hz, 2619e6);
  EXPECT_EQ(readings.memory_used_bytes, 4096.0);
  EXPECT_EQ(readings.ecc_corrected, 3.0);
  EXPECT_EQ(readings.ecc_uncorrected, 0.0);
  EXPECT_EQ(readings.last_xid, std::nullopt);
  EXPECT_EQ(fake_nvml_open(), 1) << "NVML stays open between two readings";
}

TEST_F(GpuMonitorTest, OmitsWhatTheBoardDoesNotMeasure) {
  SetSensors(R"({"power_mw": 1000})");
  GpuMonitor monitor(kUuid);
  const GpuReadings readings = monitor.Read();
  EXPECT_EQ(readings.power_w, 1.0);
  EXPECT_EQ(readings.energy_mj, std::nullopt);
  EXPECT_EQ(readings.utilization, std::nullopt);
  EXPECT_EQ(readings.temperature_c, std::nullopt);
  EXPECT_EQ(readings.ecc_corrected, std::nullopt);
}

TEST_F(GpuMonitorTest, HasNoReadingsOfAMissingGpuOrAnOldDriver) {
  SetSensors(R"({"power_mw": 1000})");
  EXPECT_EQ(GpuMonitor("GPU-b0000001-fa4e-4000-8000-000000000000").Read().power_w, std::nullopt);
  EXPECT_EQ(GpuMonitor(kUuid, "/none.so").Read().power_w, std::nullopt);
  const testing::ScratchDirectory directory;
  std::ofstream(directory / "machine") << fake_nvml_get();
  ::setenv("FAKE_NVML", (directory / "machine").c_str(), 1);
  const GpuReadings old = GpuMonitor(kUuid, GPUSHARED_FAKE_NVML_OLD).Read();
  ::unsetenv("FAKE_NVML");
  EXPECT_EQ(old.power_w, std::nullopt);
  EXPECT_EQ(old.memory_used_bytes, 0.0) << "a call that all drivers have";
  SetSensors(R"({"power_mw": 1000})", R"(, "fail": [{"call": "nvmlInit", "code": 9}])");
  EXPECT_EQ(GpuMonitor(kUuid).Read().power_w, std::nullopt);
  SetSensors(R"({"power_mw": 1000})", R"(, "fail": [{"call": "nvmlDeviceGetPowerUsage"}])");
  EXPECT_EQ(GpuMonitor(kUuid).Read().power_w, std::nullopt);
}

}  // namespace
}  // namespace gpushared::device
