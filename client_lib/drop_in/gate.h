// SPDX-License-Identifier: Apache-2.0
// Gate mode (GPUSHARED_MODE=gate): the program keeps the machine's installed driver, and each of
// its calls passes this library on the way there. A call goes straight on, or to the hook that
// functions.inc names for it.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_H_

#include "gpushared/result.h"

#include "client_lib/drop_in/native_driver.h"

namespace gpushared::drop_in {

// From now on every call goes to the installed driver, through its hook if it has one, without a
// way back. A call that the driver lacks is not supported. On an error nothing has changed:
// kNotFound without an installed driver, or with the reason why it cannot be loaded. At most one
// thread may call it, and once.
Result<NativeDriver> ForwardToNativeDriver();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_H_
