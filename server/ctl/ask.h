// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_CTL_ASK_H_
#define GPUSHARED_SERVER_CTL_ASK_H_

#include <string>

#include "gpushared/result.h"

#include "ipc/wire/control.h"

namespace gpushared::server {

// Asks the server at this socket, and waits 10 s at most: the server itself waits a second for its
// workers, the rest is for a machine under load.
Result<ipc::AdminReply> Ask(const std::string& path, const ipc::Admin& admin);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_CTL_ASK_H_
