// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_TOOLS_RUN_ELF_FILE_H_
#define GPUSHARED_SERVER_TOOLS_RUN_ELF_FILE_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/unique_fd.h"

namespace gpushared::server {

// Reader of ELF files. The file belongs to the user, so every number in it is untrusted. Reads only
// the requested parts, because a file may be gigabytes long.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path);

  bool IsElf64() const;
  // The following functions require IsElf64().
  std::optional<Elf64_Phdr> Segment(std::uint32_t type) const;
  // Returns the string of a dynamic entry; empty if there is no such entry.
  std::string DynamicText(std::int64_t tag) const;
  // Returns the strings of all dynamic entries with this tag, at most kTextsMax.
  std::vector<std::string> DynamicTexts(std::int64_t tag) const;
  static constexpr std::size_t kTextsMax = 512;

 private:
  std::size_t Read(std::uint64_t offset, char* to, std::size_t bytes) const;
  template <typename Part>
  std::optional<Part> At(std::uint64_t offset) const;
  std::optional<std::uint64_t> FileOffset(std::uint64_t address) const;

  const ipc::UniqueFd file_;
};

}  // namespace gpushared::server

#endif  // GPUSHARED_SERVER_TOOLS_RUN_ELF_FILE_H_
