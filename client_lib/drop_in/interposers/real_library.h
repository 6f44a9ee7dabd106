// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_

#include <span>
#include <string>
#include <vector>

namespace gpushared::drop_in {

// Returns the paths at which a library may exist. First, under all of its names, the wheels of the
// Python packages that the process has loaded, because preloaded symbols also serve a program of
// another major version. Then, name by name, the directories of loaded libraries, $LD_LIBRARY_PATH,
// the loader's directories, and those of conda and the toolkit. Thread-safe.
std::vector<std::string> GetPlaces(std::span<const char* const> names);

struct RealLibrary {
  void* handle = nullptr;  // From dlopen.
  std::string why_not;     // Why the library is missing.
};

// Loads the first library of GetPlaces(names) that can be loaded and is in a directory other than
// that of the library containing the address `self`, because interposers are in one directory. The
// loaded library's symbols are not visible to other libraries, and it prefers its own symbols to
// theirs.
RealLibrary LoadReal(std::span<const char* const> names, const void* self);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_
