// SPDX-License-Identifier: Apache-2.0
// The libraries that a program is linked with, and what is in them. All files are input.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_LIBRARIES_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_LIBRARIES_H_

#include <string>
#include <vector>

#include "server/tools/ctl/doctor/finding.h"

namespace gpushared::server::doctor {

struct LinkedFiles {
  std::vector<std::string> paths;    // The program first.
  std::vector<std::string> missing;  // Names of libraries that were not found.
};
// Follows the program's libraries as the loader would with this LD_LIBRARY_PATH. The driver's own
// library is not among them: it is what the drop-in stands for.
LinkedFiles FindLinkedFiles(const std::string& program, const std::string& library_path);

// Whether the file has NVIDIA's CUDA runtime in it, or is cuFFT: the number by which they ask the
// driver for a private table. False for files that cannot be read.
bool HasCudaRuntime(const std::string& path);

// What the kernels in the file mean for programs over the drop-in; nothing where there are none.
// `takes_ptx_only`: machine code runs on no device of the server.
Findings CheckKernels(const std::string& path, bool takes_ptx_only);

}  // namespace gpushared::server::doctor

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_LIBRARIES_H_
