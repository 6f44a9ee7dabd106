// SPDX-License-Identifier: Apache-2.0
#include "client_lib/drop_in/device_runtime_archive.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <system_error>

namespace gpushared::drop_in {
namespace {

constexpr std::string_view kArchiveMagic = "!<arch>\n";
// Header of a member: a name and a decimal size in columns padded with spaces.
constexpr std::size_t kHeaderBytes = 60;
constexpr std::size_t kNameBytes = 16;
constexpr std::size_t kSizeOffset = 48;
constexpr std::size_t kSizeBytes = 10;
// Special members: the symbol index and the table of long names.
constexpr std::string_view kSymbolIndex = "/";
constexpr std::string_view kLongNames = "//";
constexpr std::string_view kFirstLongName = "/0";

std::string_view WithoutSpaces(std::string_view column) {
  return column.substr(0, column.find(' '));
}

}  // namespace

bool IsDeviceRuntimeArchive(std::string_view bytes) {
  if (!bytes.starts_with(kArchiveMagic)) return false;
  bool is_named = false;
  std::size_t members = 0;
  for (bytes.remove_prefix(kArchiveMagic.size()); bytes.size() >= kHeaderBytes;) {
    const std::string_view name = WithoutSpaces(bytes.substr(0, kNameBytes));
    const std::string_view digits = WithoutSpaces(bytes.substr(kSizeOffset, kSizeBytes));
    std::size_t size = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    bytes.remove_prefix(kHeaderBytes);
    if (read.ec != std::errc() || size > bytes.size()) return false;
    if (name == kLongNames) {
      is_named = bytes.starts_with("cuda_device_runtime.o/\n");
    } else if (name == kFirstLongName) {
      ++members;
    } else if (name != kSymbolIndex) {
      return false;
    }
    bytes.remove_prefix(std::min(bytes.size(), size + size % 2));  // Members begin at even offsets.
  }
  return is_named && members == 1;
}

}  // namespace gpushared::drop_in
