// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_CHECK_H_
#define GPUSHARED_SCHEDULER_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace gpushared::scheduler {

// Terminates the process when one of our own invariants is false. Always enabled. Duplicates
// gpushared/check.h, because the code of this directory depends only on itself and the standard
// library.
inline void Check(bool holds, const char* invariant, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "%s:%d: our own invariant failed: %s\n", file, line, invariant);
  std::abort();
}

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_CHECK_H_
