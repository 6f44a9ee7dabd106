// SPDX-License-Identifier: Apache-2.0
// NVRTC's functions for devices that load PTX: a compilation for sm_XX becomes one for compute_XX,
// and its PTX is returned if machine code is requested. Thread-safe.

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
