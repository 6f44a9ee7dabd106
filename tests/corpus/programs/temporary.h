// SPDX-License-Identifier: Apache-2.0
// CUB reports how much temporary memory an algorithm needs, and is then called again with it.

#ifndef GPUSHARED_TESTS_CORPUS_PROGRAMS_TEMPORARY_H_
#define GPUSHARED_TESTS_CORPUS_PROGRAMS_TEMPORARY_H_

#include "tests/corpus/program.h"

namespace gpushared::corpus {

// call(void* memory, std::size_t& bytes)
template <typename Call>
void WithTemporary(Call call) {
  std::size_t bytes = 0;
  call(nullptr, bytes);
  DeviceArray<char> temporary(bytes == 0 ? 1 : bytes);
  call(temporary.data, bytes);
}

}  // namespace gpushared::corpus

#endif  // GPUSHARED_TESTS_CORPUS_PROGRAMS_TEMPORARY_H_
