// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_

#include <span>
#include <string>
#include <vector>

namespace gpushared::drop_in {

// Where a library may lie, whether it does or not. First, under all of its names, the wheels beside
// Python packages that the process has loaded: preloaded symbols serve a program of another major
// version, too. Then, for one name after another, beside loaded libraries, in $LD_LIBRARY_PATH,
// where the loader finds the machine's, and in conda's and the toolkit's directories. Thread-safe.
std::vector<std::string> GetPlaces(std::span<const char* const> names);

struct RealLibrary {
  void* handle = nullptr;  // dlopen gave it.
  std::string why_not;     // Why there is none.
};

// Loads the first library of GetPlaces(names) that loads and lies in another directory than the
// library that has the address `self`: interposers lie beside each other. Neither gives its symbols
// to others, nor takes symbols of its names from others.
RealLibrary LoadReal(std::span<const char* const> names, const void* self);

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_INTERPOSERS_REAL_LIBRARY_H_
