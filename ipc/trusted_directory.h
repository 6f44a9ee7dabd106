// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_TRUSTED_DIRECTORY_H_
#define GPUSHARED_IPC_TRUSTED_DIRECTORY_H_

#include <string>

#include "gpushared/status.h"

namespace gpushared::ipc {

// Checks that only root and the user of this process can replace the directory `path`. Every
// directory on the way from "/" to it, including the targets of symbolic links, must belong to one
// of the two users, and must not be writable by others unless it is sticky, as /tmp is. The owner
// of a file in such a directory can be trusted. `path` is absolute and exists. kPermissionDenied
// names the offending directory and the reason.
Status CheckTrustedDirectory(const std::string& path);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_TRUSTED_DIRECTORY_H_
