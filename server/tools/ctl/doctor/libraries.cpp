// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/doctor/libraries.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>

#include "ipc/loader_paths.h"
#include "ipc/unique_fd.h"
#include "server/tools/ctl/module_file.h"
#include "server/tools/run/elf_file.h"
#include "server/tools/run/program_file.h"

namespace gpushared::server::doctor {
namespace {

constexpr std::size_t kFilesMax = 1024;
// Larger files are searched for the runtime, but their kernels are not read.
constexpr std::uintmax_t kKernelFileBytesMax = std::uintmax_t{512} << 20;

// UUIDs of the driver's private tables that NVIDIA's runtime and cuFFT require:
// 6bd5fb6c-5bf4-e74a-8987-d93912fd9df9 and 21318c60-9714-3248-8ca6-41ff7324c8f2.
constexpr unsigned char kNeededTables[2][16] = {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9},
                                                {0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48,
                                                 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8, 0xf2}};

bool IsFile(const std::string& path) {
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

// Returns the first path that is a 64-bit ELF file, or "". The loader also skips 32-bit libraries.
std::string FirstLibrary(const std::vector<std::string>& paths) {
  const auto found =
      std::ranges::find_if(paths, [](const std::string& path) { return ElfFile(path).IsElf64(); });
  return found == paths.end() ? "" : *found;
}

// Lists the directories named by this file and by LD_LIBRARY_PATH, in the loader's order.
std::vector<std::string> NamedDirectories(const ElfFile& file, const std::string& path,
                                          const std::string& library_path) {
  std::vector<std::string> directories;
  const auto add = [&](const std::string& list) {
    ForEachPart(list, [&](std::string_view part) {
      if (!part.empty()) directories.push_back(WithOrigin(part, path));
    });
  };
  const std::string run_path = file.DynamicText(DT_RUNPATH);
  if (run_path.empty()) add(file.DynamicText(DT_RPATH));
  add(library_path);
  add(run_path);
  return directories;
}

}  // namespace

LinkedFiles FindLinkedFiles(const std::string& program, const std::string& library_path) {
  const auto installed = ipc::LoaderPaths::OfThisMachine();
  LinkedFiles found{.paths = {program}, .missing = {}};
  std::set<std::string> seen;
  for (std::size_t i = 0; i < found.paths.size(); ++i) {
    const std::string path = found.paths[i];
    const ElfFile file(path);
    if (!file.IsElf64()) continue;
    const std::vector<std::string> directories = NamedDirectories(file, path, library_path);
    for (const std::string& name : file.DynamicTexts(DT_NEEDED)) {
      if (name.starts_with("libcuda.so") || !seen.insert(name).second) continue;
      std::vector<std::string> paths;
      if (name.find('/') != std::string::npos) {
        paths.push_back(name);
      } else {
        for (const std::string& directory : directories)
          paths.push_back(std::filesystem::path(directory) / name);
        std::ranges::move(installed.GetPaths(name), std::back_inserter(paths));
      }
      const std::string library = FirstLibrary(paths);
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
  constexpr std::size_t kOverlap = sizeof kNeededTables[0] - 1;
  std::vector<char> window(kOverlap + (1u << 20));
  std::size_t held = 0;
  for (;;) {
    const ssize_t got = ::read(file.get(), window.data() + held, window.size() - held);
    if (got <= 0) return false;
    held += static_cast<std::size_t>(got);
    const auto names = [&](const auto& table) {
      return ::memmem(window.data(), held, table, sizeof table) != nullptr;
    };
    if (std::ranges::any_of(kNeededTables, names)) return true;
    const std::size_t kept = std::min(held, kOverlap);
    std::copy_n(window.data() + held - kept, kept, window.data());
    held = kept;
  }
}

Findings CheckKernels(const std::string& path, bool takes_ptx_only) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return {};
  if (bytes > kKernelFileBytesMax) {
    return {Note(
        "kernels",
        path + " has " + std::to_string(bytes >> 20) + " MiB, too many to be searched for kernels",
        "check it with 'gpusharedctl ptx check'")};
  }
  const Result<std::vector<std::byte>> content = ReadWholeFile(path);
  if (!content.ok()) return {};
  const Result<std::vector<FoundModule>> modules = FindModules(*content);
  if (!modules.ok()) {
    return {Problem("kernels", path + " is broken: " + modules.status().message(),
                    "build or install it again")};
  }
  // Excludes files without kernels, which FindModules reports as a single module.
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
                         " modules are machine code without PTX, which runs on GPUs only, and "
                         "only for clients of the server's own user",
                     advice)};
}

}  // namespace gpushared::server::doctor
