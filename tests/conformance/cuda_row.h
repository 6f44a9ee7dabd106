// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_CONFORMANCE_CUDA_ROW_H_
#define GPUSHARED_TESTS_CONFORMANCE_CUDA_ROW_H_

#include <string>

#include "server/device/cuda/completion_kind.h"
#include "server/device/isolation.h"
#include "tests/conformance/device_suite.h"

namespace gpushared::testing {

// The CUDA device on GPU 0 of whichever driver the dynamic linker finds first.
ConformanceDevice CudaRow(const std::string& name, device::cuda::CompletionKind completion,
                          device::Isolation isolation = device::Isolation::kOff);
// With the claimed forms of all kernels, at once, for a driver that takes text for code. Launches
// go in groups of few blocks.
ConformanceDevice ClaimedCudaRow(const std::string& name,
                                 device::Isolation isolation = device::Isolation::kOff);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CONFORMANCE_CUDA_ROW_H_
