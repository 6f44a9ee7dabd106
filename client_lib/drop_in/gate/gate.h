// SPDX-License-Identifier: Apache-2.0
// Gate mode (GPUSHARED_MODE=gate): the program uses the installed driver of the machine, and each
// of its calls passes through this library, either directly to the driver or through the hook that
// functions.inc names for it.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_GATE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_GATE_H_

#include "gpushared/result.h"

#include "client_lib/drop_in/native_driver.h"

namespace gpushared::drop_in {

// Permanently forwards every call to the installed driver, through its hook if it has one. A call
// that the driver lacks is not supported. On failure nothing changes. Returns kNotFound if no
// driver is installed; if the driver cannot be loaded, the message gives the reason. Called at most
// once, by one thread.
Result<NativeDriver> ForwardToNativeDriver();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_GATE_H_
