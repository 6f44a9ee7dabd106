// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_LIST_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_LIST_H_

#include <vector>

#include "gpushared/client.h"
#include "gpushared/result.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// The devices that this program may use: the server's, as CUDA_VISIBLE_DEVICES and
// GPUSHARED_DEVICE choose from them. Holds no session afterwards.
Result<std::vector<DeviceProperties>> ListDevices();

// The device's own UUID, or a number that stands for the device of this name: the same in every
// process and at any time.
Uuid DeviceUuid(const DeviceProperties& device);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_LIST_H_
