// SPDX-License-Identifier: Apache-2.0
#include "server/device/device_catalog.h"

#include <string>

#include <gtest/gtest.h>

#include "server/device/cuda/driver.h"

namespace gpushared::device {
namespace {

TEST(DeviceCatalog, RejectsUnknownNameListingKinds) {
  for (const char* name : {"cpu", "cpu:", "cpu:x", "cpu:-1", "cpu:00", "cpu:1x", "cpu: 1", "gpu:0",
                           ":0", "cpu:99999999999"}) {
    const Status status = CreateDevice(name, {}, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << name;
    EXPECT_NE(status.message().find("cpu:N, cuda:N"), std::string::npos);
  }
}

TEST(DeviceCatalog, RejectsGpuOnMachineWithoutDriverWithReason) {
  if (cuda::Driver::Load().status().code() != StatusCode::kNotFound) {
    GTEST_SKIP() << "this machine has a CUDA driver";
  }
  for (const char* name : {"cuda:0", "MIG-36f0b3c1-0000-0000-0000-000000000000"}) {
    const Status status = CreateDevice(name, {}, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << name;
    EXPECT_NE(status.message().find("no CUDA driver on this machine"), std::string::npos);
  }
}

TEST(DeviceCatalog, CreatesRequestedDevice) {
  const auto device = CreateDevice("cpu:7", {.executor_threads = 2, .memory_bytes = 1 << 22}, {});
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const DeviceInfo& info = (*device)->info();
  EXPECT_EQ(info.id, "cpu:7");
  EXPECT_EQ(info.kind, "cpu");
  EXPECT_EQ(info.multiprocessors, 2U);
  EXPECT_EQ(info.memory_bytes, 1U << 22);
  EXPECT_EQ(info.preemption, Preemption::kWithinCommand);
  EXPECT_NE(info.name.find("2 executor threads"), std::string::npos);
}

TEST(DeviceCatalog, DefaultsReserveCoreAndMemoryForOtherProcesses) {
  const auto device = CreateDevice("cpu:0", {}, {});
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_GE((*device)->info().multiprocessors, 1U);
  EXPECT_GT((*device)->info().memory_bytes, 0U);
}

TEST(DeviceCatalog, AbsurdNumberOfThreadsIsRejected) {
  EXPECT_EQ(CreateDevice("cpu:0", {.executor_threads = 100000}, {}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpushared::device
