// SPDX-License-Identifier: Apache-2.0
// What the drop-in tells people, if $GPUSHARED_LOG asks for it: "1" or "stderr", or a file that
// lines are appended to. Without the variable nothing is printed.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_LOG_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_LOG_H_

#include <atomic>
#include <string>
#include <string_view>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in {

// Thread-safe, as the others here.
bool IsLogging();
// One line, with the process in front; nothing unless IsLogging().
void LogLine(std::string_view line);

// The line to stderr, where `gpusharedctl run` has started the program. Once for each `has_told`,
// which it sets.
void ReportUser(std::string_view line, std::atomic<bool>& has_told);

// Returns `code`; `sentence` will stand beside it in the log when the call has ended.
Code Reject(Code code, std::string_view sentence);
// The sentence of the calling thread's last rejection, which is then forgotten.
std::string TakeSentence();

}  // namespace gpushared::drop_in

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_LOG_H_
