// SPDX-License-Identifier: Apache-2.0
// Finds the PTX modules in a file.

#ifndef GPUSHARED_SERVER_TOOLS_CTL_MODULE_FILE_H_
#define GPUSHARED_SERVER_TOOLS_CTL_MODULE_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gpushared/result.h"

namespace gpushared::server {

// Files larger than this are rejected.
inline constexpr std::size_t kModuleFileBytesMax = std::size_t{2} << 30;
// Modules (source files, as nvcc links them) that one executable may hold.
inline constexpr std::size_t kModulesPerFileMax = 65536;

// One module of a file: its PTX text, or why there is none.
struct FoundModule {
  std::string place;  // "file", or "fatbin at offset 0x1f80"
  Result<std::string> ptx;
  // It has no kernel: nvcc's linker leaves such machine code in every program.
  bool is_stub = false;
};

// Finds modules in PTX text, a fatbin, or an ELF file (executable, shared object, object). An ELF
// file has fatbins in its section .nv_fatbin, or else in __nv_relfatbin. Each fatbin gives the PTX
// of its newest architecture. kInvalidArgument, with the offset, for other or broken files.
Result<std::vector<FoundModule>> FindModules(std::span<const std::byte> file);

// kNotFound, kInvalidArgument or kLimitExceeded, without the path, when it cannot be read.
Result<std::vector<std::byte>> ReadWholeFile(const std::string& path);

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_CTL_MODULE_FILE_H_
