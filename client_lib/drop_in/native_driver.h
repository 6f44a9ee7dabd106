// SPDX-License-Identifier: Apache-2.0
// Installed driver of the machine. Serves the program in gate mode, and with
// GPUSHARED_FALLBACK=native if no server answers.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "gpushared/result.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// What executes the program's work. kSubmit: the server, to which the program submits the work.
// kGate: the installed driver, when the server admits the work.
enum class Mode : std::uint8_t { kSubmit, kGate };

// Returns the value of GPUSHARED_MODE. If it is empty or not set, returns kGate if a device node of
// GPUs exists (ipc::kGpuNodes), otherwise kSubmit. Any value other than "submit" and "gate" is
// kInvalidArgument; the message quotes it.
Result<Mode> ModeFromEnvironment();

enum class Fallback { kNone, kNative };

// Returns the value of GPUSHARED_FALLBACK; no value if it is not set or empty. Any value other than
// "native" and "none" is kInvalidArgument; the message quotes it.
Result<std::optional<Fallback>> FallbackFromEnvironment();

// The installed driver, which remains loaded until the process ends.
struct NativeDriver {
  std::string path;
  void* library = nullptr;  // For dlsym.
  Code (*init)(unsigned flags) = nullptr;
};

// Loads the first libcuda.so.1 in the loader's order that is not a copy of this library, without
// calling it. kNotFound if none is installed or if it cannot be loaded; the message gives the
// reason.
Result<NativeDriver> LoadNativeDriver();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_NATIVE_DRIVER_H_
