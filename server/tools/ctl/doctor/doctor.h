// SPDX-License-Identifier: Apache-2.0
// `doctor [options] [-- PROGRAM...]`: checks what will work on this machine, and advises how to fix
// the rest.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_DOCTOR_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_DOCTOR_H_

#include <span>

namespace gpushared::server {

// Returns true if the arguments, which begin with the program's name, are those of `doctor`.
bool IsDoctorCommand(std::span<char* const> arguments);

// Returns the exit code: 0 if there are no problems, 1 if a problem was found, 2 for a usage error.
int DoctorCommand(std::span<char* const> arguments);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_DOCTOR_H_
