// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_RUN_PROGRAM_FILE_H_
#define GPUSHARED_SERVER_TOOLS_RUN_PROGRAM_FILE_H_

#include <functional>
#include <string>
#include <string_view>

namespace gpushared::server {

// The parts between the colons of a list of directories.
void ForEachPart(std::string_view list, const std::function<void(std::string_view)>& call);

// A directory of a search path in the file `path`, with $ORIGIN replaced.
std::string WithOrigin(std::string_view directory, const std::string& path);

// Where execvp would find the program; empty when it would not.
std::string FindProgram(const std::string& program, const std::string& search_path);

// Why this program would not see the drop-in although LD_LIBRARY_PATH names it: it is statically
// linked, it changes its user, or it looks into directories of its own first and finds a libcuda
// there. Empty: it will, as far as its file says.
std::string WhyNotSeen(const std::string& path);

// Whether the program's file names the library of AddressSanitizer's runtime.
bool NeedsAsan(const std::string& path);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_RUN_PROGRAM_FILE_H_
