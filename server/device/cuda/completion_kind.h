// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CUDA_COMPLETION_KIND_H_
#define GPUSHARED_SERVER_DEVICE_CUDA_COMPLETION_KIND_H_

#include <cstdint>

namespace gpushared::device::cuda {

// How the end of work on a GPU is detected; see CompletionMarks::Create.
enum class CompletionKind : std::uint8_t { kEvents, kWrites };

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_SERVER_DEVICE_CUDA_COMPLETION_KIND_H_
