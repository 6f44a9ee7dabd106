// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_RUN_PROGRAM_FILE_H_
#define GPUSHARED_SERVER_TOOLS_RUN_PROGRAM_FILE_H_

#include <functional>
#include <string>
#include <string_view>

namespace gpushared::server {

// Calls `call` for each colon-separated part of the list.
void ForEachPart(std::string_view list, const std::function<void(std::string_view)>& call);

// Replaces $ORIGIN in a search directory of the file `path`.
std::string WithOrigin(std::string_view directory, const std::string& path);

// Returns where execvp would find the program, or an empty string.
std::string FindProgram(const std::string& program, const std::string& search_path);

// Returns why this program would not load the drop-in although LD_LIBRARY_PATH names its directory:
// it is statically linked, it is setuid, or a directory that it searches first contains a libcuda.
// Returns an empty string if the file shows no obstacle.
std::string WhyNotSeen(const std::string& path);

// Returns true if the program links the runtime library of AddressSanitizer.
bool NeedsAsan(const std::string& path);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_RUN_PROGRAM_FILE_H_
