// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_VISIBLE_DEVICES_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_VISIBLE_DEVICES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// "GPU-" and the UUID's digits, as nvidia-smi and CUDA_VISIBLE_DEVICES write it.
std::string UuidText(const Uuid& uuid);

// Which of the server's devices, by place, `value` of CUDA_VISIBLE_DEVICES shows, in its order. As
// in CUDA, entries are numbers or beginnings of UUIDs, the first one that names nothing ends the
// list, and a device named twice leaves none.
std::vector<std::size_t> VisibleDevices(std::string_view value, const std::vector<Uuid>& uuids);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_VISIBLE_DEVICES_H_
