// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_LIST_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_LIST_H_

#include <vector>

#include "gpushared/client.h"
#include "gpushared/result.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Returns the devices that this program may use: those of the server that CUDA_VISIBLE_DEVICES and
// GPUSHARED_DEVICE select. Holds no session afterwards.
Result<std::vector<DeviceProperties>> ListDevices();

// Returns the device's UUID. If the device has none, returns a number that is derived from its id
// and is the same in every process at any time.
Uuid DeviceUuid(const DeviceProperties& device);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_LIST_H_
