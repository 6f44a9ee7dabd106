// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_CHECK_H_
#define GPUSHARED_SCHEDULER_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace gpushared::scheduler {

// Terminates the process when one of our own invariants is false. Always enabled. Duplicates
// gpushared/check.h, because the scheduler library uses no code of other directories, only two
// headers with constants (gpushared/limits.h and gpushared/scheduling_class.h).
inline void Check(bool holds, const char* invariant, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "%s:%d: our own invariant failed: %s\n", file, line, invariant);
  std::abort();
}

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_CHECK_H_
