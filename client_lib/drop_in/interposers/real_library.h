// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_

#include <span>
#include <string>
#include <vector>

namespace gpushared::drop_in {

// Returns the paths at which a library may exist, in search order. For all names (one per major
// version), NVIDIA's wheels next to the Python packages that the process has loaded come first:
// the preloaded interposer serves programs of every major version, and the wheels have the version
// that this program uses. Then, name by name, come the directories of loaded libraries,
// $LD_LIBRARY_PATH, the loader's directories, and those of conda and the toolkit. Thread-safe.
std::vector<std::string> GetPlaces(std::span<const char* const> names);

struct RealLibrary {
  void* handle = nullptr;  // From dlopen.
  std::string why_not;     // Why the library is missing.
};

// Loads the first library of GetPlaces(names) that can be loaded. `self` is an address in the
// calling interposer, whose directory is skipped because all interposers are in it. The loaded
// library's symbols are not visible to other libraries, and it prefers its own symbols to theirs.
RealLibrary LoadReal(std::span<const char* const> names, const void* self);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_
