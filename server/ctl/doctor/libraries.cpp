// SPDX-License-Identifier: Apache-2.0
#include "server/ctl/doctor/libraries.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "ipc/unique_fd.h"
#include "server/ctl/module_file.h"
#include "server/run/elf_file.h"
#include "server/run/program_file.h"

namespace gpushared::server::doctor {
namespace {

constexpr std::size_t kFilesMax = 1024;
constexpr std::size_t kConfigLinesMax = 4096;
// Larger files are searched for the runtime, but not read for their kernels.
constexpr std::uintmax_t kKernelFileBytesMax = std::uintmax_t{512} << 20;

// Of the private table that NVIDIA's runtime asks first: 6bd5fb6c-5bf4-e74a-8987-d93912fd9df9.
constexpr unsigned char kRuntimeTable[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                             0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

bool IsFile(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

// The folders of /etc/ld.so.conf.d, then those that need no configuration.
std::vector<std::string> UsualFolders() {
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/etc/ld.so.conf.d", error)) {
    std::ifstream file(entry.path());
    std::string line;
    for (std::size_t i = 0; i < kConfigLinesMax && std::getline(file, line); ++i) {
      if (line.starts_with('/')) folders.push_back(line);
    }
  }
  for (const char* folder : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64",
                             "/usr/lib64", "/lib", "/usr/lib"}) {
    folders.emplace_back(folder);
  }
  return folders;
}

std::string FindIn(const std::string& name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    // The loader passes over those of other machines, too.
    if (const std::string path = folder + "/" + name; ElfFile(path).IsElf64()) return path;
  }
  return "";
}

// Where the loader would look for what this file needs.
std::vector<std::string> FoldersOf(const ElfFile& file, const std::string& path,
                                   const std::string& library_path,
                                   const std::vector<std::string>& usual) {
  std::vector<std::string> folders;
  const auto add = [&](const std::string& list) {
    ForEachPart(list, [&](std::string_view part) {
      if (!part.empty()) folders.push_back(WithOrigin(part, path));
    });
  };
  const std::string run_path = file.DynamicText(DT_RUNPATH);
  if (run_path.empty()) add(file.DynamicText(DT_RPATH));
  add(library_path);
  add(run_path);
  folders.insert(folders.end(), usual.begin(), usual.end());
  return folders;
}

}  // namespace

LinkedFiles FindLinkedFiles(const std::string& program, const std::string& library_path) {
  const std::vector<std::string> usual = UsualFolders();
  LinkedFiles found{.paths = {program}, .missing = {}};
  std::set<std::string> seen;
  for (std::size_t i = 0; i < found.paths.size(); ++i) {
    const std::string path = found.paths[i];
    const ElfFile file(path);
    if (!file.IsElf64()) continue;
    const std::vector<std::string> folders = FoldersOf(file, path, library_path, usual);
    for (const std::string& name : file.DynamicTexts(DT_NEEDED)) {
      if (name.starts_with("libcuda.so") || !seen.insert(name).second) continue;
      const std::string library =
          name.find('/') != std::string::npos ? name : FindIn(name, folders);
      if (library.empty()) {
        found.missing.push_back(name);
      } else if (found.paths.size() < kFilesMax) {
        found.paths.push_back(library);
      }
    }
  }
  return found;
}

bool HasCudaRuntime(const std::string& path) {
  const ipc::UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() || !IsFile(path)) return false;
  constexpr std::size_t kOverlap = sizeof kRuntimeTable - 1;
  std::vector<char> window(kOverlap + (1u << 20));
  std::size_t held = 0;
  for (;;) {
    const ssize_t got = ::read(file.get(), window.data() + held, window.size() - held);
    if (got <= 0) return false;
    held += static_cast<std::size_t>(got);
    if (::memmem(window.data(), held, kRuntimeTable, sizeof kRuntimeTable) != nullptr) return true;
    const std::size_t kept = std::min(held, kOverlap);
    std::copy_n(window.data() + held - kept, kept, window.data());
    held = kept;
  }
}

Findings LookAtKernels(const std::string& path, bool takes_ptx_only) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return {};
  if (bytes > kKernelFileBytesMax) {
    return {
        Note("kernels",
             path + " has " + std::to_string(bytes >> 20) + " MiB, too many to be read for kernels",
             "ask 'gpusharedctl ptx check' about it")};
  }
  const Result<std::vector<std::byte>> content = ReadWholeFile(path);
  if (!content.ok()) return {};
  const Result<std::vector<FoundModule>> modules = FindModules(*content);
  if (!modules.ok()) {
    return {Problem("kernels", path + " is broken: " + modules.status().message(),
                    "build or install it again")};
  }
  // A file without kernels is told as one module of its own.
  const auto has_kernels = [](const FoundModule& module) {
    return module.place != "file" && !module.is_stub;
  };
  const auto count = std::ranges::count_if(*modules, has_kernels);
  if (count == 0) return {};
  const auto without = std::ranges::count_if(
      *modules, [&](const FoundModule& it) { return has_kernels(it) && !it.ptx.ok(); });
  const std::string share = std::to_string(without) + " of " + std::to_string(count);
  if (without == 0) {
    return {Ok("kernels", path + " has PTX for all of its " + std::to_string(count) + " modules")};
  }
  const std::string advice =
      "build it with PTX, for example -gencode arch=compute_75,code=compute_75";
  return {takes_ptx_only
              ? Problem("kernels", path + ": " + share + " modules are machine code without PTX",
                        advice)
              : Note("kernels",
                     path + ": " + share +
                         " modules are machine code without PTX, which runs on GPUs and for "
                         "clients of the server's user alone",
                     advice)};
}

}  // namespace gpushared::server::doctor
