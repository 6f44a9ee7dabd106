// SPDX-License-Identifier: Apache-2.0
// Used by client_lib/, ipc/, server/ and tests/. scheduler/ has its own copy. Not installed.

#ifndef GPUSHARED_CHECK_H_
#define GPUSHARED_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace gpushared {

// Aborts the process if one of *our own* invariants is false. Never used for bytes from a peer:
// those are input, so a violation there is returned as a Status. Always enabled, because an
// invariant that only debug builds check does not protect production.
//
// Uses the builtins behind std::source_location, which clang 14 does not have.
inline void Check(bool holds, const char* invariant, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "%s:%d: our own invariant failed: %s\n", file, line, invariant);
  std::abort();
}

}  // namespace gpushared

#endif  // GPUSHARED_CHECK_H_
