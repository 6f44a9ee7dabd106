// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/object_file.h"

#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace gpushared::drop_in {
namespace {

// Relocatable device code, and complete device code.
constexpr std::string_view kFatbinSections[] = {"__nv_relfatbin", ".nv_fatbin"};
// Alignment of the fatbins in one section.
constexpr std::size_t kFatbinAlignment = 8;
constexpr std::uint32_t kFatbinMagic = 0xba55ed50;

struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t body_bytes;
};

template <typename Part>
std::optional<Part> PartAt(std::string_view bytes, std::uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Part)) return std::nullopt;
  Part part;
  std::memcpy(&part, bytes.data() + offset, sizeof part);
  return part;
}

// Returns the bytes of a section; empty if the file does not contain them.
std::string_view Contents(std::string_view object, const Elf64_Shdr& section) {
  const bool is_there = section.sh_type != SHT_NOBITS && section.sh_offset <= object.size() &&
                        section.sh_size <= object.size() - section.sh_offset;
  return is_there ? object.substr(section.sh_offset, section.sh_size) : std::string_view();
}

void AddFatbins(std::string_view section, std::vector<std::string_view>& fatbins) {
  while (const auto header = PartAt<FatbinHeader>(section, 0)) {
    if (header->magic != kFatbinMagic || header->header_bytes < sizeof(FatbinHeader) ||
        header->header_bytes > section.size() ||
        header->body_bytes > section.size() - header->header_bytes) {
      return;
    }
    const std::size_t bytes = header->header_bytes + header->body_bytes;
    fatbins.push_back(section.substr(0, bytes));
    const std::size_t padding = (kFatbinAlignment - bytes % kFatbinAlignment) % kFatbinAlignment;
    if (section.size() - bytes < padding) return;
    section.remove_prefix(bytes + padding);
  }
}

}  // namespace

std::vector<std::string_view> GetFatbins(std::string_view object) {
  std::vector<std::string_view> fatbins;
  const auto header = PartAt<Elf64_Ehdr>(object, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_X86_64) {
    return fatbins;
  }
  const auto section_at = [&](std::uint64_t index) -> std::optional<Elf64_Shdr> {
    if (header->e_shoff > object.size()) return std::nullopt;
    return PartAt<Elf64_Shdr>(object, header->e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto names = section_at(header->e_shstrndx);
  if (!names) return fatbins;
  const std::string_view texts = Contents(object, *names);
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto section = section_at(i);
    if (!section || section->sh_name >= texts.size()) continue;
    const std::string_view rest = texts.substr(section->sh_name);
    const std::string_view name = rest.substr(0, rest.find('\0'));
    for (const std::string_view wanted : kFatbinSections) {
      if (name == wanted) AddFatbins(Contents(object, *section), fatbins);
    }
  }
  return fatbins;
}

}  // namespace gpushared::drop_in
