// SPDX-License-Identifier: Apache-2.0
// The devices that must pass the conformance suite, one line each. The rules are in
// device_*_rules.cpp.

#include <utility>

#include "server/device/device_catalog.h"
#include "tests/conformance/cuda_row.h"
#include "tests/conformance/device_swaps.h"

namespace gpushared::testing {
namespace {

using device::cuda::CompletionKind;

ConformanceDevice Catalogued(const std::string& id, std::uint32_t multiprocessors) {
  std::string name = id + "_" + std::to_string(multiprocessors);
  name[name.find(':')] = '_';
  return {.name = name,
          .multiprocessors = multiprocessors,
          .create = [id](const device::DeviceOptions& options, device::WakeFunction wake) {
            return device::CreateDevice(id, options, std::move(wake));
          }};
}

// This program is linked with the fake driver, whose GPU is the cpu device's executor.
auto Rows() {
  return ::testing::Values(
      Catalogued("cpu:0", 1), Catalogued("cpu:0", 2), Catalogued("cpu:0", 4),
      CudaRow("cuda_fake_events", CompletionKind::kEvents),
      CudaRow("cuda_fake_writes", CompletionKind::kWrites),
      CudaRow("cuda_fake_fenced", CompletionKind::kEvents, device::Isolation::kFence),
      CudaRow("cuda_fake_contained", CompletionKind::kEvents, device::Isolation::kContain),
      ClaimedCudaRow("cuda_fake_claimed"),
      ClaimedCudaRow("cuda_fake_fenced_claimed", device::Isolation::kFence),
      ClaimedCudaRow("cuda_fake_contained_claimed", device::Isolation::kContain));
}

INSTANTIATE_TEST_SUITE_P(All, DeviceConformance, Rows(),
                         [](const auto& any) { return any.param.name; });
INSTANTIATE_TEST_SUITE_P(All, DeviceSwaps, Rows(), [](const auto& any) { return any.param.name; });

}  // namespace
}  // namespace gpushared::testing
