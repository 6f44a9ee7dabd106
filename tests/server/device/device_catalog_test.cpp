// SPDX-License-Identifier: Apache-2.0
#include "server/device/device_catalog.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gpushared::device {
namespace {

TEST(DeviceCatalog, AutoIsTheFirstCpuDevice) {
  EXPECT_EQ(SelectDevices("auto").value(), std::vector<std::string>{"cpu:0"});
}

TEST(DeviceCatalog, ListKeepsItsOrder) {
  EXPECT_EQ(SelectDevices("cpu:3,cpu:0").value(), (std::vector<std::string>{"cpu:3", "cpu:0"}));
}

TEST(DeviceCatalog, EmptyItemsAndRepetitionsAreRefused) {
  for (const char* list : {"", ",", "cpu:0,", ",cpu:0", "cpu:0,,cpu:1", "cpu:1,cpu:1"}) {
    EXPECT_EQ(SelectDevices(list).status().code(), StatusCode::kInvalidArgument) << list;
  }
}

TEST(DeviceCatalog, NameThatNoKindAnswersToIsRefusedWithThoseThatExist) {
  for (const char* name : {"cpu", "cpu:", "cpu:x", "cpu:-1", "cpu:00", "cpu:1x", "cpu: 1", "gpu:0",
                           ":0", "cpu:99999999999"}) {
    const Status status = SelectDevices(name).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << name;
    EXPECT_NE(status.message().find("cpu:N"), std::string::npos);
    EXPECT_EQ(CreateDevice(name, {}, {}).status().code(), StatusCode::kNotFound);
  }
}

TEST(DeviceCatalog, SelectionIsBounded) {
  std::string list = "cpu:0";
  for (std::size_t i = 1; i <= kDevicesMax; ++i) list += ",cpu:" + std::to_string(i);
  EXPECT_EQ(SelectDevices(list).status().code(), StatusCode::kInvalidArgument);
}

TEST(DeviceCatalog, CreatedDeviceIsWhatWasAsked) {
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

TEST(DeviceCatalog, DefaultsLeaveACoreAndMemoryToTheRest) {
  const auto device = CreateDevice("cpu:0", {}, {});
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  EXPECT_GE((*device)->info().multiprocessors, 1U);
  EXPECT_GT((*device)->info().memory_bytes, 0U);
}

TEST(DeviceCatalog, AbsurdNumberOfThreadsIsRefused) {
  EXPECT_EQ(CreateDevice("cpu:0", {.executor_threads = 100000}, {}).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace gpushared::device
