// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SCHEDULER_CHECK_H_
#define GPUSHARED_SCHEDULER_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace gpushared::scheduler {

// Ends the process when one of our own invariants is false. Always on. A copy of
// the one in ipc/, on purpose: this folder includes nothing but itself and std.
inline void Check(bool holds, const char* invariant,
                  std::source_location where = std::source_location::current()) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "%s:%u: our own invariant failed: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), invariant);
  std::abort();
}

}  // namespace gpushared::scheduler

#endif  // GPUSHARED_SCHEDULER_CHECK_H_
