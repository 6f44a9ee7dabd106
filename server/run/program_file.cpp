// SPDX-License-Identifier: Apache-2.0
#include "server/run/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "ipc/unique_fd.h"

namespace gpushared::server {
namespace {

// Of a text in a program; longer ones are cut. Search paths are shorter.
constexpr std::size_t kTextBytesMax = 16384;

template <typename Call>
void ForEachPart(std::string_view list, const Call& call) {
  while (true) {
    const std::size_t colon = std::min(list.find(':'), list.size());
    call(list.substr(0, colon));
    if (colon == list.size()) return;
    list.remove_prefix(colon + 1);
  }
}

// Reads what it is asked for alone: a program may be gigabytes long.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

  bool IsElf64() const {
    const auto header = At<Elf64_Ehdr>(0);
    return header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_ident[EI_CLASS] == ELFCLASS64;
  }
  std::optional<Elf64_Phdr> Segment(std::uint32_t type) const {
    const Elf64_Ehdr header = *At<Elf64_Ehdr>(0);
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      const auto segment = At<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
      if (segment && segment->p_type == type) return segment;
    }
    return std::nullopt;
  }
  // The text of a dynamic entry; empty when there is none.
  std::string DynamicText(std::int64_t tag) const {
    const auto dynamic = Segment(PT_DYNAMIC);
    if (!dynamic) return "";
    std::optional<std::uint64_t> offset, table;
    for (std::uint64_t at = 0; at < dynamic->p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = At<Elf64_Dyn>(dynamic->p_offset + at);
      if (!entry || entry->d_tag == DT_NULL) break;
      if (entry->d_tag == tag) offset = entry->d_un.d_val;
      if (entry->d_tag == DT_STRTAB) table = FileOffset(entry->d_un.d_ptr);
    }
    if (!offset || !table) return "";
    std::array<char, kTextBytesMax> text;
    const std::size_t got = Read(*table + *offset, text.data(), text.size());
    return {text.data(), ::strnlen(text.data(), got)};
  }

 private:
  std::size_t Read(std::uint64_t offset, char* to, std::size_t bytes) const {
    if (offset > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return 0;
    const ssize_t got = ::pread(file_.get(), to, bytes, static_cast<off_t>(offset));
    return got < 0 ? 0 : static_cast<std::size_t>(got);
  }
  template <typename Part>
  std::optional<Part> At(std::uint64_t offset) const {
    std::array<char, sizeof(Part)> bytes;
    if (Read(offset, bytes.data(), bytes.size()) != bytes.size()) return std::nullopt;
    Part part;
    std::memcpy(&part, bytes.data(), sizeof part);
    return part;
  }
  std::optional<std::uint64_t> FileOffset(std::uint64_t address) const {
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

  const ipc::UniqueFd file_;
};

// A folder of the program's own that holds a libcuda; DT_RPATH goes before LD_LIBRARY_PATH, unlike
// DT_RUNPATH.
std::string FolderInFront(const ElfFile& file, const std::string& path) {
  if (!file.DynamicText(DT_RUNPATH).empty()) return "";
  std::string found;
  ForEachPart(file.DynamicText(DT_RPATH), [&](std::string_view part) {
    std::string folder(part);
    for (const char* origin : {"${ORIGIN}", "$ORIGIN"}) {
      const std::size_t at = folder.find(origin);
      if (at != std::string::npos) {
        folder.replace(at, std::strlen(origin), path.substr(0, path.rfind('/')));
      }
    }
    if (found.empty() && ::access((folder + "/libcuda.so.1").c_str(), F_OK) == 0) found = folder;
  });
  return found;
}

}  // namespace

std::string FindProgram(const std::string& program, const std::string& search_path) {
  const auto is_program = [](const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) &&
           ::access(path.c_str(), X_OK) == 0;
  };
  if (program.find('/') != std::string::npos) return is_program(program) ? program : "";
  std::string found;
  ForEachPart(search_path, [&](std::string_view folder) {
    const std::string path = (folder.empty() ? "." : std::string(folder)) + "/" + program;
    if (found.empty() && is_program(path)) found = path;
  });
  return found;
}

std::string WhyNotSeen(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return "";
  if ((facts.st_mode & (S_ISUID | S_ISGID)) != 0) {
    return "it changes its user or group, so the loader passes over LD_LIBRARY_PATH";
  }
  const ElfFile file(path);
  if (!file.IsElf64()) return "";  // A script: its interpreter is found by the system.
  if (!file.Segment(PT_INTERP)) return "it is statically linked, so it loads no libcuda.so.1";
  const std::string folder = FolderInFront(file, path);
  if (!folder.empty()) return "its RPATH names " + folder + ", which has a libcuda.so.1 of its own";
  return "";
}

}  // namespace gpushared::server
