// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_CTL_ELF_WITH_H_
#define GPUSHARED_TESTS_CTL_ELF_WITH_H_

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace gpushared::testing {

inline std::vector<std::byte> GetBytes(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

// Returns an ELF file with a section of this name that contains `content`.
inline std::vector<std::byte> ElfWith(const std::vector<std::byte>& content,
                                      std::uint64_t section_bytes,
                                      const std::string& section = ".nv_fatbin") {
  const std::string names = '\0' + section + '\0' + ".names" + '\0';
  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  Elf64_Shdr sections[3] = {};
  const std::size_t content_at = sizeof header + sizeof sections;
  header.e_shoff = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 3;
  header.e_shstrndx = 2;
  sections[1].sh_name = 1;
  sections[1].sh_offset = content_at;
  sections[1].sh_size = section_bytes;
  sections[2].sh_name = static_cast<std::uint32_t>(section.size()) + 2;
  sections[2].sh_offset = content_at + content.size();
  sections[2].sh_size = names.size();
  std::vector<std::byte> file(content_at);
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + sizeof header, sections, sizeof sections);
  file.insert(file.end(), content.begin(), content.end());
  const auto text = GetBytes(names);
  file.insert(file.end(), text.begin(), text.end());
  return file;
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_CTL_ELF_WITH_H_
