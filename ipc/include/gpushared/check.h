// SPDX-License-Identifier: Apache-2.0
// For every directory but scheduler/, which includes nothing of others; not installed.

#ifndef GPUSHARED_CHECK_H_
#define GPUSHARED_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace gpushared {

// Ends the process when one of *our own* invariants is false. Never applied to
// bytes of a peer, which are input and get a Status. Always on: an invariant that
// is only checked in debug builds is a hope.
//
// The builtins are std::source_location for compilers that do not have it yet (clang 14).
inline void Check(bool holds, const char* invariant, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "%s:%d: our own invariant failed: %s\n", file, line, invariant);
  std::abort();
}

}  // namespace gpushared

#endif  // GPUSHARED_CHECK_H_
