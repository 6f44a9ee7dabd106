// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_DROP_IN_ARCHIVE_H_
#define GPUSHARED_TESTS_DROP_IN_ARCHIVE_H_

#include <string>
#include <utility>
#include <vector>

namespace gpushared::testing {

// Returns an ar archive. Each member is a pair of its name, exactly as in the member's header, and
// its contents.
inline std::string Archive(const std::vector<std::pair<std::string, std::string>>& members) {
  const auto column = [](std::string text, std::size_t width) {
    text.resize(width, ' ');
    return text;
  };
  std::string archive = "!<arch>\n";
  for (const auto& [name, bytes] : members) {
    archive += column(name, 48) + column(std::to_string(bytes.size()), 10) + "`\n" + bytes;
    if (bytes.size() % 2 != 0) archive += '\n';
  }
  return archive;
}

// Returns an archive with the structure of CUDA 12's and 13's libcudadevrt.a.
inline std::string DeviceRuntimeArchive() {
  return Archive({{"/", "index"}, {"//", "cuda_device_runtime.o/\n\n"}, {"/0", "machine code"}});
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_DROP_IN_ARCHIVE_H_
