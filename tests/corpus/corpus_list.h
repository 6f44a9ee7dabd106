// SPDX-License-Identifier: Apache-2.0
// The names of all programs. Each is a function `std::string name()` of this namespace,
// defined in a .cu file.

#ifndef GPUSHARED_TESTS_CORPUS_CORPUS_LIST_H_
#define GPUSHARED_TESTS_CORPUS_CORPUS_LIST_H_

#include <string>

// kernels/
#define GPUSHARED_OWN_PROGRAMS(X) X(VectorAdd)

// programs/
#define GPUSHARED_TOOLKIT_PROGRAMS(X) \
  X(CubDeviceScan)                    \
  X(CubRadixSort)

#define GPUSHARED_DECLARE_PROGRAM(name) std::string name();
namespace gpushared::corpus {
GPUSHARED_OWN_PROGRAMS(GPUSHARED_DECLARE_PROGRAM)
GPUSHARED_TOOLKIT_PROGRAMS(GPUSHARED_DECLARE_PROGRAM)
}  // namespace gpushared::corpus
#undef GPUSHARED_DECLARE_PROGRAM

#endif  // GPUSHARED_TESTS_CORPUS_CORPUS_LIST_H_
