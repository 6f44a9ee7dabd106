// SPDX-License-Identifier: Apache-2.0
// Gate mode (GPUSHARED_MODE=gate): the program uses the installed driver of the machine. Every call
// of the driver enters this library, which forwards it either directly or through the hook that
// functions.inc names for the function.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_GATE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_GATE_H_

#include "gpushared/result.h"

#include "client_lib/drop_in/native_driver.h"

namespace gpushared::drop_in {

// Permanently forwards every call to the installed driver, through the function's hook if there is
// one. A function that the driver lacks returns kNotSupported. Returns kNotFound, and changes
// nothing, if no driver is installed or if the driver cannot be loaded; the message gives the
// reason. Returns kInternal if the table of calls cannot be written. Called by one thread at a
// time, and not again after a success.
Result<NativeDriver> ForwardToNativeDriver();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_GATE_H_
