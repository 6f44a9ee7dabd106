// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_RUNTIME_ARCHIVE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_RUNTIME_ARCHIVE_H_

#include <string_view>

namespace gpushared::drop_in {

// Whether `bytes` are libcudadevrt.a of some toolkit: an ar archive of one member,
// cuda_device_runtime.o. It holds machine code only; the linker of PTX has functions in its place.
bool IsDeviceRuntimeArchive(std::string_view bytes);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_RUNTIME_ARCHIVE_H_
