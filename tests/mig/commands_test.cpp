// SPDX-License-Identifier: Apache-2.0
// gpusharedctl mig as operators use it: on the fake NVML, killed at any call, and next to a server
// that has the instances as devices.

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/server_process.h"

#include <nlohmann/json.hpp>

namespace gpushared::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The state after the order 19,19,14, which leaves no position for a 3g.
constexpr const char* kHalfWay = R"({"gpus": [{"board": "A100-40", "mig": true, "instances": [
    {"profile": "1g.5gb", "start": 6}, {"profile": "1g.5gb", "start": 4},
    {"profile": "2g.10gb", "start": 0}]}]})";

class MigCommands : public ::testing::Test {
 protected:
  MigCommands() {
    ::setenv("LD_LIBRARY_PATH", GPUSHARED_FAKE_DRIVERS, 1);
    ::setenv("FAKE_NVML", machine_.c_str(), 1);
    ::setenv("CUDA_MPS_PIPE_DIRECTORY", directory_.path().c_str(), 1);
    ::setenv("GPUSHARED_SOCKET", (directory_ / "none").c_str(), 1);
  }
  ~MigCommands() override {
    for (const char* name : {"LD_LIBRARY_PATH", "FAKE_NVML", "FAKE_CUDA", "CUDA_MPS_PIPE_DIRECTORY",
                             "GPUSHARED_SOCKET"}) {
      ::unsetenv(name);
    }
  }

  void Machine(const std::string& text) {
    std::ofstream(machine_ + ".new") << text;
    std::filesystem::rename(machine_ + ".new", machine_);
  }
  json Now() const { return json::parse(ReadFile(machine_)); }
  // Profiles and positions, without the numbers that change when an instance is created again.
  std::vector<std::pair<std::string, unsigned>> Layout(std::size_t gpu = 0) const {
    std::vector<std::pair<std::string, unsigned>> found;
    for (const json& instance : Now().at("gpus").at(gpu).value("instances", json::array())) {
      found.emplace_back(instance.at("profile"), instance.at("start"));
    }
    std::ranges::sort(found, {}, &std::pair<std::string, unsigned>::second);
    return found;
  }
  ProgramOutcome Mig(std::vector<std::string> arguments) const {
    std::vector<std::string> command = {GPUSHARED_BIN_DIR "/gpusharedctl", "mig"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const std::string& verb = arguments.front();
    if (verb == "apply" || verb == "restore") {
      command.insert(command.end(), {"--state", directory_ / "state/state.json"});
    }
    return RunProgram(command);
  }
  std::string File(const std::string& text) const {
    std::ofstream(directory_ / "mig.yaml") << text;
    return directory_ / "mig.yaml";
  }

  const ScratchDirectory directory_;
  const std::string machine_ = directory_ / "nvml.json";
};

TEST_F(MigCommands, PlansWithoutAGpu) {
  const ProgramOutcome plan =
      Mig({"plan", "--board", "A100-40", "--have", "19:6,19:4,14:0", "19,19,14,9"});
  EXPECT_EQ(plan.exit_code, 0) << plan.output;
  EXPECT_THAT(plan.output, AllOf(HasSubstr("A100-40: 1 instance kept, 2 destroyed, 3 created\n"),
                                 HasSubstr("lost: 1g.5gb at 4"), HasSubstr("lost: 1g.5gb at 6")));
  EXPECT_THAT(Mig({"list", "--board", "B200"}).output, HasSubstr("source: NVIDIA"));
  EXPECT_THAT(Mig({"list", "--board", "V100"}).output, HasSubstr("A30 A100-40"));
  EXPECT_EQ(Mig({"plan"}).exit_code, 2);
  EXPECT_EQ(Mig({"plan", "--board", "A100-40", "--gpu", "0", "19"}).exit_code, 2);
  EXPECT_EQ(Mig({"plan", "19", "--file", "x", "--config", "y"}).exit_code, 2);
}

TEST_F(MigCommands, UsesGivenPlacements) {
  Machine(kHalfWay);
  EXPECT_EQ(Mig({"assert", "14:0,19:4,19:6"}).exit_code, 0);
  EXPECT_EQ(Mig({"assert", "14:0,19:3,19:6"}).exit_code, 1);
  EXPECT_EQ(Mig({"apply", "14:2,19:0"}).exit_code, 0);
  EXPECT_EQ(Layout(),
            (std::vector<std::pair<std::string, unsigned>>{{"1g.5gb", 0}, {"2g.10gb", 2}}));
}

TEST_F(MigCommands, PlansBoardFromFileOrWithoutMigMode) {
  const std::string file = File(
      "version: v1\nmig-configs:\n  seven:\n  - devices: all\n    mig-enabled: true\n"
      "    mig-devices:\n      1g.5gb: 7\n  other:\n  - devices: [3]\n    mig-enabled: false\n");
  const ProgramOutcome seven =
      Mig({"plan", "--json", "--board", "A100-40", "--file", file, "--config", "seven"});
  ASSERT_EQ(seven.exit_code, 0) << seven.output;
  EXPECT_EQ(json::parse(seven.output).at("plans").at(0).at("create").size(), 7U);
  EXPECT_EQ(Mig({"plan", "--board", "A100-40", "--file", file, "--config", "other"}).exit_code, 1);
  const ProgramOutcome off =
      Mig({"plan", "--board", "A100-40", "--have", "19:6,14:0", "--disable"});
  EXPECT_EQ(off.exit_code, 0) << off.output;
  EXPECT_THAT(off.output, AllOf(HasSubstr("lost: 1g.5gb at 6"), HasSubstr("lost: 2g.10gb at 0")));
  EXPECT_EQ(Mig({"plan", "--file", file, "--config", "seven", "--gpu", "0"}).exit_code, 2)
      << "a file is about all GPUs";
}

TEST_F(MigCommands, ListPresentInstances) {
  Machine(kHalfWay);
  EXPECT_THAT(Mig({"list"}).output, AllOf(HasSubstr("MIG mode on"), HasSubstr("1g.5gb at 4: MIG-"),
                                          HasSubstr("3g.20gb        9     2     0")));
  const json listed = json::parse(Mig({"list", "--json"}).output);
  EXPECT_EQ(listed.at("gpus").at(0).at("instances").size(), 3U);
  const json plan = json::parse(Mig({"plan", "--json", "19,19,14,9"}).output);
  EXPECT_EQ(plan.at("plans").at(0).at("destroy").size(), 2U);
  EXPECT_EQ(Layout().size(), 3U) << "a plan changes nothing";
}

TEST_F(MigCommands, ApplyFindsWhatTheNaiveOrderMisses) {
  Machine(kHalfWay);
  const ProgramOutcome applied = Mig({"apply", "19,19,14,9"});
  EXPECT_EQ(applied.exit_code, 0) << applied.output;
  EXPECT_EQ(Layout(), (std::vector<std::pair<std::string, unsigned>>{
                          {"2g.10gb", 0}, {"1g.5gb", 2}, {"1g.5gb", 3}, {"3g.20gb", 4}}));
  EXPECT_THAT(Mig({"apply", "none"}).output, HasSubstr("0 instances kept, 4 destroyed"));
  EXPECT_TRUE(Layout().empty());
  EXPECT_TRUE(Now()["gpus"][0]["mig"]);
  EXPECT_EQ(Mig({"apply", "--disable"}).exit_code, 0);
  EXPECT_FALSE(Now()["gpus"][0]["mig"]);
  // At the next boot, MIG mode remains off.
  Machine(kHalfWay);
  EXPECT_EQ(Mig({"restore"}).exit_code, 0);
  EXPECT_FALSE(Now()["gpus"][0]["mig"]);
}

TEST_F(MigCommands, NeverRemovesUsedInstance) {
  json machine = json::parse(kHalfWay);
  machine["gpus"][0]["instances"][1]["processes"] = {4711};
  Machine(machine.dump());
  const ProgramOutcome applied = Mig({"apply", "19,19,14,9"});
  EXPECT_EQ(applied.exit_code, 1);
  EXPECT_THAT(applied.output, AllOf(HasSubstr("1g.5gb at 4"), HasSubstr("4711")));
  EXPECT_EQ(Layout().size(), 3U);
  EXPECT_FALSE(Now().contains("driver")) << "the fake writes when something changes";
}

TEST_F(MigCommands, NameMissingRights) {
  Machine(R"({"privileged": false, "gpus": [{"board": "A30", "mig": true}]})");
  EXPECT_THAT(Mig({"apply", "14"}).output,
              AllOf(HasSubstr("Insufficient Permissions"), HasSubstr("root")));
  ::setenv("LD_LIBRARY_PATH", directory_.path().c_str(), 1);
  EXPECT_THAT(Mig({"list"}).output, HasSubstr("no NVIDIA driver"));
}

TEST_F(MigCommands, FilesOfMigPartedAreAppliedAssertedAndWritten) {
  Machine(
      R"({"gpus": [{"board": "A30"}, {"board": "A100-40", "mig": true}, {"board": "H200", "mig": true}]})");
  const std::string published = GPUSHARED_PUBLISHED_CONFIGS;
  EXPECT_EQ(Mig({"assert", "--file", published, "--config", "all-balanced"}).exit_code, 1);
  const ProgramOutcome applied = Mig({"apply", "--file", published, "--config", "all-balanced"});
  EXPECT_EQ(applied.exit_code, 0) << applied.output;
  EXPECT_EQ(Layout(0).size(), 3U);
  EXPECT_EQ(Layout(1).size(), 4U);
  EXPECT_EQ(Layout(2).size(), 4U);
  EXPECT_EQ(Mig({"assert", "--file", published, "--config", "all-balanced"}).exit_code, 0);
  const ProgramOutcome other = Mig({"assert", "--file", published, "--config", "all-disabled"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.output, HasSubstr("GPU 2 (NVIDIA H200)"));
  EXPECT_EQ(Mig({"export", "--name", "here", "--output", directory_ / "here.yaml"}).exit_code, 0);
  EXPECT_EQ(Mig({"assert", "--file", directory_ / "here.yaml", "--config", "here"}).exit_code, 0);
  EXPECT_EQ(Mig({"apply", "--file", published, "--config", "all-disabled"}).exit_code, 0);
  EXPECT_EQ(Mig({"apply", "--file", directory_ / "here.yaml", "--config", "here"}).exit_code, 0);
  EXPECT_EQ(Mig({"assert", "--file", published, "--config", "all-balanced"}).exit_code, 0);
}

TEST_F(MigCommands, FilesThatDoNotFitAreRejectedBeforeAnythingChanges) {
  Machine(R"({"gpus": [{"board": "A30", "mig": true}, {"board": "A100-40", "mig": true}]})");
  const std::string file = File(
      "version: v1\nmig-configs:\n  a:\n"
      "  - devices: [0]\n    mig-enabled: true\n    mig-devices: {2g.12gb: 2}\n"
      "  - devices: [1]\n    mig-enabled: true\n    mig-devices: {2g.12gb: 2}\n"
      "  b:\n  - devices: all\n    mig-enabled: false\n"
      "  - devices: [0]\n    mig-enabled: false\n"
      "  c:\n  - devices: [7]\n    mig-enabled: false\n");
  EXPECT_THAT(Mig({"apply", "--file", file, "--config", "a"}).output,
              AllOf(HasSubstr("mig.yaml:7:"), HasSubstr("'2g.12gb'")));
  EXPECT_TRUE(Layout(0).empty());
  EXPECT_THAT(Mig({"apply", "--file", file, "--config", "b"}).output,
              AllOf(HasSubstr("GPU 0 (NVIDIA A30)"), HasSubstr("line 11")));
  EXPECT_EQ(Mig({"apply", "--file", file, "--config", "c"}).exit_code, 1) << "about no GPU";
  EXPECT_THAT(Mig({"apply", "--file", file, "--config", "d"}).output, HasSubstr("'d'"));
  EXPECT_THAT(Mig({"apply", "14"}).output, HasSubstr("--gpu"));
}

// The program is killed at a call, as in a power failure; `restore` rolls back.
TEST_F(MigCommands, CanRecoverFromKillAtAnyCall) {
  Machine(kHalfWay);
  const auto before = Layout();
  const auto rules = [](unsigned at, bool kill) {
    json machine = json::parse(kHalfWay);
    if (kill) machine["fail"] = json::array({{{"call", "*"}, {"at", at}, {"kill", true}}});
    return machine.dump();
  };
  unsigned cut_off = 0, at = 150;
  for (; at < 5000; at += 23) {
    std::filesystem::remove_all(directory_ / "state");
    Machine(rules(at, true));
    const ProgramOutcome applied = Mig({"apply", "19,19,14,9"});
    if (applied.exit_code == 0) break;
    ASSERT_EQ(applied.exit_code, 128 + 9) << applied.output;
    json machine = Now();
    machine["fail"] = json::array();
    Machine(machine.dump());
    const bool is_under_way =
        ReadFile(directory_ / "state/state.json").find("\"before\"") != std::string::npos;
    cut_off += is_under_way ? 1 : 0;
    const ProgramOutcome restored = Mig({"restore"});
    ASSERT_EQ(restored.exit_code, 0) << restored.output;
    EXPECT_EQ(Layout(), before) << "killed at call " << at;
  }
  EXPECT_LT(at, 5000U);
  EXPECT_GT(cut_off, 10U);
}

TEST_F(MigCommands, LayoutOfTheNextBootWaits) {
  Machine(R"({"gpus": [{"board": "H100-96", "mig_pending": false}]})");
  EXPECT_EQ(Mig({"apply", "--at-boot", "9,9"}).exit_code, 0);
  EXPECT_TRUE(Layout().empty());
  EXPECT_EQ(Mig({"restore"}).exit_code, 0);
  EXPECT_EQ(Layout().size(), 2U);
}

// ---- next to a server

std::string Uuid(unsigned generation, unsigned start) {
  char text[64];
  std::snprintf(text, sizeof text, "MIG-a0000000-fa4e-4000-8000-%06x%06x", generation, start);
  return text;
}

class MigServer : public MigCommands {
 protected:
  MigServer() {
    Machine(kHalfWay);
    // Present and future instances: the fake NVML numbers the instances that it creates.
    std::string gpus = "devices 6";
    int number = 0;
    for (const auto& [generation, start] : std::vector<std::pair<unsigned, unsigned>>{
             {0, 0}, {0, 4}, {0, 6}, {1, 2}, {2, 3}, {3, 4}}) {
      gpus += "; uuid " + std::to_string(number++) + " " + Uuid(generation, start);
    }
    ::setenv("FAKE_CUDA", gpus.c_str(), 1);
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "--device", "auto", "--code-cache", "none", "--ptx-compiler", "none"});
    ::setenv("GPUSHARED_SOCKET", server_->socket().c_str(), 1);
  }
  std::string GetState(const std::string& uuid) const {
    const json answer = json::parse(server_->Ctl({"devices", "--json"}).output, nullptr, false);
    if (!answer.is_object()) return "";
    for (const json& device : answer.at("devices")) {
      if (device.value("uuid", "") == uuid) return device.at("state");
    }
    return "";
  }
  bool Becomes(const std::string& uuid, const std::string& state) const {
    const auto is_so = [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // Querying starts a program.
      return GetState(uuid) == state;
    };
    return Eventually(is_so, std::chrono::seconds(60));
  }

  std::unique_ptr<ServerProcess> server_;
};

TEST_F(MigServer, InstancesBecomeDevicesAutomatically) {
  ASSERT_TRUE(Becomes(Uuid(0, 4), "ready"));
  const std::string kept_worker = server_->Ctl({"devices", "--json"}).output;
  const ProgramOutcome applied = Mig({"apply", "19,19,14,9"});
  EXPECT_EQ(applied.exit_code, 0) << applied.output;
  EXPECT_TRUE(Becomes(Uuid(3, 4), "ready"));
  EXPECT_TRUE(Becomes(Uuid(1, 2), "ready"));
  EXPECT_TRUE(Becomes(Uuid(0, 6), "missing"));
  EXPECT_EQ(GetState(Uuid(0, 0)), "ready");
  // The remaining instance was not affected.
  EXPECT_THAT(server_->Log(), Not(HasSubstr("device " + Uuid(0, 0) + " is drained")));
  EXPECT_THAT(server_->Log(), HasSubstr("device " + Uuid(0, 4) + " is drained"));
}

TEST_F(MigServer, RestoresDevicesAfterFailedChange) {
  ASSERT_TRUE(Becomes(Uuid(0, 4), "ready"));
  json machine = json::parse(kHalfWay);
  machine["fail"] =
      json::array({{{"call", "nvmlGpuInstanceDestroy"}, {"at", 1}, {"code", 999}},
                   {{"call", "nvmlComputeInstanceDestroy"}, {"at", 1}, {"code", 19}}});
  Machine(machine.dump());
  const ProgramOutcome applied = Mig({"apply", "19,19,14,9"});
  EXPECT_EQ(applied.exit_code, 1);
  EXPECT_EQ(Layout().size(), 3U);
  EXPECT_TRUE(Becomes(Uuid(0, 4), "ready"));
  EXPECT_TRUE(Becomes(Uuid(0, 6), "ready"));
  EXPECT_THAT(server_->Log(), HasSubstr("device " + Uuid(0, 4) + " is resumed"));
}

}  // namespace
}  // namespace gpushared::testing
