// SPDX-License-Identifier: Apache-2.0
// GPUSHARED_FALLBACK=native: where no server answers, the machine's installed driver serves the
// program in this library's place.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_

#include "gpushared/result.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

enum class Fallback { kNone, kNative };

// What GPUSHARED_FALLBACK says. kInvalidArgument names a value that is neither empty nor "native".
Result<Fallback> FallbackFromEnvironment();

struct NativeDriver {
  Code (*init)(unsigned flags) = nullptr;
};

// From now on every call goes to the installed driver, without a way back. A call that the driver
// lacks is not supported. kNotFound where no driver is installed, with the reason where it cannot
// be loaded: then nothing has changed.
Result<NativeDriver> ForwardToNativeDriver();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_
