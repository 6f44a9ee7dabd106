// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_RUN_DROP_IN_DIRECTORY_H_
#define GPUSHARED_SERVER_TOOLS_RUN_DROP_IN_DIRECTORY_H_

#include <string>

namespace gpushared::server {

// Returns the directory of the drop-in libcuda.so.1 that was built or installed with this program,
// or an empty string if there is none.
std::string FindDropIn();

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_RUN_DROP_IN_DIRECTORY_H_
