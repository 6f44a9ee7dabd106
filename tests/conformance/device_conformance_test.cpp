// SPDX-License-Identifier: Apache-2.0
// Which devices keep the rules: one line each. The rules are in device_*_rules.cpp.

#include <utility>

#include "server/device/cuda/cuda_device.h"
#include "server/device/device_catalog.h"
#include "tests/conformance/device_suite.h"
#include "tests/conformance/rule_kernels.h"
#include "tests/support/fake_device.h"

namespace gpushared::testing {
namespace {

using device::cuda::CompletionKind;

ConformanceDevice Fake(std::uint32_t multiprocessors) {
  return {.name = "fake_" + std::to_string(multiprocessors),
          .multiprocessors = multiprocessors,
          .create = [](const device::DeviceOptions& options, device::WakeFunction wake) {
            FakeDeviceOptions fake;
            fake.clock = FakeDeviceOptions::Clock::kVirtual;
            fake.multiprocessors = options.executor_threads;
            fake.memory_bytes = options.memory_bytes;
            fake.kernels = RuleKernels();
            fake.output = options.output;
            return Result<std::unique_ptr<device::Device>>(
                FakeDevice::Create(std::move(fake), std::move(wake)));
          }};
}

// The CUDA device on a driver whose GPU is the cpu device's executor.
ConformanceDevice FakeCuda(device::cuda::CompletionKind completion, const std::string& name) {
  return {
      .name = "cuda_fake_" + name,
      .multiprocessors = 1,
      .interprets_ptx = false,
      .is_polled = true,
      .create = [completion](const device::DeviceOptions& options,
                             device::WakeFunction wake) -> Result<std::unique_ptr<device::Device>> {
        auto driver = device::cuda::Driver::Load();
        if (!driver.ok()) return driver.status();
        // Groups of one piece, so that stops fall between them.
        return device::cuda::CreateCudaDevice(
            *std::move(driver),
            {.memory_bytes = options.memory_bytes,
             .completion = completion,
             .limits = {.host_group_bytes = device::kCopyPieceBytes,
                        .device_group_bytes = device::kCopyPieceBytes},
             .warn = {}},
            std::move(wake));
      }};
}

ConformanceDevice Catalogued(const std::string& id, std::uint32_t multiprocessors) {
  std::string name = id + "_" + std::to_string(multiprocessors);
  name[name.find(':')] = '_';
  return {.name = name,
          .multiprocessors = multiprocessors,
          .create = [id](const device::DeviceOptions& options, device::WakeFunction wake) {
            return device::CreateDevice(id, options, std::move(wake));
          }};
}

INSTANTIATE_TEST_SUITE_P(All, DeviceConformance,
                         ::testing::Values(Fake(1), Fake(4), Catalogued("cpu:0", 1),
                                           Catalogued("cpu:0", 2), Catalogued("cpu:0", 4),
                                           FakeCuda(CompletionKind::kEvents, "events"),
                                           FakeCuda(CompletionKind::kWrites, "writes")),
                         [](const auto& any) { return any.param.name; });

}  // namespace
}  // namespace gpushared::testing
