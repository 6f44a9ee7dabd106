// SPDX-License-Identifier: Apache-2.0
// Gate mode (GPUSHARED_MODE=gate): the program keeps the machine's installed driver, and each of
// its calls passes this library on the way there. A call goes straight on, or to the hook that
// functions.inc names for it.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_H_

#include <cstdint>

#include "gpushared/result.h"

#include "client_lib/drop_in/entry_points.h"
#include "client_lib/drop_in/native_driver.h"

namespace gpushared::drop_in {

// Whose driver runs the program's work: the server's, which the program submits to, or the
// machine's own.
enum class Mode : std::uint8_t { kSubmit, kGate };

// What GPUSHARED_MODE says. Without it, kSubmit. kInvalidArgument names any other value than
// "submit" and "gate".
Result<Mode> ModeFromEnvironment();

// From now on every call goes to the installed driver, through its hook if it has one, without a
// way back. A call that the driver lacks is not supported. On an error nothing has changed:
// kNotFound without an installed driver, or with the reason why it cannot be loaded. At most one
// thread may call it, and once.
Result<NativeDriver> ForwardToNativeDriver();

// The function that the installed driver exports at this address, or null where it is none of
// functions.inc. Requires that ForwardToNativeDriver() has succeeded; thread-safe.
const Function* FunctionAt(const void* native_address);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_H_
