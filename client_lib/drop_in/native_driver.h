// SPDX-License-Identifier: Apache-2.0
// The machine's installed driver. It serves the program in gate mode, and with
// GPUSHARED_FALLBACK=native where no server answers.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_

#include <cstdint>
#include <string>

#include "gpushared/result.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Whose driver runs the program's work: the server's, which the program submits to, or the
// machine's own.
enum class Mode : std::uint8_t { kSubmit, kGate };

// What GPUSHARED_MODE says. Without it, kSubmit. kInvalidArgument names any other value than
// "submit" and "gate".
Result<Mode> ModeFromEnvironment();

enum class Fallback { kNone, kNative };

// What GPUSHARED_FALLBACK says. kInvalidArgument names a value that is neither empty nor "native".
Result<Fallback> FallbackFromEnvironment();

// It stays loaded until the process ends.
struct NativeDriver {
  std::string path;
  void* library = nullptr;  // For dlsym.
  Code (*init)(unsigned flags) = nullptr;
};

// Loads the first libcuda.so.1 in the loader's order that is no copy of this library, and calls
// nothing of it. kNotFound where none is installed, or with the reason why it cannot be loaded.
Result<NativeDriver> LoadNativeDriver();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_
