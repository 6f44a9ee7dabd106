// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_CALIBRATION_H_
#define GPUSHARED_TESTS_GPU_CALIBRATION_H_

#include <functional>

namespace gpushared::testing {

// Maximum number of blocks of one warp that a multiprocessor of a current GPU runs at once.
inline constexpr unsigned kBlocksAtOnce = 32;

// Returns the mean time of a launch when `launches` of them run back to back. `wait` waits for all
// of them.
double NsPer(const std::function<void()>& launch, const std::function<void()>& wait,
             unsigned launches);

// Returns how many iterations of a kernel's loop take a microsecond of device time, where `launch`
// launches that kernel with a number of iterations. The device must be otherwise idle. Throws
// std::runtime_error if a kernel of twice the iterations does not take longer.
double IterationsPerUs(const std::function<void(unsigned iterations)>& launch,
                       const std::function<void()>& wait);

// Returns the value that the loop of each kernel of gpu_kernels.cu computes.
unsigned LoopResult(unsigned iterations);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_CALIBRATION_H_
