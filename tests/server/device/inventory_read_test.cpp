// SPDX-License-Identifier: Apache-2.0
// The inventory reflects what the machine's NVML reports, whatever NVML lacks and however it fails.

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/device/inventory/read_inventory.h"
#include "tests/support/fake_nvml/fake_nvml.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::device {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class ReadInventoryTest : public ::testing::Test {
 protected:
  ~ReadInventoryTest() override {
    EXPECT_EQ(fake_nvml_open(), 0) << "NVML was left open";
    fake_nvml_set(nullptr);
  }
  Inventory Read(const std::string& json) {
    const char* wrong = fake_nvml_set(json.c_str());
    EXPECT_EQ(wrong, nullptr) << wrong;
    return ReadInventory({.mps_directory = directory_.path()});
  }
  const testing::ScratchDirectory directory_;
};

TEST_F(ReadInventoryTest, ReadsWholeGpus) {
  const Inventory inventory =
      Read(R"({"gpus": [{"board": "H100"}, {"board": "A30", "processes": [7, 8]}]})");
  EXPECT_EQ(inventory.unavailable, "");
  EXPECT_EQ(inventory.driver_version, "580.65.06");
  EXPECT_EQ(inventory.cuda_version, 13000);
  EXPECT_EQ(inventory.mps, std::nullopt);
  ASSERT_EQ(inventory.gpus.size(), 2U);
  const Gpu& h100 = inventory.gpus[0];
  EXPECT_EQ(h100.trouble, "");
  EXPECT_EQ(h100.name, "NVIDIA H100 80GB HBM3");
  EXPECT_THAT(h100.uuid, AllOf(StartsWith("GPU-"), ::testing::SizeIs(40)));
  EXPECT_EQ(h100.pci_bus, "00000000:10:00.0");
  EXPECT_EQ(h100.memory_bytes, 81559 * kMiB);
  EXPECT_EQ(h100.multiprocessors, 132U);
  EXPECT_FALSE(h100.mig_enabled);
  EXPECT_EQ(h100.mode, GpuMode::kShared);
  const Gpu& a30 = inventory.gpus[1];
  EXPECT_EQ(a30.index, 1U);
  EXPECT_EQ(a30.multiprocessors, 56U);
  EXPECT_THAT(a30.processes, ElementsAre(7U, 8U));
}

struct BoardCase {
  const char* json;
  std::vector<std::string> profiles;
  std::vector<std::uint32_t> multiprocessors;
};

TEST_F(ReadInventoryTest, ReadsInstancesOfEveryBoard) {
  const BoardCase cases[] = {
      {R"({"board": "A30", "mig": true, "instances": [{"profile": "2g.12gb", "start": 0},
          {"profile": "1g.6gb", "start": 2}, {"profile": "1g.6gb+me", "start": 3}]})",
       {"2g.12gb", "1g.6gb", "1g.6gb+me"},
       {28, 14, 14}},
      {R"({"board": "A100-40", "mig": true, "instances": [{"profile": "3g.20gb", "start": 4},
          {"profile": "1g.5gb", "start": 0}, {"profile": "1g.5gb", "start": 1},
          {"profile": "2g.10gb", "start": 2}]})",
       {"1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"},
       {14, 14, 28, 42}},
      {R"({"board": "A100-80", "mig": true, "instances": [{"profile": "7g.80gb", "start": 0}]})",
       {"7g.80gb"},
       {98}},
      // Multiprocessors are not proportional to slices.
      {R"({"board": "H100", "mig": true, "instances": [{"profile": "1g.20gb", "start": 0},
          {"profile": "2g.20gb", "start": 2}, {"profile": "3g.40gb", "start": 4}]})",
       {"1g.20gb", "2g.20gb", "3g.40gb"},
       {26, 32, 60}},
      {R"({"board": "H200", "mig": true, "instances": [{"profile": "4g.71gb", "start": 0},
          {"profile": "1g.18gb", "start": 6}]})",
       {"4g.71gb", "1g.18gb"},
       {64, 16}},
  };
  for (const BoardCase& board : cases) {
    SCOPED_TRACE(board.json);
    const Inventory inventory = Read("{\"gpus\": [" + std::string(board.json) + "]}");
    ASSERT_EQ(inventory.gpus.size(), 1U);
    const Gpu& gpu = inventory.gpus[0];
    EXPECT_EQ(gpu.trouble, "");
    EXPECT_TRUE(gpu.mig_enabled);
    std::vector<std::string> profiles;
    std::vector<std::uint32_t> multiprocessors;
    for (const GpuInstance& instance : gpu.instances) {
      profiles.push_back(instance.profile);
      multiprocessors.push_back(instance.multiprocessors);
      EXPECT_THAT(instance.uuid, StartsWith("MIG-"));
      EXPECT_GT(instance.memory_bytes, 4000 * kMiB);
    }
    EXPECT_EQ(profiles, board.profiles);
    EXPECT_EQ(multiprocessors, board.multiprocessors);
  }
}

// The fake NVML rejects layouts that no board can have, so that no test can depend on one.
TEST_F(ReadInventoryTest, ImpossibleLayoutsDoNotExist) {
  EXPECT_THAT(fake_nvml_set(R"({"gpus": [{"instances": [{"profile": "3g.71gb", "start": 0},
      {"profile": "1g.18gb", "start": 3}]}]})"),
              HasSubstr("overlaps"));
  EXPECT_THAT(fake_nvml_set(R"({"gpus": [{"instances": [{"profile": "3g.71gb", "start": 2}]}]})"),
              HasSubstr("cannot start at 2"));
  EXPECT_THAT(fake_nvml_set(R"({"gpus": [{"board": "A30", "instances": [{"profile": "3g.71gb",
      "start": 0}]}]})"),
              HasSubstr("no profile"));
  EXPECT_THAT(fake_nvml_set(R"({"gpus": [{"instances": [{"profile": "1g.18gb+me", "start": 0},
      {"profile": "1g.18gb+me", "start": 1}]}]})"),
              HasSubstr("more of"));
}

TEST_F(ReadInventoryTest, ReadsMigModeWithoutInstances) {
  const Inventory inventory = Read(R"({"gpus": [{"mig": true}, {}]})");
  EXPECT_TRUE(inventory.gpus[0].mig_enabled);
  EXPECT_THAT(inventory.gpus[0].instances, IsEmpty());
  EXPECT_FALSE(inventory.gpus[1].mig_enabled);
}

TEST_F(ReadInventoryTest, ReadsComputeModes) {
  const Inventory inventory = Read(R"({"gpus": [{"compute_mode": 0}, {"compute_mode": 1},
      {"compute_mode": 2}, {"compute_mode": 3}]})");
  EXPECT_EQ(inventory.gpus[0].mode, GpuMode::kShared);
  EXPECT_EQ(inventory.gpus[1].mode, GpuMode::kExclusive);
  EXPECT_EQ(inventory.gpus[2].mode, GpuMode::kProhibited);
  EXPECT_EQ(inventory.gpus[3].mode, GpuMode::kExclusive);
}

TEST_F(ReadInventoryTest, ReadsManyProcesses) {
  std::string pids = "1";
  for (int i = 2; i <= 200; ++i) pids += "," + std::to_string(i);
  const Inventory inventory = Read("{\"gpus\": [{\"processes\": [" + pids + "]}]}");
  EXPECT_EQ(inventory.gpus[0].processes.size(), 200U);
  EXPECT_EQ(inventory.gpus[0].processes.back(), 200U);
}

TEST_F(ReadInventoryTest, LostGpuDoesNotHideTheOthers) {
  const Inventory inventory = Read(R"({"gpus": [{"lost": true}, {}]})");
  ASSERT_EQ(inventory.gpus.size(), 2U);
  EXPECT_THAT(inventory.gpus[0].trouble, HasSubstr("GPU is lost (15)"));
  EXPECT_EQ(inventory.gpus[1].trouble, "");
}

TEST_F(ReadInventoryTest, ReportsFirstProblemOfGpu) {
  const Inventory inventory = Read(R"({"gpus": [{}], "fail": [
      {"call": "nvmlDeviceGetName", "code": 999}, {"call": "nvmlDeviceGetMigMode", "code": 15}]})");
  EXPECT_THAT(inventory.gpus.at(0).trouble, StartsWith("nvmlDeviceGetName"));
}

TEST_F(ReadInventoryTest, InstancesComeAndGo) {
  const char* with = R"({"gpus": [{"mig": true, "generation": 1,
      "instances": [{"profile": "1g.18gb", "start": 2}]}]})";
  const std::string first = Read(with).gpus.at(0).instances.at(0).uuid;
  EXPECT_THAT(Read(R"({"gpus": [{"mig": true}]})").gpus.at(0).instances, IsEmpty());
  const std::string again = Read(R"({"gpus": [{"mig": true, "generation": 2,
      "instances": [{"profile": "1g.18gb", "start": 2}]}]})")
                                .gpus.at(0)
                                .instances.at(0)
                                .uuid;
  EXPECT_NE(first, again);
}

// An instance can be destroyed between being listed and being queried.
TEST_F(ReadInventoryTest, OmitsInstanceDestroyedWhileReading) {
  const Inventory inventory = Read(R"({"gpus": [{"mig": true, "instances": [
      {"profile": "1g.18gb", "start": 0}, {"profile": "1g.18gb", "start": 1}]}],
      "fail": [{"call": "nvmlDeviceGetUUID", "at": 2, "code": 6}]})");
  EXPECT_EQ(inventory.gpus.at(0).trouble, "");
  ASSERT_EQ(inventory.gpus[0].instances.size(), 1U);
  EXPECT_EQ(inventory.gpus[0].instances[0].gpu_instance, 8U);
}

TEST_F(ReadInventoryTest, ReportsDriverThatDoesNotWork) {
  const Inventory mismatch = Read(R"({"gpus": [{}], "fail": [{"call": "nvmlInit", "code": 18}]})");
  EXPECT_EQ(mismatch.unavailable,
            "the NVIDIA driver cannot be used: nvmlInit: Driver/library "
            "version mismatch (18); if the driver was updated while this process ran, restart it");
  EXPECT_THAT(mismatch.gpus, IsEmpty());
  const Inventory no_count =
      Read(R"({"gpus": [{}], "fail": [{"call": "nvmlDeviceGetCount", "code": 999}]})");
  EXPECT_THAT(no_count.unavailable, HasSubstr("nvmlDeviceGetCount"));
}

// Checks call by call which facts of a GPU are required and which may remain unknown.
TEST_F(ReadInventoryTest, ReportsFailureOfSingleCallAsProblemOfItsGpu) {
  for (const char* call :
       {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID", "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeMode", "nvmlDeviceGetMigMode"}) {
    const Inventory inventory = Read("{\"gpus\": [{}], \"fail\": [{\"call\": \"" +
                                     std::string(call) + "\", \"code\": 999}]}");
    ASSERT_EQ(inventory.gpus.size(), 1U);
    EXPECT_THAT(inventory.gpus[0].trouble, AllOf(StartsWith(call), EndsWith("(999)")));
  }
  for (const char* call :
       {"nvmlDeviceGetComputeMode", "nvmlDeviceGetMigMode", "nvmlDeviceGetNumGpuCores",
        "nvmlDeviceGetPciInfo", "nvmlDeviceGetMemoryInfo"}) {
    const Inventory inventory = Read("{\"gpus\": [{}], \"fail\": [{\"call\": \"" +
                                     std::string(call) + "\", \"code\": 3}]}");
    EXPECT_EQ(inventory.gpus.at(0).trouble, "") << call;
  }
  const Inventory silent = Read(R"({"gpus": [{"processes": [5]}],
      "fail": [{"call": "nvmlDeviceGetComputeRunningProcesses", "code": 4}]})");
  EXPECT_EQ(silent.gpus.at(0).trouble, "");
  EXPECT_THAT(silent.gpus[0].processes, IsEmpty());
}

// In a container that was given one MIG instance, NVML answers some questions about the parent GPU
// with "no permission".
TEST_F(ReadInventoryTest, AcceptsInstanceWhoseParentGpuMayNotBeQueried) {
  const Inventory inventory = Read(R"({"gpus": [{"mig": true,
      "instances": [{"profile": "1g.18gb", "start": 0}]}], "fail": [
      {"call": "nvmlDeviceGetMemoryInfo", "at": 1, "code": 4},
      {"call": "nvmlDeviceGetComputeMode", "code": 4},
      {"call": "nvmlDeviceGetComputeRunningProcesses", "code": 4}]})");
  ASSERT_EQ(inventory.gpus.size(), 1U);
  EXPECT_EQ(inventory.gpus[0].trouble, "");
  EXPECT_EQ(inventory.gpus[0].memory_bytes, 0U);
  ASSERT_EQ(inventory.gpus[0].instances.size(), 1U);
  EXPECT_GT(inventory.gpus[0].instances[0].memory_bytes, 16000 * kMiB);
  EXPECT_EQ(Obstacle(inventory, inventory.gpus[0]), std::nullopt);
}

TEST_F(ReadInventoryTest, ReportsMissingDriver) {
  const Inventory inventory = ReadInventory({.library = "libnvidia-ml-of-no-machine.so"});
  EXPECT_THAT(inventory.unavailable,
              StartsWith("no NVIDIA driver on this machine: libnvidia-ml-of"));
}

TEST_F(ReadInventoryTest, OldLibraryReportsFewerFacts) {
  ::setenv("FAKE_NVML", (directory_ / "old.json").c_str(), 1);
  std::ofstream(directory_ / "old.json") << R"({"gpus": [{"mig": true, "compute_mode": 2}]})";
  const Inventory inventory =
      ReadInventory({.library = GPUSHARED_FAKE_NVML_OLD, .mps_directory = directory_.path()});
  ::unsetenv("FAKE_NVML");
  EXPECT_EQ(inventory.unavailable, "");
  EXPECT_EQ(inventory.driver_version, "");
  EXPECT_EQ(inventory.cuda_version, 0);
  ASSERT_EQ(inventory.gpus.size(), 1U);
  EXPECT_EQ(inventory.gpus[0].trouble, "");
  EXPECT_EQ(inventory.gpus[0].name, "NVIDIA H200");
  EXPECT_EQ(inventory.gpus[0].multiprocessors, 0U);
  EXPECT_EQ(inventory.gpus[0].mode, GpuMode::kShared);
  EXPECT_FALSE(inventory.gpus[0].mig_enabled);
}

TEST_F(ReadInventoryTest, LibraryWithoutTheRequiredCallsIsRejected) {
  const Inventory inventory = ReadInventory({.library = GPUSHARED_FAKE_NVML_BROKEN});
  EXPECT_THAT(inventory.unavailable,
              AllOf(HasSubstr("lacks nvmlDeviceGetCount_v2, nvmlDeviceGetHandleByIndex_v2, "
                              "nvmlDeviceGetName, nvmlDeviceGetMemoryInfo"),
                    ::testing::Not(HasSubstr("GetUUID"))));
}

// The driver's threads and handlers outlive the last handle to its library, so unloading it would
// crash them.
TEST_F(ReadInventoryTest, LibrariesOfTheDriverStayLoaded) {
  const auto is_loaded = [](const char* library) {
    void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) ::dlclose(handle);
    return handle != nullptr;
  };
  for (int i = 0; i < 3; ++i) {
    const Inventory inventory = ReadInventory({.library = GPUSHARED_FAKE_NVML_OLD,
                                               .cuda_library = GPUSHARED_FAKE_CUDA_11_2,
                                               .mps_directory = directory_.path()});
    EXPECT_EQ(inventory.unavailable, "");
    EXPECT_EQ(inventory.no_cuda, "");
    EXPECT_TRUE(is_loaded(GPUSHARED_FAKE_NVML_OLD));
    EXPECT_TRUE(is_loaded(GPUSHARED_FAKE_CUDA_11_2));
  }
}

TEST_F(ReadInventoryTest, CudaDriverThatIsInstalledLaterIsFound) {
  const testing::ScratchDirectory installed;
  const std::string library = installed / "libcuda.so.1";
  const InventoryOptions options = {.library = GPUSHARED_FAKE_NVML_OLD,
                                    .cuda_library = library,
                                    .mps_directory = directory_.path()};
  EXPECT_THAT(ReadInventory(options).no_cuda, StartsWith("no CUDA driver on this machine: "));
  std::filesystem::copy_file(GPUSHARED_FAKE_CUDA_11_2, library);
  EXPECT_EQ(ReadInventory(options).no_cuda, "");
}

TEST_F(ReadInventoryTest, DetectsMpsWhileItsDaemonLives) {
  std::ofstream(directory_ / "nvidia-cuda-mps-control.pid") << ::getpid() << "\n";
  const Inventory running = Read(R"({"gpus": [{}]})");
  ASSERT_TRUE(running.mps.has_value());
  EXPECT_EQ(running.mps->pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(running.mps->directory, directory_.path());
  // A file left by a killed daemon, with a number that no process has.
  std::ofstream(directory_ / "nvidia-cuda-mps-control.pid") << 0x7ffffffe << "\n";
  EXPECT_EQ(Read(R"({"gpus": [{}]})").mps, std::nullopt);
  std::ofstream(directory_ / "nvidia-cuda-mps-control.pid") << "nonsense\n";
  EXPECT_EQ(Read(R"({"gpus": [{}]})").mps, std::nullopt);
}

TEST_F(ReadInventoryTest, TakesMpsDirectoryFromEnvironment) {
  std::ofstream(directory_ / "nvidia-cuda-mps-control.pid") << ::getpid() << "\n";
  fake_nvml_set(R"({"gpus": [{}]})");
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", directory_.path().c_str(), 1);
  const Inventory inventory = ReadInventory();
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  ASSERT_TRUE(inventory.mps.has_value());
  EXPECT_EQ(inventory.mps->directory, directory_.path());
}

}  // namespace
}  // namespace gpushared::device
