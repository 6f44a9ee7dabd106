// SPDX-License-Identifier: Apache-2.0
// Shared code of these programs. A program prints its errors and returns their number.

#ifndef GPUSHARED_TESTS_CORPUS_CUDART_PROGRAMS_CHECK_H_
#define GPUSHARED_TESTS_CORPUS_CUDART_PROGRAMS_CHECK_H_

#include <cstdio>

inline int wrong_things = 0;

inline void Expect(bool is_right, const char* what) {
  if (is_right) return;
  ++wrong_things;
  std::printf("wrong: %s\n", what);
}
inline void Must(cudaError_t error, const char* what) { Expect(error == cudaSuccess, what); }

#define MUST(call) Must((call), #call)
#define EXPECT(condition) Expect((condition), #condition)

#endif  // GPUSHARED_TESTS_CORPUS_CUDART_PROGRAMS_CHECK_H_
