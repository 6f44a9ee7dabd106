// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_READ_FILE_H_
#define GPUSHARED_TESTS_SUPPORT_READ_FILE_H_

#include <fstream>
#include <iterator>
#include <string>

namespace gpushared::testing {

// Returns all bytes of a file; empty if it cannot be opened.
inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_READ_FILE_H_
