// SPDX-License-Identifier: Apache-2.0
// The settings of `gpusharedctl run`, and detection of programs on which they have no effect.
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tools/run/environment.h"
#include "server/tools/run/program_file.h"

namespace gpushared {
namespace {

using server::RunRequest;
using server::Settings;
using ::testing::HasSubstr;

// ---- settings

class RunSettingsTest : public ::testing::Test {
 protected:
  std::map<std::string, std::string> GetSettings(const RunRequest& request) {
    std::map<std::string, std::string> found;
    for (const server::Setting& setting : Settings(
             request, [&](const char* name) { return environment_[name]; },
             [&](const std::string& path) { return files_.contains(path); })) {
      found[setting.variable] = setting.value;
    }
    return found;
  }
  std::map<std::string, std::string> environment_;
  std::map<std::string, bool> files_;
};

TEST(RunMode, IsGateWhereProgramsCanOpenAGpu) {
  const auto choose = [](const std::string& there) {
    return server::ChooseMode([&](const std::string& path) { return path == there; });
  };
  EXPECT_EQ(choose("/dev/nvidiactl"), "gate");
  EXPECT_EQ(choose("/dev/dxg"), "gate");
  EXPECT_EQ(choose("/dev/null"), "submit");
}

TEST_F(RunSettingsTest, DropInPrecedesTheUsersDirectories) {
  EXPECT_EQ(GetSettings({.drop_in = "/d"})["LD_LIBRARY_PATH"], "/d");
  environment_["LD_LIBRARY_PATH"] = "/u:/v";
  EXPECT_EQ(GetSettings({.drop_in = "/d"})["LD_LIBRARY_PATH"], "/d:/u:/v");
}

// Some programs open "libnvrtc.so" with dlopen. The preloaded libraries have other names (with a
// version), so the directory must be in LD_LIBRARY_PATH.
TEST_F(RunSettingsTest, PtxToolsAreOnThePathOnlyIfTheDeviceNeedsPtx) {
  environment_["LD_LIBRARY_PATH"] = "/u";
  EXPECT_EQ(GetSettings({.drop_in = "/d", .wants_ptx = true})["LD_LIBRARY_PATH"], "/d:/d/ptx:/u");
  EXPECT_EQ(GetSettings({.drop_in = "/d"})["LD_LIBRARY_PATH"], "/d:/u");
}

TEST_F(RunSettingsTest, SetsOnlyRequestedVariables) {
  EXPECT_EQ(GetSettings({.drop_in = "/d"}).size(), 2u) << "LD_LIBRARY_PATH and GPUSHARED_RUN only";
  const auto all = GetSettings({.socket = "/s",
                                .drop_in = "/d",
                                .scheduling_class = "low",
                                .name = "job",
                                .device = "cpu:0",
                                .weight = 7,
                                .target = "2.5",
                                .is_interruptible = true});
  EXPECT_EQ(all.at("GPUSHARED_SOCKET"), "/s");
  EXPECT_EQ(all.at("GPUSHARED_CLASS"), "low");
  EXPECT_EQ(all.at("GPUSHARED_NAME"), "job");
  EXPECT_EQ(all.at("GPUSHARED_DEVICE"), "cpu:0");
  EXPECT_EQ(all.at("GPUSHARED_WEIGHT"), "7");
  EXPECT_EQ(all.at("GPUSHARED_LATENCY_TARGET"), "2.5");
  EXPECT_EQ(all.at("GPUSHARED_INTERRUPT"), "1");
}

TEST_F(RunSettingsTest, InGateModeTheDriverChoosesTheDevice) {
  const auto all =
      GetSettings({.drop_in = "/d", .device = "cuda:1", .gpu = "GPU-12ab", .mode = "gate"});
  EXPECT_EQ(all.at("CUDA_VISIBLE_DEVICES"), "GPU-12ab");
  EXPECT_FALSE(all.contains("GPUSHARED_DEVICE"));
}

TEST_F(RunSettingsTest, ToolsProducePtxUnlessTheUserHasChosen) {
  files_["/d/ptx/ptxas"] = true;
  EXPECT_FALSE(GetSettings({.drop_in = "/d"}).contains("TRITON_PTXAS_PATH"));
  EXPECT_EQ(GetSettings({.drop_in = "/d", .wants_ptx = true})["TRITON_PTXAS_PATH"], "/d/ptx/ptxas");
  environment_["TRITON_PTXAS_PATH"] = "/mine";
  EXPECT_FALSE(GetSettings({.drop_in = "/d", .wants_ptx = true}).contains("TRITON_PTXAS_PATH"));
  EXPECT_FALSE(GetSettings({.drop_in = "/d", .wants_ptx = true}).contains("LD_PRELOAD"));
  files_["/d/ptx/libnvrtc.so.13"] = true;
  environment_["LD_PRELOAD"] = "/u.so";
  EXPECT_EQ(GetSettings({.drop_in = "/d", .wants_ptx = true})["LD_PRELOAD"],
            "/u.so:/d/ptx/libnvrtc.so.13")
      << "a sanitizer's runtime that the user preloads has to be the first library";
}

TEST_F(RunSettingsTest, AsanAcceptsLibrariesBeforeIt) {
  const RunRequest request{.drop_in = "/d", .wants_ptx = true, .needs_asan = true};
  EXPECT_FALSE(GetSettings(request).contains("ASAN_OPTIONS")) << "nothing is preloaded";
  files_["/d/ptx/libnvrtc.so.13"] = true;
  EXPECT_EQ(GetSettings(request)["ASAN_OPTIONS"], "verify_asan_link_order=0");
  environment_["ASAN_OPTIONS"] = "detect_leaks=0";
  EXPECT_EQ(GetSettings(request)["ASAN_OPTIONS"], "detect_leaks=0:verify_asan_link_order=0");
  environment_["ASAN_OPTIONS"] = "verify_asan_link_order=1";
  EXPECT_FALSE(GetSettings(request).contains("ASAN_OPTIONS")) << "the user has chosen";
  EXPECT_FALSE(GetSettings({.drop_in = "/d", .wants_ptx = true}).contains("ASAN_OPTIONS"));
}

TEST_F(RunSettingsTest, ReplacesNvccIfOneExists) {
  files_["/d/ptx/bin/nvcc"] = true;
  environment_["PATH"] = "/usr/bin:/cuda/bin";
  EXPECT_FALSE(GetSettings({.drop_in = "/d", .wants_ptx = true}).contains("PATH"));
  files_["/cuda/bin/nvcc"] = true;
  EXPECT_EQ(GetSettings({.drop_in = "/d", .wants_ptx = true})["PATH"],
            "/d/ptx/bin:/usr/bin:/cuda/bin");
  EXPECT_EQ(GetSettings({.drop_in = "/d", .wants_ptx = true})["CUDA_ROOT"], "/cuda");
  environment_["CUDA_ROOT"] = "/mine";
  EXPECT_FALSE(GetSettings({.drop_in = "/d", .wants_ptx = true}).contains("CUDA_ROOT"));
  EXPECT_FALSE(GetSettings({.drop_in = "/d"}).contains("PATH"));
}

// ---- programs on which the settings have no effect

TEST(ProgramFileTest, ReportsProgramsThatCannotLoadTheLibrary) {
  EXPECT_EQ(server::WhyNotSeen("/proc/self/exe"), "");
  EXPECT_EQ(server::WhyNotSeen("/nonexistent"), "");
  EXPECT_THAT(server::WhyNotSeen(GPUSHARED_STATIC_PROGRAM), HasSubstr("statically linked"));
  EXPECT_THAT(server::WhyNotSeen(GPUSHARED_RPATH_PROGRAM), HasSubstr("libcuda.so.1"));
  EXPECT_EQ(server::WhyNotSeen(GPUSHARED_VECTOR_ADD_PROGRAM), "") << "a RUNPATH comes later";
}

TEST(ProgramFileTest, ProgramsAreFoundAsShellsFindThem) {
  EXPECT_EQ(server::FindProgram("sh", "/nonexistent:/bin"), "/bin/sh");
  EXPECT_EQ(server::FindProgram("sh", "/nonexistent"), "");
  EXPECT_EQ(server::FindProgram("/bin/sh", ""), "/bin/sh");
  EXPECT_EQ(server::FindProgram("/bin", ""), "") << "a directory";
}

}  // namespace
}  // namespace gpushared
