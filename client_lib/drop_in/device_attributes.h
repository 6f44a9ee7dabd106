// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_

#include "gpushared/client.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

using Attribute = device::cuda::DeviceAttribute;

// What a program is told: of the hardware what the server tells, of the driver what this library
// does. Zero for everything else. Never negative.
int AttributeFor(const DeviceProperties& device, Attribute id);
// The same for any number; kInvalidValue for one that CUDA does not know.
Code AttributeFor(const DeviceProperties& device, int id, int& value);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_
