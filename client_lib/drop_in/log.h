// SPDX-License-Identifier: Apache-2.0
// Human-readable log of the drop-in, enabled by $GPUSHARED_LOG: "1" or "stderr", or a file to
// append to. Without the variable nothing is printed.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_LOG_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_LOG_H_

#include <atomic>
#include <string>
#include <string_view>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Returns whether the log is enabled. Thread-safe, as are the functions below.
bool IsLogging();
// Writes one line, prefixed with the process id, if IsLogging().
void LogLine(std::string_view line);

// Writes the line to stderr if `gpusharedctl run` started the program. Does so once per
// `has_reported`, which it sets to true.
void ReportUser(std::string_view line, std::atomic<bool>& has_reported);

// Returns `code` and stores `message`, which the log shows with the code when the call ends.
Code Reject(Code code, std::string_view message);
// Returns and clears the message of the calling thread's last rejection.
std::string TakeMessage();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_LOG_H_
