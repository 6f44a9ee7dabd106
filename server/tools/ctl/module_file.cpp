// SPDX-License-Identifier: Apache-2.0
#include "server/tools/ctl/module_file.h"

#include <elf.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "common/ptx/text/fatbin.h"

namespace gpushared::server {
namespace {

using Bytes = std::span<const std::byte>;

// Header as nvcc writes it: magic, version, header size, size of the contents.
constexpr std::uint32_t kFatbinMagic = 0xBA55ED50;
constexpr std::size_t kFatbinHeaderBytes = 16;
constexpr std::size_t kFatbinAlignment = 8;
// Sections of linked programs, and of relocatable device code (nvcc -rdc=true).
constexpr std::string_view kSectionName = ".nv_fatbin";
constexpr std::string_view kRelocatableSectionName = "__nv_relfatbin";
constexpr std::uint16_t kCudaMachine = 190;  // EM_CUDA, used by cubins.
constexpr std::string_view kArchiveMagic = "!<arch>\n";

template <typename T>
T Load(Bytes bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string Hex(std::size_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%zx", value);
  return text;
}

Status Broken(const std::string& what) { return {StatusCode::kInvalidArgument, "elf: " + what}; }

bool IsElf(Bytes file) {
  return file.size() >= SELFMAG && std::memcmp(file.data(), ELFMAG, SELFMAG) == 0;
}

// Returns true if the file contains [offset, offset + bytes).
bool Contains(Bytes file, std::uint64_t offset, std::uint64_t bytes) {
  return offset <= file.size() && bytes <= file.size() - offset;
}

bool IsArchive(Bytes file) {
  return file.size() >= kArchiveMagic.size() &&
         std::memcmp(file.data(), kArchiveMagic.data(), kArchiveMagic.size()) == 0;
}

bool IsCubin(Bytes file) {
  return file.size() >= sizeof(Elf64_Ehdr) && Load<Elf64_Ehdr>(file, 0).e_machine == kCudaMachine;
}

// Returns true if the section name is at `offset` in the string table.
bool IsNamed(Bytes names, std::uint64_t offset, std::string_view name) {
  return offset < names.size() && names.size() - offset > name.size() &&
         std::memcmp(names.data() + offset, name.data(), name.size()) == 0 &&
         names[offset + name.size()] == std::byte{0};
}

// Returns the section of this name; empty if there is none.
Result<Bytes> FindSection(Bytes file, std::string_view wanted) {
  if (file.size() < sizeof(Elf64_Ehdr)) return Broken("header is cut off");
  const auto header = Load<Elf64_Ehdr>(file, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return Broken("not a 64-bit file");
  if (header.e_shnum == 0) return Bytes{};
  if (header.e_shentsize != sizeof(Elf64_Shdr) ||
      !Contains(file, header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)) ||
      header.e_shstrndx >= header.e_shnum) {
    return Broken("section headers at offset " + Hex(header.e_shoff) + " lie outside the file");
  }
  const auto section = [&](std::size_t index) {
    return Load<Elf64_Shdr>(file, header.e_shoff + index * sizeof(Elf64_Shdr));
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  if (!Contains(file, names.sh_offset, names.sh_size)) return Broken("section names are cut off");
  const Bytes text = file.subspan(names.sh_offset, names.sh_size);
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr candidate = section(i);
    if (!IsNamed(text, candidate.sh_name, wanted)) continue;
    if (!Contains(file, candidate.sh_offset, candidate.sh_size)) {
      return Broken("section " + std::string(wanted) + " is cut off");
    }
    return file.subspan(candidate.sh_offset, candidate.sh_size);
  }
  return Bytes{};
}

// In machine code, each kernel has a section whose name begins with kCodeSection. A fatbin of at
// most kStubBytesMax may be the linker's stub. Only larger code is compressed by nvcc, so the names
// of the sections can be searched for.
constexpr std::size_t kStubBytesMax = 2048;
constexpr std::string_view kCodeSection = ".text.";
bool IsStub(Bytes fatbin) {
  const std::string_view text(reinterpret_cast<const char*>(fatbin.data()), fatbin.size());
  return fatbin.size() <= kStubBytesMax && text.find(kCodeSection) == std::string_view::npos;
}

// Fatbins are stored consecutively, aligned and zero-padded.
Result<std::vector<FoundModule>> ModulesOfSection(Bytes file, Bytes section) {
  std::vector<FoundModule> modules;
  const std::size_t begin = static_cast<std::size_t>(section.data() - file.data());
  for (std::size_t at = 0; at + kFatbinHeaderBytes <= section.size();) {
    if (Load<std::uint32_t>(section, at) != kFatbinMagic) {
      at += kFatbinAlignment;
      continue;
    }
    const std::string place = "fatbin at offset " + Hex(begin + at);
    const std::uint64_t bytes =
        Load<std::uint16_t>(section, at + 6) + Load<std::uint64_t>(section, at + 8);
    if (bytes < kFatbinHeaderBytes || bytes > section.size() - at) {
      return Broken(place + ": invalid size of " + std::to_string(bytes) + " bytes, " +
                    std::to_string(section.size() - at) + " remain");
    }
    if (modules.size() == kModulesPerFileMax) {
      return Status(StatusCode::kLimitExceeded,
                    "elf: more than " + std::to_string(kModulesPerFileMax) + " fatbins");
    }
    const Bytes fatbin = section.subspan(at, bytes);
    Result<std::string> text = ptx::ExtractPtx(fatbin);
    const bool is_stub = !text.ok() && IsStub(fatbin);
    modules.push_back({place, std::move(text), is_stub});
    at += (bytes + kFatbinAlignment - 1) / kFatbinAlignment * kFatbinAlignment;
  }
  return modules;
}

std::vector<FoundModule> Without(const std::string& why) {
  return {{"file", Status(StatusCode::kUnsupported, why)}};
}

}  // namespace

Result<std::vector<FoundModule>> FindModules(Bytes file) {
  if (IsElf(file)) {
    for (const std::string_view name : {kSectionName, kRelocatableSectionName}) {
      const Result<Bytes> section = FindSection(file, name);
      if (!section) return section.status();
      if (!section->empty()) return ModulesOfSection(file, *section);
    }
    if (!IsCubin(file)) return Without("elf: nvcc left no kernels here (no section .nv_fatbin)");
    // For a cubin, the error below explains how to build its kernels with PTX.
  }
  if (IsArchive(file)) return Without("archive: extract its members with 'ar x' to check them");
  Result<std::string> text = ptx::ExtractPtx(file);
  if (!text && text.status().code() != StatusCode::kUnsupported) return text.status();
  std::vector<FoundModule> modules;
  modules.push_back({"file", std::move(text)});
  return modules;
}

Result<std::vector<std::byte>> ReadWholeFile(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) return Status(StatusCode::kNotFound, error.message());
  if (bytes > kModuleFileBytesMax) {
    return Status(StatusCode::kLimitExceeded, std::to_string(bytes) + " bytes, allowed: " +
                                                  std::to_string(kModuleFileBytesMax));
  }
  std::vector<std::byte> content(static_cast<std::size_t>(bytes));
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(bytes))) {
    return Status(StatusCode::kInvalidArgument, "cannot be read");
  }
  return content;
}

}  // namespace gpushared::server
