// SPDX-License-Identifier: Apache-2.0
// The rules on a real driver. Where there is none every case is skipped, which is not passed.

#include <utility>

#include "server/device/cuda/cuda_device.h"
#include "tests/conformance/cuda_row.h"

namespace gpushared::testing {
namespace {

using device::cuda::CompletionKind;

ConformanceDevice Real(CompletionKind completion, const std::string& name) {
  ConformanceDevice row = CudaRow("cuda_" + name, completion);
  row.why_skipped = []() -> std::string {
    device::cuda::PrepareEnvironment();
    const auto driver = device::cuda::Driver::Load();
    return driver.ok() ? "" : driver.status().message();
  };
  return row;
}

INSTANTIATE_TEST_SUITE_P(Gpu, DeviceConformance,
                         ::testing::Values(Real(CompletionKind::kEvents, "events"),
                                           Real(CompletionKind::kWrites, "writes")),
                         [](const auto& any) { return any.param.name; });

}  // namespace
}  // namespace gpushared::testing
