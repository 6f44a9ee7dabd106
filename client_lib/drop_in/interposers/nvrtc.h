// SPDX-License-Identifier: Apache-2.0
// NVRTC's functions as they are where the device takes PTX: a program that is compiled for sm_XX is
// compiled for compute_XX, and its PTX is given where its machine code is asked for. Thread-safe.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_NVRTC_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_NVRTC_H_

#include <cstddef>

namespace gpushared::drop_in {

// nvrtcResult.
inline constexpr int kInvalidInput = 3;
inline constexpr int kFailed = 11;
inline constexpr int kNoRealLibrary = kFailed;

int CompileProgram(void* program, int option_count, const char* const* options);
int DestroyProgram(void** program);
int GetCUBINSize(void* program, std::size_t* bytes);
int GetCUBIN(void* program, char* cubin);
const char* GetErrorString(int result);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_NVRTC_H_
