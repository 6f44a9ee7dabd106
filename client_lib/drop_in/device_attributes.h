// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_

#include "gpushared/client.h"

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

using Attribute = device::cuda::DeviceAttribute;

// Returns an attribute: hardware attributes as reported by the server, driver attributes according
// to this library, 0 for all others. Never negative.
int AttributeFor(const DeviceProperties& device, Attribute id);
// As the other AttributeFor, for any number `id`; kInvalidValue if CUDA does not define this
// attribute.
Code AttributeFor(const DeviceProperties& device, int id, int& value);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_ATTRIBUTES_H_
