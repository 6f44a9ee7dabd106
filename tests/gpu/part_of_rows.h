// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_GPU_PART_OF_ROWS_H_
#define GPUSHARED_TESTS_GPU_PART_OF_ROWS_H_

#include <cstdlib>
#include <string>

namespace gpushared::testing {

// Returns the part of run.sh that rows belong to: the running part, or `by_itself` outside of
// run.sh.
inline std::string PartOfRows(const char* by_itself) {
  const char* const part = std::getenv("GPUSHARED_GPU_PART");
  return part == nullptr ? by_itself : part;
}

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_GPU_PART_OF_ROWS_H_
