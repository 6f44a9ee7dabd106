// SPDX-License-Identifier: Apache-2.0
// Options that clients and operators request of a GPU: real processes on the fake driver.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/server/other_user.h"
#include "tests/support/gpu_server.h"
#include "tests/support/read_file.h"

namespace gpushared::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Client Connect(const GpuServer& gpu, SchedulingClass its_class) {
  Result<Client> client = Client::Connect({.scheduling_class = its_class, .socket = gpu.socket()});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? *std::move(client) : Client();
}

Status RunStep(const Client& client, const LaunchShape& shape) {
  const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
  if (!module.ok()) return module.status();
  const DeviceBuffer word = *client.AllocateDevice(4);
  const Stream stream = *client.CreateStream();
  Status status = stream.Launch(*module->GetKernel("step"), shape, word, 1);
  return status.ok() ? stream.Synchronize() : status;
}

TEST(GpuOptions, PassesLaunchAttributesFromClientToDriver) {
  const GpuServer gpu;
  const Client client = Connect(gpu, SchedulingClass::kNormal);
  EXPECT_TRUE(RunStep(client, {.grid = {4, 2, 1}, .cluster = {2, 2, 1}}).ok());
  EXPECT_TRUE(RunStep(client, {.is_cooperative = true}).ok());
  const std::vector<std::string> calls = gpu.Calls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "cuLaunchKernelEx"), 2);
  EXPECT_THAT(RunStep(client, {.grid = {6, 3, 4}, .cluster = {3, 1, 2}}).ToString(), "Ok");
  // Each axis is checked separately.
  for (const Dim3 torn : {Dim3{7, 2, 2}, Dim3{3, 3, 2}, Dim3{3, 2, 3}}) {
    EXPECT_EQ(RunStep(client, {.grid = torn, .cluster = {1, 1, 1}}).code(), StatusCode::kOk);
    EXPECT_THAT(RunStep(client, {.grid = torn, .cluster = {3, 2, 1}}).ok() &&
                    RunStep(client, {.grid = torn, .cluster = {1, 2, 2}}).ok(),
                false);
  }
  const Status large = RunStep(client, {.grid = {5000, 1, 1}, .is_cooperative = true});
  EXPECT_EQ(large.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(large.message(), HasSubstr("launched cooperatively with 5000 blocks, 4224 fit"));
}

TEST(GpuOptions, SmLimitAppliesToItsClassAndIsReportedToOperator) {
  GpuServer gpu({.statements = "", .arguments = {"--sm-limit", "low=50%", "--policy", "fair"}});
  const LaunchShape large = {.grid = {5000, 1, 1}, .is_cooperative = true};
  EXPECT_THAT(RunStep(Connect(gpu, SchedulingClass::kLow), large).message(),
              HasSubstr("on each of 64 multiprocessors"));
  EXPECT_THAT(RunStep(Connect(gpu, SchedulingClass::kNormal), large).message(),
              HasSubstr("on each of 132 multiprocessors"));
  const std::string message = "cuda:0: class low has 64 of 132 multiprocessors, asked for 66";
  EXPECT_THAT(gpu.server().Log(), HasSubstr(message));
  EXPECT_THAT(gpu.server().Ctl({"devices"}).output, HasSubstr(message));
}

TEST(GpuOptions, MissingGpuEndsItsSessionsAndServesAgainWhenItReturns) {
  GpuServer gpu;
  const Client client = Connect(gpu, SchedulingClass::kNormal);
  EXPECT_TRUE(RunStep(client, {}).ok());
  gpu.SetMachine(R"({"gpus": [{"board": "H200", "lost": true}]})");
  // The server checks the GPU every 5 s. Each query here starts a program, which is noticeable on
  // two cores.
  const auto devices_say = [&](const std::string& text) {
    return Eventually(
        [&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          return gpu.server().Ctl({"devices"}).output.find(text) != std::string::npos;
        },
        std::chrono::seconds(60));
  };
  EXPECT_TRUE(
      devices_say("missing: cuda:0: the driver no longer reports it; GPU 0 does not "
                  "answer: nvmlDeviceGetHandleByIndex: GPU is lost (15)"));
  const Status lost = RunStep(client, {});
  EXPECT_EQ(lost.code(), StatusCode::kDeviceLost) << lost.ToString();
  EXPECT_THAT(lost.message(), HasSubstr("the device has disappeared: "));
  const Result<Client> rejected = Client::Connect({.socket = gpu.socket()});
  EXPECT_EQ(rejected.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(rejected.status().message(), HasSubstr("device cuda:0 is missing: "));
  gpu.SetMachine(R"({"gpus": [{"board": "H200"}]})");
  EXPECT_TRUE(devices_say("ready"));
  EXPECT_TRUE(RunStep(Connect(gpu, SchedulingClass::kNormal), {}).ok());
}

// Loads a module as another user. Returns 0 if the module is loaded, 1 if it is rejected with a
// message that names the remedy, and another value after any other failure.
int LoadAsNobody(const GpuServer& gpu, const std::string& image) {
  // The server's directory was created for its owner only.
  std::filesystem::permissions(std::filesystem::path(gpu.socket()).parent_path(),
                               std::filesystem::perms::all);
  return AsNobody([&] {
    const Result<Client> client = Client::Connect({.socket = gpu.socket()});
    if (!client.ok()) return 2;
    const Status status = client->LoadModule(std::as_bytes(std::span(image))).status();
    if (status.ok()) return 0;
    const bool says_what_to_do = status.message().find("install ptxas") != std::string::npos;
    return status.code() == StatusCode::kUnsupported && says_what_to_do ? 1 : 3;
  });
}

TEST(GpuOptions, DriverCompilesOtherUsersPtxOnlyIfOperatorAllowsIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string image = ReadFile(GPUSHARED_SYSTEM_KERNELS);
  const GpuServer gpu;
  EXPECT_EQ(LoadAsNobody(gpu, image), 1);
  EXPECT_EQ(RunStep(Connect(gpu, SchedulingClass::kNormal), {}).ToString(), "Ok");
  const GpuServer with_compiler({.statements = "", .arguments = {}, .has_compiler = true});
  EXPECT_EQ(LoadAsNobody(with_compiler, image), 0);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--ptx-compiler", "driver"}, {"--memory", "off"}}) {
    const GpuServer trusting({.statements = "", .arguments = arguments});
    EXPECT_EQ(LoadAsNobody(trusting, image), 0) << arguments[1];
  }
  // Even if the compiler is missing, the driver must not compile.
  GpuServer without({.statements = "", .arguments = {"--ptx-compiler", "/nowhere/ptxas"}});
  EXPECT_EQ(LoadAsNobody(without, image), 1);
  EXPECT_THAT(without.server().Log(),
              AllOf(HasSubstr("modules of other users whose kernels are isolated are rejected"),
                    HasSubstr("there is no PTX compiler '/nowhere/ptxas'")));
}

TEST(GpuOptions, LogsKernelOutputLineByLine) {
  GpuServer gpu;
  const Client client = Connect(gpu, SchedulingClass::kNormal);
  const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const Kernel say = *module->GetKernel("say");
  for (unsigned number : {7U, 8U}) {
    ASSERT_TRUE(client.default_stream().Launch(say, {.block = {2, 1, 1}}, number).ok());
  }
  ASSERT_TRUE(client.Synchronize().ok());
  EXPECT_TRUE(Eventually(
      [&] { return gpu.server().Log().find("a kernel prints: number 8") != std::string::npos; }));
  // The log contains whole lines, each with its prefix, and no terminal control sequences.
  const std::string log = gpu.server().Log();
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = log.find("a kernel prints: number 7?[0m\n", at)) != log.npos; ++at)
    ++lines;
  EXPECT_EQ(lines, 2U) << log;
}

TEST(GpuOptions, RejectsSmLimitOfCpuDeviceAtStart) {
  const ProgramOutcome outcome = RunProgram({GPUSHARED_BIN_DIR "/gpushared", "--socket",
                                             ::testing::TempDir() + "sm-limit.sock", "--device",
                                             "cpu:0", "--sm-limit", "low=50%"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("option sm-limit rejected: a cpu device has no"));
}

}  // namespace
}  // namespace gpushared::testing
