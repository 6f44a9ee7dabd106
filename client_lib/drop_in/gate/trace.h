// SPDX-License-Identifier: Apache-2.0
// Trace of a program's driver calls in gate mode, enabled by GPUSHARED_GATE_TRACE=FILE. The process
// that makes the first call writes FILE.PID when it exits. Each line has three fields separated by
// tabs:
//
//   calls    SYMBOL         number of calls
//   fetched  SYMBOL         how often cuGetProcAddress returned it
//   passed   NAME@VERSION   how often cuGetProcAddress returned a function not in functions.inc
//   absent   NAME@VERSION   how often cuGetProcAddress found no such function
//
// An existing file is never overwritten. A process that ends without exit(), such as a killed one,
// leaves its file empty.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TRACE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TRACE_H_

#include <cstddef>
#include <string_view>

#include "client_lib/drop_in/entry_points.h"

namespace gpushared::drop_in {

// Creates the file if the environment requests it; the log reports a failure. Called once, before
// the other functions.
void BeginTrace();
// Returns whether a trace is active. Thread-safe, as are the functions below.
bool IsTracing();
// Records one result of cuGetProcAddress. `ours` is the function that the caller gets instead of
// the driver's, or null.
void TraceLookup(std::string_view name, int version, bool is_there, const Function* ours);

// Returns the jump that counts one call of the function with this index and continues to its
// target.
const void* CountingJump(std::size_t index);

}  // namespace gpushared::drop_in

// Target of each function's call, by its index in functions.inc: a hook, or the driver.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): jumps read it.
extern "C" [[gnu::visibility("hidden")]] const void* gpushared_gate_targets[];

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TRACE_H_
