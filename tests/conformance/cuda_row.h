// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_CONFORMANCE_CUDA_ROW_H_
#define GPUSHARED_TESTS_CONFORMANCE_CUDA_ROW_H_

#include <string>

#include "server/device/cuda/completion_kind.h"
#include "server/device/isolation.h"
#include "tests/conformance/device_suite.h"

namespace gpushared::testing {

// The CUDA device on GPU 0 of the first driver that the dynamic linker finds.
ConformanceDevice CudaRow(const std::string& name, device::cuda::CompletionKind completion,
                          device::Isolation isolation = device::Isolation::kOff);
// Like CudaRow, with the preemptible forms of all kernels, which are prepared immediately. The
// driver must accept PTX as code. Launches are issued in groups of few blocks.
ConformanceDevice ClaimedCudaRow(const std::string& name,
                                 device::Isolation isolation = device::Isolation::kOff);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CONFORMANCE_CUDA_ROW_H_
