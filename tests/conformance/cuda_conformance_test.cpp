// SPDX-License-Identifier: Apache-2.0
// The rules on a real driver. Where there is none every case is skipped, which is not passed.

#include <utility>

#include "server/device/cuda/cuda_device.h"
#include "tests/conformance/cuda_row.h"

namespace gpushared::testing {
namespace {

using device::cuda::CompletionKind;

ConformanceDevice Real(ConformanceDevice row) {
  row.why_skipped = []() -> std::string {
    device::cuda::PrepareEnvironment();
    const auto driver = device::cuda::Driver::Load();
    return driver.ok() ? "" : driver.status().message();
  };
  return row;
}

INSTANTIATE_TEST_SUITE_P(
    Gpu, DeviceConformance,
    ::testing::Values(
        Real(CudaRow("cuda_events", CompletionKind::kEvents)),
        Real(CudaRow("cuda_writes", CompletionKind::kWrites)),
        Real(CudaRow("cuda_fenced", CompletionKind::kEvents, device::Isolation::kFence)),
        Real(CudaRow("cuda_contained", CompletionKind::kEvents, device::Isolation::kContain)),
        // The driver compiles what the passes made: it is our own text.
        Real(ClaimedCudaRow("cuda_claimed")),
        Real(ClaimedCudaRow("cuda_fenced_claimed", device::Isolation::kFence)),
        Real(ClaimedCudaRow("cuda_contained_claimed", device::Isolation::kContain))),
    [](const auto& any) { return any.param.name; });

}  // namespace
}  // namespace gpushared::testing
