// SPDX-License-Identifier: Apache-2.0
// `doctor [options] [-- PROGRAM...]`: says what will work here, and what to do about the rest.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_DOCTOR_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_DOCTOR_H_

#include <span>

namespace gpushared::server {

// Whether these arguments, a program's name first, are of `doctor`.
bool IsDoctorCommand(std::span<char* const> arguments);

// The exit code: 0 all is well, 1 something will not work, 2 the command line makes no sense.
int DoctorCommand(std::span<char* const> arguments);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_DOCTOR_H_
