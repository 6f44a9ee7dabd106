// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PROGRAM_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PROGRAM_H_

#include <span>
#include <string>

#include "server/tools/ctl/doctor/finding.h"

namespace gpushared::server::doctor {

// Environment in which the program would be started.
struct ProgramEnvironment {
  std::string search_path;   // Value of $PATH.
  std::string library_path;  // Value of LD_LIBRARY_PATH, with the drop-in first.
  bool takes_ptx_only = true;
  // Whether the installed driver executes the program's work. If so, the program may contain
  // NVIDIA's runtime.
  bool is_gated = false;
};

// Checks whether a program, with its arguments, would run with the drop-in. Reads the program's
// files, but does not run the program.
Findings CheckProgram(std::span<char* const> command, const ProgramEnvironment& environment);

}  // namespace gpushared::server::doctor

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PROGRAM_H_
