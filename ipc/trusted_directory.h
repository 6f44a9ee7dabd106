// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_TRUSTED_DIRECTORY_H_
#define GPUSHARED_IPC_TRUSTED_DIRECTORY_H_

#include <string>

#include "gpushared/status.h"

namespace gpushared::ipc {

// Checks that only root and the user of this process can replace this directory: every directory
// from "/" on, and along every symbolic link, belongs to one of the two and is not writable by
// others unless it is sticky, as /tmp is. In such a directory the owner of a file can be trusted.
// `path` is absolute and exists. kPermissionDenied names the offending directory and the reason.
Status CheckTrustedDirectory(const std::string& path);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_TRUSTED_DIRECTORY_H_
