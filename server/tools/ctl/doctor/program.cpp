// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/doctor/program.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "server/tools/ctl/doctor/libraries.h"
#include "server/tools/ctl/doctor/python_packages.h"
#include "server/tools/run/elf_file.h"
#include "server/tools/run/program_file.h"

namespace gpushared::server::doctor {
namespace {

constexpr std::size_t kFirstLineBytesMax = 4096;

// Returns the interpreter named by a script's first line, or an empty string if the file is no
// script.
std::string GetInterpreter(const std::string& path, const std::string& search_path) {
  std::ifstream file(path);
  std::string line(kFirstLineBytesMax, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  if (!line.starts_with("#!")) return "";
  std::istringstream words(line.substr(2, line.find('\n') - 2));
  std::string interpreter, argument;
  words >> interpreter >> argument;
  return interpreter.ends_with("/env") ? FindProgram(argument, search_path) : interpreter;
}

// Returns the script among Python's arguments, or an empty string if there is none or it cannot be
// determined.
std::string GetScript(std::span<char* const> arguments) {
  for (const char* argument : arguments) {
    const std::string_view text(argument);
    if (text == "-c" || text == "-m" || text == "-") return "";
    if (!text.starts_with('-')) return argument;
  }
  return "";
}

void Append(Findings& findings, const Findings& more) {
  findings.insert(findings.end(), more.begin(), more.end());
}

Findings CheckPython(const std::string& python, const std::string& script) {
  const std::set<std::string> imported =
      script.empty() ? std::set<std::string>() : ImportedBy(script);
  Findings findings;
  if (!script.empty() && CallsRuntime(script)) {
    findings.push_back(Problem("package",
                               script + " calls NVIDIA's CUDA runtime through cuda.bindings, which "
                                        "only NVIDIA's driver can serve",
                               "call the driver's interface (cuda.bindings.driver, cuda.core)"));
  }
  for (const std::string& directory : PackageDirectories(python)) {
    Append(findings, CheckPackages(directory, imported));
  }
  if (findings.empty()) {
    findings.push_back(Ok("packages", "no package of " + python + " has NVIDIA's runtime in it"));
  }
  return findings;
}

Findings CheckLinked(const std::string& program, const ProgramEnvironment& environment) {
  Findings findings;
  const LinkedFiles linked = FindLinkedFiles(program, environment.library_path);
  bool has_runtime = false;
  for (const std::string& path : linked.paths) {
    if (HasCudaRuntime(path)) {
      has_runtime = true;
      findings.push_back(
          Problem("runtime",
                  path + " has NVIDIA's CUDA runtime in it, which only NVIDIA's driver can "
                         "serve",
                  "link the program against the driver's interface (libcuda) instead of cudart"));
    }
    Append(findings, CheckKernels(path, environment.takes_ptx_only));
  }
  if (!has_runtime) {
    findings.push_back(Ok("runtime", "none of the program's " +
                                         std::to_string(linked.paths.size()) +
                                         " files has NVIDIA's CUDA runtime in it"));
  }
  for (const std::string& name : linked.missing) {
    findings.push_back(Note("libraries", name + " was not found", "the loader may still find it"));
  }
  return findings;
}

}  // namespace

Findings CheckProgram(std::span<char* const> command, const ProgramEnvironment& environment) {
  const std::string found = FindProgram(command[0], environment.search_path);
  if (found.empty()) {
    return {Problem("program", "there is no program '" + std::string(command[0]) + "'",
                    "give its path")};
  }
  std::string script;
  std::string binary = GetInterpreter(found, environment.search_path);
  if (binary.empty()) {
    binary = found;
    if (IsPython(found)) script = GetScript(command.subspan(1));
  } else {
    script = found;
  }
  Findings findings;
  if (const std::string why = WhyNotSeen(binary); !why.empty()) {
    findings.push_back(Problem("program", binary + " will not use the shared device: " + why,
                               "use a build that loads libcuda.so.1"));
  } else if (!ElfFile(binary).IsElf64()) {
    findings.push_back(Note("program",
                            binary + " is neither a 64-bit program nor a script that "
                                     "names its interpreter",
                            "run doctor on the program that it starts"));
    return findings;
  } else {
    findings.push_back(Ok("program", binary + " will find the drop-in as its driver"));
  }
  if (binary != found && !IsPython(binary)) {
    findings.push_back(Note("program", found + " is a script of " + binary,
                            "run doctor on the program that it starts"));
  }
  if (environment.is_gated) {
    findings.push_back(Ok("runtime",
                          "the installed driver executes the program's work, so that it may use "
                          "NVIDIA's runtime and machine code"));
    return findings;
  }
  Append(findings, CheckLinked(binary, environment));
  if (IsPython(binary)) Append(findings, CheckPython(binary, script));
  return findings;
}

}  // namespace gpushared::server::doctor
