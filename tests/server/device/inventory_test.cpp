// SPDX-License-Identifier: Apache-2.0
// The devices that the option `device` selects, and the reasons why a GPU is unavailable.

#include "server/device/inventory/inventory.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushared::device {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Gpu MakeGpu(std::uint32_t index, std::string uuid) {
  return {.index = index,
          .uuid = std::move(uuid),
          .name = "NVIDIA H200",
          .pci_bus = "00000000:17:00.0",
          .memory_bytes = std::uint64_t{141} << 30,
          .multiprocessors = 132};
}

GpuInstance MakeInstance(std::string uuid) {
  return {.uuid = std::move(uuid),
          .profile = "1g.18gb",
          .memory_bytes = std::uint64_t{16} << 30,
          .multiprocessors = 16};
}

// Two whole GPUs and one that is partitioned into two instances.
Inventory ThreeGpus() {
  Inventory inventory{.driver_version = "580.65.06", .cuda_version = 13000};
  inventory.gpus = {MakeGpu(0, "GPU-aaaa1111-0"), MakeGpu(1, "GPU-aaaa2222-0"),
                    MakeGpu(2, "GPU-bbbb0000-0")};
  inventory.gpus[2].mig_enabled = true;
  inventory.gpus[2].instances = {MakeInstance("MIG-cc01"), MakeInstance("MIG-cc02")};
  return inventory;
}

std::vector<std::string> Ids(const Result<Selection>& selection) {
  std::vector<std::string> ids;
  if (!selection.ok()) return {selection.status().ToString()};
  for (const SelectedDevice& device : selection->devices) ids.push_back(device.id);
  return ids;
}

std::string Rejection(std::string_view wanted, const Inventory& inventory, StatusCode code) {
  const auto selection = SelectDevices(wanted, inventory);
  if (selection.ok()) return "accepted";
  EXPECT_EQ(selection.status().code(), code) << wanted;
  return selection.status().message();
}

TEST(AutoSelection, TakesEveryGpuAndEveryInstance) {
  const auto selection = SelectDevices("auto", ThreeGpus());
  EXPECT_THAT(Ids(selection), ElementsAre("cuda:0", "cuda:1", "MIG-cc01", "MIG-cc02"));
  EXPECT_THAT(selection->unused, IsEmpty());
  EXPECT_EQ(selection->why_cpu, "");
  const SelectedDevice& whole = selection->devices[1];
  EXPECT_EQ(whole.visible_devices, "GPU-aaaa2222-0");
  EXPECT_EQ(whole.name, "NVIDIA H200");
  EXPECT_EQ(whole.multiprocessors, 132U);
  const SelectedDevice& instance = selection->devices[2];
  EXPECT_EQ(instance.visible_devices, "MIG-cc01");
  EXPECT_EQ(instance.uuid, "MIG-cc01");
  EXPECT_EQ(instance.name, "NVIDIA H200 MIG 1g.18gb");
  EXPECT_EQ(instance.pci_bus, "00000000:17:00.0");
  EXPECT_EQ(instance.memory_bytes, std::uint64_t{16} << 30);
  EXPECT_EQ(instance.multiprocessors, 16U);
}

TEST(AutoSelection, SkipsUnusableGpusWithReason) {
  Inventory inventory = ThreeGpus();
  inventory.gpus[0].trouble = "nvmlDeviceGetUUID: GPU is lost (15)";
  const auto selection = SelectDevices("auto", inventory);
  EXPECT_THAT(Ids(selection), ElementsAre("cuda:1", "MIG-cc01", "MIG-cc02"));
  ASSERT_EQ(selection->unused.size(), 1U);
  EXPECT_EQ(selection->unused[0].id, "cuda:0");
  EXPECT_THAT(selection->unused[0].why, HasSubstr("GPU is lost"));
}

TEST(AutoSelection, FallsBackToTheCpuWithTheReason) {
  Inventory none;
  none.unavailable = "no NVIDIA driver on this machine: libnvidia-ml.so.1 is not there";
  const auto without_driver = SelectDevices("auto", none);
  EXPECT_THAT(Ids(without_driver), ElementsAre("cpu:0"));
  EXPECT_EQ(without_driver->why_cpu, none.unavailable);
  EXPECT_EQ(without_driver->devices[0].visible_devices, "");

  EXPECT_EQ(SelectDevices("auto", Inventory())->why_cpu, "the driver sees no GPU");

  Inventory prohibited = ThreeGpus();
  for (Gpu& gpu : prohibited.gpus) gpu.mode = GpuMode::kProhibited;
  const auto selection = SelectDevices("auto", prohibited);
  EXPECT_THAT(Ids(selection), ElementsAre("cpu:0"));
  EXPECT_THAT(selection->why_cpu, AllOf(HasSubstr("GPU 0 (NVIDIA H200) is in compute mode "
                                                  "PROHIBITED"),
                                        HasSubstr("(and 3 more)")));
  EXPECT_EQ(selection->unused.size(), 4U);
}

TEST(AutoSelection, UsesTheCpuWhereTheCudaDriverIsMissing) {
  Inventory inventory = ThreeGpus();
  inventory.no_cuda = "no CUDA driver on this machine";
  const auto selection = SelectDevices("auto", inventory);
  EXPECT_THAT(Ids(selection), ElementsAre("cpu:0"));
  EXPECT_THAT(selection->why_cpu, HasSubstr("no GPU can be used: no CUDA driver on this machine"));
  // A device that is requested by name is left to the worker, which knows more about it.
  EXPECT_THAT(Ids(SelectDevices("cuda:0", inventory)), ElementsAre("cuda:0"));
}

TEST(AutoSelection, StopsAtDeviceLimit) {
  Inventory inventory;
  for (std::uint32_t i = 0; i < kDevicesMax + 1; ++i) {
    inventory.gpus.push_back(MakeGpu(i, "GPU-" + std::to_string(i)));
  }
  const auto selection = SelectDevices("auto", inventory);
  EXPECT_EQ(selection->devices.size(), kDevicesMax);
  ASSERT_EQ(selection->unused.size(), 1U);
  EXPECT_THAT(selection->unused[0].why, HasSubstr("at most 64 devices"));
}

TEST(NamedSelection, TakesDevicesInTheOrderNamed) {
  const auto selection = SelectDevices("MIG-cc02,cpu:1,cuda:0", ThreeGpus());
  EXPECT_THAT(Ids(selection), ElementsAre("MIG-cc02", "cpu:1", "cuda:0"));
  ASSERT_EQ(selection->unused.size(), 2U);
  EXPECT_EQ(selection->unused[0].id, "cuda:1");
  EXPECT_EQ(selection->unused[0].why, "not named by the device option");
  EXPECT_EQ(selection->unused[1].id, "MIG-cc01");
}

TEST(NamedSelection, AcceptsTheBeginningOfAUuid) {
  EXPECT_THAT(Ids(SelectDevices("GPU-aaaa2", ThreeGpus())), ElementsAre("cuda:1"));
  EXPECT_THAT(Ids(SelectDevices("GPU-aaaa1111-0", ThreeGpus())), ElementsAre("cuda:0"));
  EXPECT_THAT(Rejection("GPU-aaaa", ThreeGpus(), StatusCode::kInvalidArgument),
              AllOf(HasSubstr("'GPU-aaaa' is the beginning of 2 UUIDs"),
                    HasSubstr("GPU-aaaa1111-0"), HasSubstr("GPU-aaaa2222-0")));
  // A complete UUID selects its device, even if it is also the prefix of another one.
  Inventory inventory = ThreeGpus();
  inventory.gpus[1].uuid = "GPU-aaaa1111-01";
  EXPECT_THAT(Ids(SelectDevices("GPU-aaaa1111-0", inventory)), ElementsAre("cuda:0"));
}

TEST(NamedSelection, RejectsMissingDevices) {
  for (const char* name : {"cuda:3", "cuda:00", "cuda:", "GPU-dddd", "MIG-", "GPU-", "gpu:0",
                           "cpu:x", "cpu:00", "cpu:-1", "cpu", "auto2", "MIG-cc03"}) {
    EXPECT_THAT(
        Rejection(name, ThreeGpus(), StatusCode::kNotFound),
        AllOf(HasSubstr("no device is called '" + std::string(name) + "'"),
              HasSubstr("cpu:N, cuda:0 (GPU-aaaa1111-0), cuda:1 (GPU-aaaa2222-0), MIG-cc01, "
                        "MIG-cc02")));
  }
  Inventory none;
  none.unavailable = "no NVIDIA driver on this machine: not there";
  EXPECT_THAT(Rejection("cuda:0", none, StatusCode::kNotFound),
              HasSubstr("this machine has cpu:N; no NVIDIA driver on this machine: not there"));
}

TEST(NamedSelection, RejectsInvalidLists) {
  for (const char* list : {"", "cuda:0,", ",cpu:0", "cpu:0,,cpu:1"}) {
    EXPECT_THAT(Rejection(list, ThreeGpus(), StatusCode::kInvalidArgument),
                HasSubstr("an empty item"));
  }
  // A device may be named only once, even under different names.
  EXPECT_THAT(Rejection("cuda:0,GPU-aaaa1", ThreeGpus(), StatusCode::kInvalidArgument),
              HasSubstr("'GPU-aaaa1' is named twice"));
  EXPECT_THAT(Rejection("cpu:0,cpu:0", ThreeGpus(), StatusCode::kInvalidArgument),
              HasSubstr("'cpu:0' is named twice"));
  std::string list = "cpu:0";
  for (std::size_t i = 1; i < kDevicesMax; ++i) list += ",cpu:" + std::to_string(i);
  EXPECT_TRUE(SelectDevices(list, Inventory()).ok());
  EXPECT_THAT(Rejection(list + ",cpu:64", Inventory(), StatusCode::kInvalidArgument),
              HasSubstr("more than 64 devices"));
}

TEST(NamedSelection, RejectsWholeGpuThatIsPartitioned) {
  for (const char* name : {"cuda:2", "GPU-bbbb"}) {
    EXPECT_THAT(Rejection(name, ThreeGpus(), StatusCode::kUnavailable),
                HasSubstr("GPU 2 (NVIDIA H200) is in MIG mode, name its instances instead: "
                          "MIG-cc01, MIG-cc02"));
  }
}

TEST(NamedSelection, RejectsUnusableDeviceWithReason) {
  Inventory inventory = ThreeGpus();
  inventory.gpus[2].mode = GpuMode::kProhibited;
  EXPECT_THAT(Rejection("MIG-cc01", inventory, StatusCode::kUnavailable),
              AllOf(HasSubstr("device 'MIG-cc01' rejected"), HasSubstr("PROHIBITED")));
}

// ---- reasons

TEST(Obstacles, AreAbsentForHealthyGpus) {
  const Inventory inventory = ThreeGpus();
  for (const Gpu& gpu : inventory.gpus) EXPECT_EQ(Obstacle(inventory, gpu), std::nullopt);
}

TEST(Obstacles, MigModeWithoutInstancesNamesRemedy) {
  Inventory inventory = ThreeGpus();
  inventory.gpus[2].instances.clear();
  const auto why = Obstacle(inventory, inventory.gpus[2]);
  ASSERT_TRUE(why);
  EXPECT_THAT(
      *why,
      AllOf(HasSubstr("has no instances"), HasSubstr("'nvidia-smi mig -i 2 -cgi <profile> -C'"),
            HasSubstr("'nvidia-smi mig -i 2 -lgip'"), HasSubstr("'nvidia-smi -i 2 -mig 0'")));
  // The unusable device is still listed.
  EXPECT_EQ(SelectDevices("auto", inventory)->unused.at(0).id, "cuda:2");
}

TEST(Obstacles, ExclusiveModeMattersOnlyWithAnotherProcess) {
  Inventory inventory = ThreeGpus();
  inventory.gpus[1].mode = GpuMode::kExclusive;
  EXPECT_EQ(Obstacle(inventory, inventory.gpus[1]), std::nullopt);
  inventory.gpus[1].processes = {11, 12, 13, 14, 15};
  EXPECT_THAT(Obstacle(inventory, inventory.gpus[1]).value_or(""),
              AllOf(HasSubstr("EXCLUSIVE_PROCESS and process 11, 12, 13, 14, ... uses it"),
                    HasSubstr("'nvidia-smi -i 1 -c DEFAULT'")));
  // In shared mode other processes are allowed.
  inventory.gpus[0].processes = {11};
  EXPECT_EQ(Obstacle(inventory, inventory.gpus[0]), std::nullopt);
}

TEST(Obstacles, MpsIsNamedWithItsProcess) {
  Inventory inventory = ThreeGpus();
  inventory.mps = MpsDaemon{.pid = 4711, .directory = "/tmp/nvidia-mps"};
  EXPECT_THAT(Obstacle(inventory, inventory.gpus[0]).value_or(""),
              AllOf(HasSubstr("MPS control daemon (pid 4711, pipes in /tmp/nvidia-mps)"),
                    HasSubstr("echo quit | nvidia-cuda-mps-control")));
}

Presence::Kind GetKind(std::string_view uuid, const Inventory& inventory) {
  return GetPresence(uuid, inventory).kind;
}

TEST(Presence, CoversGpusAndInstancesThatDriverLists) {
  const Inventory inventory = ThreeGpus();
  for (const char* uuid : {"GPU-aaaa1111-0", "GPU-aaaa2222-0", "MIG-cc01", "MIG-cc02"}) {
    EXPECT_EQ(GetKind(uuid, inventory), Presence::Kind::kPresent) << uuid;
    EXPECT_EQ(GetPresence(uuid, inventory).why, "");
  }
  for (const char* uuid : {"GPU-aaaa1111", "GPU-dddd0000-0", "MIG-cc03"}) {
    EXPECT_EQ(GetKind(uuid, inventory), Presence::Kind::kGone) << uuid;
    EXPECT_EQ(GetPresence(uuid, inventory).why, "the driver no longer reports it");
  }
}

TEST(Presence, PartitionedGpuCountsAsGone) {
  const Presence presence = GetPresence("GPU-bbbb0000-0", ThreeGpus());
  EXPECT_EQ(presence.kind, Presence::Kind::kGone);
  EXPECT_THAT(presence.why, HasSubstr("GPU 2 (NVIDIA H200) is in MIG mode now"));
}

TEST(Presence, PresenceIsUnknownUnlessDriverReportsLoss) {
  Inventory silent = ThreeGpus();
  silent.unavailable = "no NVML";
  EXPECT_EQ(GetKind("GPU-aaaa1111-0", silent), Presence::Kind::kUnclear);
  EXPECT_EQ(GetPresence("GPU-aaaa1111-0", silent).why, "no NVML");

  Inventory troubled = ThreeGpus();
  troubled.gpus[0].trouble = "code 999";
  EXPECT_EQ(GetKind("GPU-aaaa1111-0", troubled), Presence::Kind::kUnclear);
  EXPECT_EQ(GetKind("GPU-aaaa2222-0", troubled), Presence::Kind::kPresent);
  troubled.gpus[0].is_lost = true;
  EXPECT_EQ(GetKind("GPU-aaaa1111-0", troubled), Presence::Kind::kGone);
  EXPECT_THAT(GetPresence("GPU-aaaa1111-0", troubled).why,
              HasSubstr("GPU 0 (NVIDIA H200) does not answer: code 999"));
  // A GPU that does not even report its name may be the one in question.
  troubled.gpus[0].uuid.clear();
  EXPECT_EQ(GetKind("GPU-aaaa1111-0", troubled), Presence::Kind::kGone);
  EXPECT_THAT(GetPresence("GPU-aaaa1111-0", troubled).why, HasSubstr("code 999"));
  troubled.gpus[0].is_lost = false;
  EXPECT_EQ(GetKind("GPU-aaaa1111-0", troubled), Presence::Kind::kUnclear);
  // One of two GPUs is lost and the other one is only silent, so which one is lost is unknown.
  troubled.gpus[0].is_lost = true;
  troubled.gpus[1] = {.index = 1, .trouble = "code 999"};
  EXPECT_EQ(GetKind("GPU-aaaa1111-0", troubled), Presence::Kind::kUnclear);
  troubled.gpus[0].is_lost = false;
  troubled.gpus[1].is_lost = true;
  EXPECT_EQ(GetKind("GPU-aaaa1111-0", troubled), Presence::Kind::kUnclear);
}

TEST(NewClients, AreAutoDevicesThatServerLacks) {
  Inventory inventory = ThreeGpus();
  const auto ids = [&](const std::vector<std::string>& uuids) {
    std::vector<std::string> found;
    for (const SelectedDevice& device : NewDevices(inventory, uuids)) found.push_back(device.id);
    return found;
  };
  EXPECT_THAT(ids({"GPU-aaaa1111-0", "MIG-cc02"}), ElementsAre("cuda:1", "MIG-cc01"));
  EXPECT_THAT(ids({"GPU-aaaa1111-0", "GPU-aaaa2222-0", "MIG-cc01", "MIG-cc02"}), IsEmpty());
  inventory.gpus[1].mode = GpuMode::kProhibited;
  EXPECT_THAT(ids({"GPU-aaaa1111-0", "MIG-cc01", "MIG-cc02"}), IsEmpty());
  inventory.gpus.clear();
  EXPECT_THAT(ids({}), IsEmpty()) << "the cpu device is no new client";
}

TEST(UnusedDevices, AreReportedWithTheirObstacle) {
  Inventory inventory = ThreeGpus();
  inventory.gpus[1].mode = GpuMode::kProhibited;
  const auto unused = UnusedDevices(inventory, {"GPU-aaaa1111-0", "MIG-cc01"}, "the reason");
  ASSERT_EQ(unused.size(), 2U);
  EXPECT_EQ(unused[0].id, "cuda:1");
  EXPECT_THAT(unused[0].why, HasSubstr("PROHIBITED"));
  EXPECT_EQ(unused[1].id, "MIG-cc02");
  EXPECT_EQ(unused[1].why, "the reason");
}

}  // namespace
}  // namespace gpushared::device
