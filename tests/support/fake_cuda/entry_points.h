// SPDX-License-Identifier: Apache-2.0
// The exported functions, declared from the server's own list, so that a function that the fake
// lacks or declares differently does not link.

#ifndef GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_ENTRY_POINTS_H_
#define GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_ENTRY_POINTS_H_

#include <cstddef>
#include <cstdint>

#include "common/cuda_driver/driver_types.h"
#include "server/device/cuda/driver_symbols.h"

// The functions are declared in the namespace of the types, so that the list's signatures resolve,
// and with C linkage, so that the exported names are not mangled.
namespace gpushared::device::cuda {
extern "C" {
#define FAKE_CUDA_DECLARE(name, suffix, version, feature, signature) \
  Code cu##name##suffix signature;
GPUSHARED_CUDA_SYMBOLS(FAKE_CUDA_DECLARE)
#undef FAKE_CUDA_DECLARE

// Functions that only tests/gpu/gpu_facts uses.
using Library = struct LibraryTarget*;
Code cuLibraryLoadData(Library* library, const void* code, JitOption* jit_options,
                       void** jit_values, unsigned jit_count, int* options, void** values,
                       unsigned count);
Code cuLibraryGetKernel(KernelHandle* kernel, Library library, const char* name);
Code cuLibraryUnload(Library library);
}
}  // namespace gpushared::device::cuda

#endif  // GPUSHARED_TESTS_SUPPORT_FAKE_CUDA_ENTRY_POINTS_H_
