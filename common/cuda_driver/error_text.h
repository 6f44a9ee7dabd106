// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_COMMON_CUDA_DRIVER_ERROR_TEXT_H_
#define GPUSHARED_COMMON_CUDA_DRIVER_ERROR_TEXT_H_

#include <algorithm>
#include <iterator>

#include "common/cuda_driver/driver_types.h"

namespace gpushared::device::cuda {

// Results of cuGetErrorName and cuGetErrorString.
struct ErrorText {
  Code code;
  const char* name;
  const char* text;
};

inline constexpr ErrorText kErrorTexts[] = {
#define GPUSHARED_CUDA_ERROR(number, ours, name, text) {Code::ours, "CUDA_" #name, text},
#include "common/cuda_driver/driver_errors.inc"
#undef GPUSHARED_CUDA_ERROR
};

// Sets `*to` to one of the two texts of the code. Like the driver, returns kInvalidValue and sets a
// null pointer for an unknown code.
inline Code ReportText(Code code, const char* ErrorText::*which, const char** to) {
  const auto* const found = std::ranges::find(kErrorTexts, code, &ErrorText::code);
  const bool is_known = found != std::end(kErrorTexts);
  *to = is_known ? found->*which : nullptr;
  return is_known ? Code::kSuccess : Code::kInvalidValue;
}

}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_COMMON_CUDA_DRIVER_ERROR_TEXT_H_
