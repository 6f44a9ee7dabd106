// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/cuda_row.h"

#include <utility>

#include "server/device/cuda/cuda_device.h"

namespace gpushared::testing {

ConformanceDevice CudaRow(const std::string& name, device::cuda::CompletionKind completion,
                          device::Isolation isolation) {
  return {
      .name = name,
      .multiprocessors = 1,
      .interprets_ptx = false,
      .is_polled = true,
      .isolation = isolation,
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

}  // namespace gpushared::testing
