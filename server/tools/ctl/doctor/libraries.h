// SPDX-License-Identifier: Apache-2.0
// Libraries that a program links, and their kernels. All files are untrusted input.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_LIBRARIES_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_LIBRARIES_H_

#include <string>
#include <vector>

#include "server/tools/ctl/doctor/finding.h"

namespace gpushared::server::doctor {

struct LinkedFiles {
  std::vector<std::string> paths;    // Paths of the files; the program comes first.
  std::vector<std::string> missing;  // Names of libraries that were not found.
};
// Resolves the program's libraries as the loader would with this LD_LIBRARY_PATH. Omits the
// driver's own library, because the drop-in replaces it.
LinkedFiles FindLinkedFiles(const std::string& program, const std::string& library_path);

// Returns true if the file contains NVIDIA's CUDA runtime or is cuFFT, recognized by the UUIDs with
// which they request private tables from the driver. Returns false for files that cannot be read.
bool HasCudaRuntime(const std::string& path);

// Reports whether the kernels of the file can run in a program that uses the drop-in. Returns no
// findings if the file has no kernels. `takes_ptx_only` means that no device of the server executes
// machine code.
Findings CheckKernels(const std::string& path, bool takes_ptx_only);

}  // namespace gpushared::server::doctor

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_LIBRARIES_H_
