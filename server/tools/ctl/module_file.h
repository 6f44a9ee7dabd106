// SPDX-License-Identifier: Apache-2.0
// Extracts the PTX modules of a file.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_MODULE_FILE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_MODULE_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server {

// Larger files are rejected.
inline constexpr std::size_t kModuleFileBytesMax = std::size_t{2} << 30;
// Maximum number of modules (source files, as linked by nvcc) in one executable.
inline constexpr std::size_t kModulesPerFileMax = 65536;

// One module of a file: its PTX, or why there is none.
struct FoundModule {
  std::string place;  // Place of the module: "file", or "fatbin at offset 0x1f80".
  Result<std::string> ptx;
  // Whether it has no kernel; nvcc's linker adds such machine code to every program.
  bool is_stub = false;
};

// Finds modules in PTX text, a fatbin, or an ELF file (executable, shared object, object). An ELF
// file stores fatbins in its section .nv_fatbin, or else in __nv_relfatbin. Each fatbin yields the
// PTX of its newest architecture. An archive, or an ELF file without kernels, is reported as a
// single module with kUnsupported. Malformed files and files of other formats return
// kInvalidArgument.
Result<std::vector<FoundModule>> FindModules(std::span<const std::byte> file);

// Returns kNotFound, kInvalidArgument or kLimitExceeded, without the path, if the file cannot be
// read.
Result<std::vector<std::byte>> ReadWholeFile(const std::string& path);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_MODULE_FILE_H_
