// SPDX-License-Identifier: Apache-2.0
// Python packages beside an interpreter, and what a script takes of them. Nothing is run.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PYTHON_PACKAGES_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PYTHON_PACKAGES_H_

#include <set>
#include <string>
#include <vector>

#include "server/tools/ctl/doctor/finding.h"

namespace gpushared::server::doctor {

// Whether a program by this path is a Python.
bool IsPython(const std::string& path);

// The directories of packages beside an interpreter, which may be one of a virtual environment.
std::vector<std::string> PackageDirectories(const std::string& python);

// The names that a script imports first of all: "import a.b, c" and "from d.e import f" are a, c
// and d. At most 1 MiB of it is read.
std::set<std::string> ImportedBy(const std::string& script);

// Whether a script imports the runtime's part of cuda.bindings.
bool CallsRuntime(const std::string& script);

// Packages in the directory that have NVIDIA's runtime in them, or work through libraries that do:
// a problem where the script imports them, else a note.
Findings CheckPackages(const std::string& directory, const std::set<std::string>& imported);

}  // namespace gpushared::server::doctor

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PYTHON_PACKAGES_H_
