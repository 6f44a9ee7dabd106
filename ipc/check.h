// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_IPC_CHECK_H_
#define GPUSHARED_IPC_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace gpushared::ipc {

// Ends the process when one of *our own* invariants is false. Never applied to
// bytes of a peer, which are input and get a Status. Always on: an invariant that
// is only checked in debug builds is a hope.
inline void Check(bool holds, const char* invariant,
                  std::source_location where = std::source_location::current()) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "%s:%u: our own invariant failed: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), invariant);
  std::abort();
}

}  // namespace gpushared::ipc

#endif  // GPUSHARED_IPC_CHECK_H_
