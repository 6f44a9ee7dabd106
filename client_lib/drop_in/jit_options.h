// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_JIT_OPTIONS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_JIT_OPTIONS_H_

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

enum class JitUse : bool { kLoad, kLink };

// kInvalidValue for options that cuda.h does not have or does not allow for `use`, values outside
// their range, and options that exclude each other. The arrays have `count` elements each.
// Thread-safe.
Code CheckJitOptions(JitUse use, unsigned count, const JitOption* options, void* const* values);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_JIT_OPTIONS_H_
