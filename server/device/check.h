// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_SERVER_DEVICE_CHECK_H_
#define GPUSHARED_SERVER_DEVICE_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace gpushared::device {

// Ends the process when an invariant between a device and its caller is false. Never
// applied to what a client chose, which gets a Status.
inline void Check(bool holds, const char* invariant,
                  std::source_location where = std::source_location::current()) {
  if (holds) [[likely]]
    return;
  std::fprintf(stderr, "%s:%u: our own invariant failed: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), invariant);
  std::abort();
}

}  // namespace gpushared::device

#endif  // GPUSHARED_SERVER_DEVICE_CHECK_H_
