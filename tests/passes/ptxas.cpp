// SPDX-License-Identifier: Apache-2.0
#include "tests/passes/ptxas.h"

#include <elf.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "tests/support/read_file.h"
#include "tests/support/scratch_directory.h"

namespace gpushared::testing {
namespace {

constexpr std::uint64_t kInstructionBytes = 16;  // Since sm_70.
constexpr std::uint64_t kOpcodeMask = 0xfff;
constexpr std::uint64_t kNop = 0x918, kBranch = 0x947, kUniformBranch = 0x547;
constexpr std::uint32_t kLoopsFrom = 90;  // First architecture whose branches are decoded.

std::string Ptxas() { return std::string(GPUSHARED_TEST_CUDA_BIN) + "/ptxas"; }

// Returns the number in front of `unit`, or after the last blank before it; 0 if there is none.
std::uint32_t NumberBefore(const std::string& line, std::string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == std::string::npos || at < 2) return 0;
  const std::size_t begin = line.find_last_of(' ', at - 2);
  return static_cast<std::uint32_t>(std::strtoul(line.c_str() + begin, nullptr, 10));
}

// Parses the report of `ptxas -v` about each kernel.
std::map<std::string, MachineCode> ReadReport(const std::string& report) {
  std::map<std::string, MachineCode> kernels;
  std::istringstream lines(report);
  std::string kernel;
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kCompiling = "Compiling entry function '";
    if (const std::size_t at = line.find(kCompiling); at != std::string::npos) {
      const std::size_t begin = at + kCompiling.size();
      kernel = line.substr(begin, line.find('\'', begin) - begin);
    }
    if (line.find("spill stores") != std::string::npos) {
      kernels[kernel].spilled_bytes = NumberBefore(line, " bytes spill stores");
    }
    if (line.find(" registers") != std::string::npos) {
      kernels[kernel].registers = NumberBefore(line, " registers");
    }
  }
  return kernels;
}

template <typename T>
T At(const std::string& file, std::uint64_t offset) {
  T value = {};
  if (offset + sizeof value <= file.size()) {
    std::memcpy(&value, file.data() + offset, sizeof value);
  }
  return value;
}

// Returns how many instructions a branch jumps, counted from the next one. A branch contains the
// distance in units of 4 bytes: its low 8 bits from bit 16 on, and all higher ones from bit 34 on.
std::int64_t JumpOf(std::uint64_t word) {
  const std::int64_t units =
      (static_cast<std::int64_t>(word) >> 34) * 256 + static_cast<std::int64_t>(word >> 16 & 0xff);
  return units * 4 / static_cast<std::int64_t>(kInstructionBytes);
}

std::vector<std::uint32_t> LongestLoop(const std::vector<std::uint64_t>& words) {
  std::vector<std::uint32_t> longest;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t opcode = words[i] & kOpcodeMask;
    if (opcode != kBranch && opcode != kUniformBranch) continue;
    const std::int64_t begin = static_cast<std::int64_t>(i) + 1 + JumpOf(words[i]);
    const std::int64_t count = static_cast<std::int64_t>(i) + 1 - begin;
    if (begin < 0 || count <= static_cast<std::int64_t>(longest.size())) continue;
    longest.clear();
    for (std::int64_t k = begin; k <= static_cast<std::int64_t>(i); ++k) {
      longest.push_back(
          static_cast<std::uint32_t>(words[static_cast<std::size_t>(k)] & kOpcodeMask));
    }
  }
  return longest;
}

// Reads the instructions of each ".text.<kernel>" section.
void ReadInstructions(const std::string& cubin, bool with_loops,
                      std::map<std::string, MachineCode>* kernels) {
  const auto header = At<Elf64_Ehdr>(cubin, 0);
  const auto section = [&](std::uint64_t index) {
    return At<Elf64_Shdr>(cubin, header.e_shoff + index * header.e_shentsize);
  };
  const std::uint64_t names = section(header.e_shstrndx).sh_offset;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr text = section(i);
    const std::string name = cubin.c_str() + names + text.sh_name;
    constexpr std::string_view kText = ".text.";
    if (!name.starts_with(kText)) continue;
    const auto found = kernels->find(name.substr(kText.size()));
    if (found == kernels->end()) continue;
    std::vector<std::uint64_t> words;
    for (std::uint64_t at = 0; at < text.sh_size; at += kInstructionBytes) {
      words.push_back(At<std::uint64_t>(cubin, text.sh_offset + at));
      if ((words.back() & kOpcodeMask) != kNop) ++found->second.instructions;
    }
    if (with_loops) found->second.loop = LongestLoop(words);
  }
}

Result<std::map<std::string, MachineCode>> AssembleAnew(const std::string& ptx,
                                                        const std::string& architecture) {
  const ScratchDirectory scratch;
  const std::string in = scratch / "in.ptx", out = scratch / "out.cubin";
  const std::string report = scratch / "report";
  std::ofstream(in, std::ios::binary) << ptx;
  const std::string command =
      Ptxas() + " -v -arch=" + architecture + " " + in + " -o " + out + " 2> " + report;
  const int status = std::system(command.c_str());
  const std::string said = ReadFile(report);
  if (status != 0) return Status(StatusCode::kInvalidArgument, said);
  std::map<std::string, MachineCode> kernels = ReadReport(said);
  const std::size_t number = architecture.find_first_of("0123456789");
  ReadInstructions(ReadFile(out), std::stoul(architecture.substr(number)) >= kLoopsFrom, &kernels);
  return kernels;
}

// Two independent hashes: 128 bits.
std::string GetHash(std::string_view text) {
  std::uint64_t other = 0xcbf29ce484222325;  // FNV-1a.
  for (const char c : text) other = (other ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char name[33];
  std::snprintf(name, sizeof name, "%016zx%016llx", std::hash<std::string_view>()(text),
                static_cast<unsigned long long>(other));
  return name;
}

// Caches results by text, architecture and ptxas, because a thousand texts take ptxas more than a
// minute and most of them do not change between builds.
std::filesystem::path KeptAt(const std::string& ptx, const std::string& architecture) {
  static const std::string tool = [] {
    std::error_code ignored;
    const auto changed = std::filesystem::last_write_time(Ptxas(), ignored).time_since_epoch();
    return std::to_string(std::filesystem::file_size(Ptxas(), ignored)) + " " +
           std::to_string(changed.count());
  }();
  return std::filesystem::path(GPUSHARED_TEST_PTXAS_KEPT) /
         GetHash(tool + "\nloops\n" + architecture + '\n' + ptx);
}

std::optional<std::map<std::string, MachineCode>> ReadKept(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return {};
  std::map<std::string, MachineCode> kernels;
  std::string kernel;
  MachineCode code;
  std::size_t loop = 0;
  while (file >> kernel >> code.registers >> code.instructions >> code.spilled_bytes >> loop) {
    code.loop.resize(loop);
    for (std::uint32_t& opcode : code.loop) file >> opcode;
    kernels[kernel] = code;
  }
  return kernels;
}

// Failures are not cached.
void Keep(const std::map<std::string, MachineCode>& kernels, const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::filesystem::path written = path.string() + "-" + std::to_string(::getpid());
  {
    std::ofstream file(written);
    for (const auto& [kernel, code] : kernels) {
      file << kernel << ' ' << code.registers << ' ' << code.instructions << ' '
           << code.spilled_bytes << ' ' << code.loop.size();
      for (const std::uint32_t opcode : code.loop) file << ' ' << opcode;
      file << '\n';
    }
    if (!file.flush()) return;
  }
  // Atomic, because other processes may read the file at the same time.
  std::filesystem::rename(written, path, ignored);
}

}  // namespace

bool HasPtxas() { return std::filesystem::exists(Ptxas()); }

Result<std::map<std::string, MachineCode>> Assemble(const std::string& ptx,
                                                    const std::string& architecture) {
  const std::filesystem::path kept = KeptAt(ptx, architecture);
  if (auto kernels = ReadKept(kept)) return *std::move(kernels);
  Result<std::map<std::string, MachineCode>> kernels = AssembleAnew(ptx, architecture);
  if (kernels) Keep(*kernels, kept);
  return kernels;
}

}  // namespace gpushared::testing
