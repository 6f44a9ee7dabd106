// SPDX-License-Identifier: Apache-2.0
// Real servers on a fake driver whose loads, unmaps and similar calls wait for the GPU and block
// all other calls. A worker that makes such a call next to an endless kernel could never end that
// kernel, and would hang.

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpushared/client.h"

#include "tests/support/gpu_server.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

Client Connect(const GpuServer& gpu, const std::string& name, SchedulingClass its_class) {
  Result<Client> client =
      Client::Connect({.name = name, .scheduling_class = its_class, .socket = gpu.socket()});
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? *std::move(client) : Client();
}

// A client whose endless kernel is running.
class Endless {
 public:
  explicit Endless(const GpuServer& gpu) : client_(Connect(gpu, "bad", SchedulingClass::kLow)) {
    module_ = *client_.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
    flag_ = *client_.AllocateDevice(4);
    EXPECT_TRUE(client_.default_stream().Launch(*module_.GetKernel("endless"), {}, flag_).ok());
    const auto launches = [&] {
      const std::vector<std::string> calls = gpu.Calls();
      return std::count(calls.begin(), calls.end(), "cuLaunchKernel");
    };
    EXPECT_TRUE(Eventually([&] { return launches() > 0; }));
  }
  Status Await() const { return client_.default_stream().Synchronize(); }

 private:
  Client client_;
  Module module_;
  DeviceBuffer flag_;
};

// Does work whose driver calls wait for the GPU: loads a module, allocates memory, launches a
// kernel, and releases everything.
Status Work(const Client& client) {
  const Result<Module> module = client.LoadModuleFile(GPUSHARED_SYSTEM_KERNELS);
  if (!module.ok()) return module.status();
  const Result<DeviceBuffer> word = client.AllocateDevice(4);
  if (!word.ok()) return word.status();
  Status status = client.default_stream().Launch(*module->GetKernel("step"), {}, *word, 1);
  return status.ok() ? client.default_stream().Synchronize() : status;
}

TEST(DriverLock, EndsEndlessKernelThatBlocksLoad) {
  GpuServer gpu({.statements = "lock on",
                 .arguments = {"--memory", "contain", "--kernel-limit", "low=300ms"},
                 .has_compiler = true});
  const std::vector<pid_t> workers = gpu.server().workers();
  const Client good = Connect(gpu, "good", SchedulingClass::kNormal);
  EXPECT_EQ(Work(good).ToString(), "Ok");
  for (int round = 0; round < 3; ++round) {
    const Endless bad(gpu);
    EXPECT_EQ(Work(good).ToString(), "Ok");
    EXPECT_EQ(bad.Await().code(), StatusCode::kKernelFault);
  }
  EXPECT_EQ(gpu.server().workers(), workers);
}

// The endless kernel's client disconnects. The worker must notice this even while the worker cannot
// make a driver call.
TEST(DriverLock, EndsEndlessKernelOfDepartedClientDuringLoad) {
  GpuServer gpu({.statements = "lock on", .arguments = {"--memory", "contain"}});
  const Client good = Connect(gpu, "good", SchedulingClass::kNormal);
  auto bad = std::make_unique<Endless>(gpu);
  std::future<Status> work = std::async(std::launch::async, [&] { return Work(good); });
  EXPECT_EQ(work.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout)
      << "the load waits for what has no end";
  bad.reset();
  EXPECT_EQ(work.get().ToString(), "Ok");
}

}  // namespace
}  // namespace gpushared::testing
