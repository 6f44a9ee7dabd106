// SPDX-License-Identifier: Apache-2.0
#include "server/tools/run/drop_in_directory.h"

#include <stdlib.h>
#include <unistd.h>

namespace gpushared::server {
namespace {

// Location of the drop-in relative to a program's directory: when installed, and in a build tree.
constexpr const char* kDropInDirectories[] = {"/../lib/gpushared/drop_in", "/../lib/drop_in"};

}  // namespace

std::string FindDropIn() {
  char* const self = ::realpath("/proc/self/exe", nullptr);
  if (self == nullptr) return "";
  const std::string directory = std::string(self).substr(0, std::string(self).rfind('/'));
  ::free(self);
  for (const char* place : kDropInDirectories) {
    char* const resolved = ::realpath((directory + place).c_str(), nullptr);
    if (resolved == nullptr) continue;
    std::string found = resolved;
    ::free(resolved);
    if (::access((found + "/libcuda.so.1").c_str(), F_OK) == 0) return found;
  }
  return "";
}

}  // namespace gpushared::server
