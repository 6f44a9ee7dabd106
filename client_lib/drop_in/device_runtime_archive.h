// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_RUNTIME_ARCHIVE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_RUNTIME_ARCHIVE_H_

#include <string_view>

namespace gpushared::drop_in {

// Returns whether `bytes` are libcudadevrt.a of any toolkit: an ar archive with the single member
// cuda_device_runtime.o. The archive has only machine code, so the PTX linker provides its
// functions.
bool IsDeviceRuntimeArchive(std::string_view bytes);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_DEVICE_RUNTIME_ARCHIVE_H_
