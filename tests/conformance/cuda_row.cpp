// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/cuda_row.h"

#include <utility>

#include "server/device/cuda/cuda_device.h"
#include "tests/support/plain_compiler.h"

namespace gpushared::testing {

namespace {

ConformanceDevice Row(const std::string& name, device::cuda::CompletionKind completion,
                      device::Isolation isolation, bool claims) {
  return {.name = name,
          .multiprocessors = 1,
          .interprets_ptx = false,
          .is_polled = true,
          .isolation = isolation,
          .claims = claims,
          .create = [completion, claims](
                        const device::DeviceOptions& options,
                        device::WakeFunction wake) -> Result<std::unique_ptr<device::Device>> {
            auto driver = device::cuda::Driver::Load();
            if (!driver.ok()) return driver.status();
            device::cuda::CudaDeviceOptions cuda = {
                .memory_bytes = options.memory_bytes,
                .completion = completion,
                // Small groups, so that stops fall between them.
                .limits = {.host_group_bytes = 16 * device::kCopyPieceBytes,
                           .device_group_bytes = 16 * device::kCopyPieceBytes}};
            if (claims) {
              cuda.limits.claim_group_blocks = 300;
              cuda.make_compiler = [] { return std::make_unique<PlainCompiler>(); };
            }
            return device::cuda::CreateCudaDevice(*std::move(driver), std::move(cuda),
                                                  std::move(wake));
          }};
}

}  // namespace

ConformanceDevice CudaRow(const std::string& name, device::cuda::CompletionKind completion,
                          device::Isolation isolation) {
  return Row(name, completion, isolation, false);
}

ConformanceDevice ClaimedCudaRow(const std::string& name, device::Isolation isolation) {
  return Row(name, device::cuda::CompletionKind::kEvents, isolation, true);
}

}  // namespace gpushared::testing
