// SPDX-License-Identifier: Apache-2.0
#include "server/tools/run/program_file.h"

#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "server/tools/run/elf_file.h"

namespace gpushared::server {
namespace {

// Returns a directory that the program searches first and that contains a libcuda. Only DT_RPATH
// matters, because DT_RUNPATH comes after LD_LIBRARY_PATH.
std::string DirectoryInFront(const ElfFile& file, const std::string& path) {
  if (!file.DynamicText(DT_RUNPATH).empty()) return "";
  std::string found;
  ForEachPart(file.DynamicText(DT_RPATH), [&](std::string_view part) {
    const std::string directory = WithOrigin(part, path);
    if (found.empty() && ::access((directory + "/libcuda.so.1").c_str(), F_OK) == 0)
      found = directory;
  });
  return found;
}

}  // namespace

void ForEachPart(std::string_view list, const std::function<void(std::string_view)>& call) {
  while (true) {
    const std::size_t colon = std::min(list.find(':'), list.size());
    call(list.substr(0, colon));
    if (colon == list.size()) return;
    list.remove_prefix(colon + 1);
  }
}

std::string WithOrigin(std::string_view directory, const std::string& path) {
  std::string with(directory);
  for (const char* origin : {"${ORIGIN}", "$ORIGIN"}) {
    const std::size_t at = with.find(origin);
    if (at != std::string::npos) {
      with.replace(at, std::strlen(origin), path.substr(0, path.rfind('/')));
    }
  }
  return with;
}

std::string FindProgram(const std::string& program, const std::string& search_path) {
  const auto is_program = [](const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
  };
  if (program.find('/') != std::string::npos) return is_program(program) ? program : "";
  std::string found;
  ForEachPart(search_path, [&](std::string_view directory) {
    const std::string path = (directory.empty() ? "." : std::string(directory)) + "/" + program;
    if (found.empty() && is_program(path)) found = path;
  });
  return found;
}

bool NeedsAsan(const std::string& path) {
  const ElfFile file(path);
  if (!file.IsElf64()) return false;
  // Names used by GCC and Clang.
  const std::vector<std::string> needed = file.DynamicTexts(DT_NEEDED);
  return std::ranges::any_of(needed, [](const std::string& library) {
    return library.starts_with("libasan.so") || library.starts_with("libclang_rt.asan");
  });
}

std::string WhyNotSeen(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return "";
  if ((facts.st_mode & (S_ISUID | S_ISGID)) != 0) {
    return "it changes its user or group, so the loader ignores LD_LIBRARY_PATH";
  }
  const ElfFile file(path);
  if (!file.IsElf64()) return "";  // Possibly a script, whose interpreter the kernel finds.
  if (!file.Segment(PT_INTERP)) return "it is statically linked, so it loads no libcuda.so.1";
  const std::string directory = DirectoryInFront(file, path);
  if (!directory.empty())
    return "its RPATH names " + directory + ", which has a libcuda.so.1 of its own";
  return "";
}

}  // namespace gpushared::server
