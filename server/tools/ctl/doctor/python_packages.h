// SPDX-License-Identifier: Apache-2.0
// Python packages of an interpreter, and which of them a script imports. Nothing is executed.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PYTHON_PACKAGES_H_
#define GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PYTHON_PACKAGES_H_

#include <set>
#include <string>
#include <vector>

#include "server/tools/ctl/doctor/finding.h"

namespace gpushared::server::doctor {

// Returns true if the path is that of a Python interpreter.
bool IsPython(const std::string& path);

// Returns the directories of the interpreter's packages. The interpreter may be that of a virtual
// environment.
std::vector<std::string> PackageDirectories(const std::string& python);

// Returns the top-level names that a script imports: a, c and d for "import a.b, c" and "from d.e
// import f". Reads at most 1 MiB.
std::set<std::string> ImportedBy(const std::string& script);

// Returns true if a script imports the runtime part of cuda.bindings.
bool CallsRuntime(const std::string& script);

// Finds packages in the directory that contain NVIDIA's runtime or depend on libraries that do.
// They are a problem if the script imports them, otherwise a note.
Findings CheckPackages(const std::string& directory, const std::set<std::string>& imported);

}  // namespace gpushared::server::doctor

#endif  // GPUSHARED_SERVER_TOOLS_CTL_DOCTOR_PYTHON_PACKAGES_H_
