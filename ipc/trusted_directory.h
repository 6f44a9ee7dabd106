// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_TRUSTED_DIRECTORY_H_
#define GPUSHARED_IPC_TRUSTED_DIRECTORY_H_

#include <string>

#include "gpushared/status.h"

namespace gpushared::ipc {

// Whether nobody but root and this process's user can put another directory in the place of this
// one: from "/" on, and along every symbolic link, each directory belongs to one of the two, and
// others may not write to it unless it is sticky, as /tmp is. A file in such a directory is this
// user's own where its owner says so. `path` is absolute, and exists; kPermissionDenied names the
// directory and what is wrong with it.
Status CheckTrustedDirectory(const std::string& path);

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_TRUSTED_DIRECTORY_H_
