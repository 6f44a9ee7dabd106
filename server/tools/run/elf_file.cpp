// SPDX-License-Identifier: Apache-2.0
#include "server/tools/run/elf_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <limits>

namespace gpushared::server {
namespace {

// Limit on a string of a program; longer ones are truncated. Search paths are shorter.
constexpr std::size_t kTextBytesMax = 16384;

}  // namespace

ElfFile::ElfFile(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

std::size_t ElfFile::Read(std::uint64_t offset, char* to, std::size_t bytes) const {
  if (offset > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return 0;
  const ssize_t got = ::pread(file_.get(), to, bytes, static_cast<off_t>(offset));
  return got < 0 ? 0 : static_cast<std::size_t>(got);
}

template <typename Part>
std::optional<Part> ElfFile::At(std::uint64_t offset) const {
  std::array<char, sizeof(Part)> bytes;
  if (Read(offset, bytes.data(), bytes.size()) != bytes.size()) return std::nullopt;
  Part part;
  std::memcpy(&part, bytes.data(), sizeof part);
  return part;
}

bool ElfFile::IsElf64() const {
  const auto header = At<Elf64_Ehdr>(0);
  return header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
         header->e_ident[EI_CLASS] == ELFCLASS64;
}

std::optional<Elf64_Phdr> ElfFile::Segment(std::uint32_t type) const {
  const Elf64_Ehdr header = *At<Elf64_Ehdr>(0);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto segment = At<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment && segment->p_type == type) return segment;
  }
  return std::nullopt;
}

std::string ElfFile::DynamicText(std::int64_t tag) const {
  const std::vector<std::string> texts = DynamicTexts(tag);
  return texts.empty() ? "" : texts.back();
}

std::vector<std::string> ElfFile::DynamicTexts(std::int64_t tag) const {
  const auto dynamic = Segment(PT_DYNAMIC);
  if (!dynamic) return {};
  std::vector<std::uint64_t> offsets;
  std::optional<std::uint64_t> table;
  for (std::uint64_t at = 0; at < dynamic->p_filesz; at += sizeof(Elf64_Dyn)) {
    const auto entry = At<Elf64_Dyn>(dynamic->p_offset + at);
    if (!entry || entry->d_tag == DT_NULL) break;
    if (entry->d_tag == tag && offsets.size() < kTextsMax) offsets.push_back(entry->d_un.d_val);
    if (entry->d_tag == DT_STRTAB) table = FileOffset(entry->d_un.d_ptr);
  }
  if (!table) return {};
  std::vector<std::string> texts;
  for (const std::uint64_t offset : offsets) {
    std::array<char, kTextBytesMax> text;
    const std::size_t got = Read(*table + offset, text.data(), text.size());
    texts.emplace_back(text.data(), ::strnlen(text.data(), got));
  }
  return texts;
}

std::optional<std::uint64_t> ElfFile::FileOffset(std::uint64_t address) const {
  const Elf64_Ehdr header = *At<Elf64_Ehdr>(0);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto segment = At<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment && segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
        address - segment->p_vaddr < segment->p_filesz) {
      return segment->p_offset + (address - segment->p_vaddr);
    }
  }
  return std::nullopt;
}

}  // namespace gpushared::server
