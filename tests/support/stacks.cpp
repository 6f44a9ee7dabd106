// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stacks.h"

#include <filesystem>
#include <sstream>
#include <system_error>

#include "tests/support/read_file.h"
#include "tests/support/server_process.h"

namespace gpushared::testing {
namespace {

constexpr const char* kGdb = "/usr/bin/gdb";

// Returns the contents of one file of /proc under its name, if the kernel allows it.
std::string Section(const std::filesystem::path& directory, const std::string& name) {
  const std::string text = ReadFile(directory / name);
  if (text.empty()) return {};
  return name + ": " + text + (text.ends_with('\n') ? "" : "\n");
}

// Returns the state of a process (running, waiting, stopped), and its pending and blocked signals.
std::string StateAndSignals(const std::filesystem::path& process) {
  std::istringstream status(ReadFile(process / "status"));
  std::string text, line;
  while (std::getline(status, line)) {
    const bool says_it = line.starts_with("State") || line.starts_with("Sig") ||
                         line.starts_with("ShdPnd") || line.starts_with("TracerPid");
    if (says_it) text += line + "\n";
  }
  return text;
}

std::string OpenFiles(const std::filesystem::path& process) {
  std::string files;
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(process / "fd", error)) {
    std::error_code gone;
    files += "fd " + each.path().filename().string() + ": " +
             std::filesystem::read_symlink(each.path(), gone).string() + "\n";
  }
  return files;
}

}  // namespace

std::string Stacks(pid_t pid) {
  const std::filesystem::path process = "/proc/" + std::to_string(pid);
  std::string text = "--- process " + std::to_string(pid) + "\n" + StateAndSignals(process);
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator(process / "task", error)) {
    text += "- thread " + thread.path().filename().string() + "\n";
    // schedstat has the ns for which the thread ran and waited for a core, which distinguish a
    // thread that spins from one that got no core.
    for (const char* file : {"comm", "stat", "schedstat", "wchan", "syscall", "stack"}) {
      text += Section(thread.path(), file);
    }
  }
  text += OpenFiles(process);
  if (!std::filesystem::exists(kGdb)) return text;
  // gdb may hang, because it cannot attach to a process that is blocked in the kernel, hence the
  // time limit.
  const ProgramOutcome gdb =
      RunProgram({"/usr/bin/timeout", "-k", "5", "30", kGdb, "-p", std::to_string(pid), "-nx",
                  "-batch", "-iex", "set debuginfod enabled off", "-ex", "thread apply all bt"});
  return text + gdb.output;
}

}  // namespace gpushared::testing
