// SPDX-License-Identifier: Apache-2.0
#include "client_lib/environment.h"

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;

using Map = std::map<std::string, std::string>;

Environment Of(Map variables) {
  return Environment([variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

KnownDevice Gpu(const std::string& id, std::uint8_t first_byte) {
  KnownDevice device{.id = id, .kind = "cuda"};
  device.uuid[0] = first_byte;
  return device;
}

const std::vector<KnownDevice> kDevices = {Gpu("cuda:0", 0x11), Gpu("cuda:1", 0x12),
                                           Gpu("cuda:2", 0x20)};

ClientOptions Applied(const Map& variables, ClientOptions options = {}) {
  const Environment environment = Of(variables);
  const Status status = environment.Apply(options);
  EXPECT_TRUE(status.ok()) << status.message();
  if (environment.NamesDevices(options)) {
    const Status devices = environment.ApplyDevices(kDevices, options);
    EXPECT_TRUE(devices.ok()) << devices.message();
  }
  return options;
}

Status Rejection(const Map& variables) {
  const Environment environment = Of(variables);
  ClientOptions options;
  if (Status status = environment.Apply(options); !status.ok()) return status;
  return environment.ApplyDevices(kDevices, options);
}

TEST(Environment, UnsetOptionsStayUnset) {
  const ClientOptions options = Applied({});
  EXPECT_FALSE(options.scheduling_class);
  EXPECT_FALSE(options.weight);
  EXPECT_FALSE(options.memory_bytes);
  EXPECT_FALSE(options.latency_target);
  EXPECT_EQ(options.device, "");
  EXPECT_EQ(options.name, "");
}

TEST(Environment, InterruptEndsSessionOnlyOnRequest) {
  EXPECT_FALSE(*Applied({}).ends_on_interrupt);
  EXPECT_TRUE(*Applied({{"GPUSHARED_INTERRUPT", "1"}}).ends_on_interrupt);
  EXPECT_FALSE(*Applied({{"GPUSHARED_INTERRUPT", "0"}}).ends_on_interrupt);
  EXPECT_FALSE(
      *Applied({{"GPUSHARED_INTERRUPT", "1"}}, {.ends_on_interrupt = false}).ends_on_interrupt);
}

TEST(Environment, OptionPrecedesOurVariableAndOurVariablePrecedesThatOfMps) {
  Map variables = {{"GPUSHARED_CLASS", "high"},       {"GPUSHARED_WEIGHT", "7"},
                   {"GPUSHARED_MEMORY", "2GiB"},      {"GPUSHARED_DEVICE", "cuda:2"},
                   {"GPUSHARED_NAME", "job"},         {"GPUSHARED_LATENCY_TARGET", "2.5"},
                   {"CUDA_MPS_CLIENT_PRIORITY", "1"}, {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "2=1G"},
                   {"CUDA_VISIBLE_DEVICES", "1"}};
  ClientOptions options = Applied(variables, {.name = "serve",
                                              .scheduling_class = SchedulingClass::kNormal,
                                              .weight = 3,
                                              .memory_bytes = kMebi,
                                              .latency_target = std::chrono::seconds(1),
                                              .device = "cuda:0"});
  EXPECT_EQ(options.name, "serve");
  EXPECT_EQ(options.scheduling_class, SchedulingClass::kNormal);
  EXPECT_EQ(options.weight, 3U);
  EXPECT_EQ(options.memory_bytes, kMebi);
  EXPECT_EQ(options.latency_target, std::chrono::seconds(1));
  EXPECT_EQ(options.device, "cuda:0");

  options = Applied(variables);
  EXPECT_EQ(options.name, "job");
  EXPECT_EQ(options.scheduling_class, SchedulingClass::kHigh);
  EXPECT_EQ(options.weight, 7U);
  EXPECT_EQ(options.memory_bytes, 2048 * kMebi);
  EXPECT_EQ(options.latency_target, std::chrono::microseconds(2500));
  EXPECT_EQ(options.device, "cuda:2");

  for (const char* ours : {"GPUSHARED_CLASS", "GPUSHARED_MEMORY", "GPUSHARED_DEVICE"}) {
    variables.erase(ours);
  }
  variables["CUDA_VISIBLE_DEVICES"] = "2,1";
  options = Applied(variables);
  EXPECT_EQ(options.scheduling_class, SchedulingClass::kLow);
  EXPECT_EQ(options.memory_bytes, 1024 * kMebi);
  EXPECT_EQ(options.device, "cuda:2") << "the first visible device, as in CUDA";
}

TEST(Environment, ShareComesFromOurVariableOrMps) {
  Map variables = {{"GPUSHARED_MAX_SHARE", "12.5%"}, {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "40"}};
  EXPECT_EQ(Applied(variables, {.max_share = 70}).max_share, 70);
  EXPECT_EQ(Applied(variables).max_share, 12.5);
  variables.erase("GPUSHARED_MAX_SHARE");
  EXPECT_EQ(Applied(variables).max_share, 40);
  EXPECT_FALSE(Applied({}).max_share);
}

TEST(Environment, RejectsInvalidValueNamingItsVariable) {
  const Map cases[] = {
      {{"GPUSHARED_CLASS", "urgent"}},
      {{"GPUSHARED_CLASS", "High"}},
      {{"GPUSHARED_WEIGHT", "0"}},
      {{"GPUSHARED_WEIGHT", "1001"}},
      {{"GPUSHARED_WEIGHT", "-1"}},
      {{"GPUSHARED_WEIGHT", "2x"}},
      {{"GPUSHARED_MAX_SHARE", "0%"}},
      {{"GPUSHARED_MAX_SHARE", "101%"}},
      {{"GPUSHARED_MAX_SHARE", "nan%"}},
      {{"GPUSHARED_MAX_SHARE", "25"}},
      {{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "0"}},
      {{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "101"}},
      {{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "nan"}},
      {{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25%"}},
      {{"GPUSHARED_LATENCY_TARGET", "0"}},
      {{"GPUSHARED_INTERRUPT", "yes"}},
      {{"GPUSHARED_LATENCY_TARGET", "nan"}},
      {{"GPUSHARED_LATENCY_TARGET", "3600001"}},
      {{"GPUSHARED_MEMORY", "4"}},
      {{"GPUSHARED_MEMORY", "0GiB"}},
      {{"GPUSHARED_MEMORY", "4gib"}},
      {{"GPUSHARED_MEMORY", "-4GiB"}},
      {{"GPUSHARED_MEMORY", "99999999999999TiB"}},
      {{"GPUSHARED_NAME", "bell\a"}},
      {{"GPUSHARED_NAME", std::string(64, 'n')}},
      {{"GPUSHARED_DEVICE", "cuda:\n0"}},
      {{"CUDA_MPS_CLIENT_PRIORITY", "2"}},
      {{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "1G"}},
      {{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1"}},
      {{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "cuda=1G"}},
      {{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "3=1"}},
      {{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1G,"}, {"GPUSHARED_DEVICE", "cuda:7"}},
      {{"CUDA_VISIBLE_DEVICES", ""}},
      {{"CUDA_VISIBLE_DEVICES", "-1"}},
      {{"CUDA_VISIBLE_DEVICES", "7"}},
  };
  for (const Map& variables : cases) {
    const Status status = Rejection(variables);
    EXPECT_FALSE(status.ok()) << variables.begin()->first << "=" << variables.begin()->second;
    EXPECT_THAT(status.message(), StartsWith(variables.begin()->first));
  }
  EXPECT_EQ(Rejection({{"GPUSHARED_CLASS", "urgent"}}).message(),
            "GPUSHARED_CLASS='urgent' is invalid: expected high, normal or low");
}

TEST(Environment, TakesMpsMemoryLimitOfDevice) {
  const char* const kLimit = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
  const auto limit = [&](const std::string& value, const std::string& device) {
    return Applied({{kLimit, value}}, {.device = device}).memory_bytes;
  };
  EXPECT_EQ(limit("0=1G,2=512MB", "cuda:2"), 512 * kMebi);
  EXPECT_EQ(limit("0=1G,2=512MB", "cuda:1"), std::nullopt);
  EXPECT_EQ(limit("GPU-12=1M", "cuda:1"), kMebi);
  EXPECT_EQ(limit("7=2G,0=1G,GPU-99=1G", "cuda:0"), 1024 * kMebi) << "ignores unknown devices";
  EXPECT_EQ(limit("0=1g, 1 = 2GB ,2=512m", "cuda:2"), 512 * kMebi);
  EXPECT_EQ(limit("3=1G", "cuda:0"), std::nullopt);
  EXPECT_EQ(limit("0=1G,1=1G,2=1G", ""), 1024 * kMebi) << "all devices have the same limit";
  EXPECT_THAT(Rejection({{kLimit, "0=1G"}}).message(), HasSubstr("name it with GPUSHARED_DEVICE"));
}

TEST(Environment, OurDeviceVariablePrecedesCudaVisibleDevices) {
  const auto shown = [&](const Map& variables) { return *Of(variables).Shown(kDevices); };
  EXPECT_THAT(shown({}), ElementsAre(0, 1, 2));
  EXPECT_THAT(shown({{"CUDA_VISIBLE_DEVICES", "2,0"}}), ElementsAre(2, 0));
  EXPECT_THAT(shown({{"CUDA_VISIBLE_DEVICES", "2,0"}, {"GPUSHARED_DEVICE", "cuda:1"}}),
              ElementsAre(1));
  EXPECT_THAT(Of({{"GPUSHARED_DEVICE", "cuda:9"}}).Shown(kDevices).status().message(),
              HasSubstr("GPUSHARED_DEVICE='cuda:9' names no device: the server has cuda:0 cuda:1"));
}

TEST(VisibleDevices, FollowsCudasRules) {
  const auto visible = [&](const std::string& value) { return VisibleDevices(value, kDevices); };
  EXPECT_THAT(visible("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(visible(" 1 , 2 "), ElementsAre(1, 2));
  EXPECT_THAT(visible("0,7,1"), ElementsAre(0)) << "the first that names nothing ends the list";
  EXPECT_THAT(visible("-1"), IsEmpty());
  EXPECT_THAT(visible(""), IsEmpty());
  EXPECT_THAT(visible("1,1"), IsEmpty()) << "named twice";
  EXPECT_THAT(visible("GPU-20"), ElementsAre(2));
  EXPECT_THAT(visible("GPU-1"), IsEmpty()) << "two begin like this";
  EXPECT_THAT(visible(kDevices[1].VisibleName()), ElementsAre(1));
  EXPECT_EQ(kDevices[0].VisibleName(), "GPU-11000000-0000-0000-0000-000000000000");
  const std::vector<KnownDevice> instance = {{.id = "MIG-aa11", .kind = "cuda"}};
  EXPECT_THAT(VisibleDevices("MIG-aa", instance), ElementsAre(0));
  EXPECT_THAT(VisibleDevices("GPU-", instance), IsEmpty());
}

TEST(DeviceOfGpu, IsTheDeviceWithItsUuid) {
  EXPECT_EQ(DeviceOfGpu(kDevices[2].uuid, 0, kDevices), 2U);
  EXPECT_EQ(DeviceOfGpu({0x99}, 0, kDevices), std::nullopt) << "the server does not serve it";
  const std::vector<KnownDevice> stand_ins = {{.id = "cpu:0", .kind = "cpu"},
                                              {.id = "cpu:1", .kind = "cpu", .uuid = {0x31}}};
  EXPECT_EQ(DeviceOfGpu(stand_ins[1].ShownUuid(), 0, stand_ins), 1U);
  EXPECT_EQ(DeviceOfGpu({}, 1, stand_ins), 1U);
  EXPECT_EQ(DeviceOfGpu({}, 2, stand_ins), std::nullopt);
}

}  // namespace
}  // namespace gpushared::client
