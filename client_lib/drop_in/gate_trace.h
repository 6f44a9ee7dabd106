// SPDX-License-Identifier: Apache-2.0
// What a program asks of the driver in gate mode, for people who want to know:
// GPUSHARED_GATE_TRACE=FILE. The process that makes the first call writes FILE.PID when it exits.
// Each line has three fields with tabs between:
//
//   calls    SYMBOL         how often it was called
//   fetched  SYMBOL         how often cuGetProcAddress gave it out
//   passed   NAME@VERSION   the same, for functions of the driver that are not in functions.inc
//   absent   NAME@VERSION   the same, where the driver has none
//
// A file that exists is never written to. A process that ends without exit(), such as a killed one,
// leaves its file empty.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TRACE_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TRACE_H_

#include <cstddef>
#include <string_view>

#include "client_lib/drop_in/entry_points.h"

namespace gpushared::drop_in {

// Makes the file, if the environment asks for it; the log says why where that fails. Called once,
// before any other of these.
void BeginTrace();
// Whether there is a trace. Thread-safe, as the next.
bool IsTracing();
// One answer of cuGetProcAddress. `ours`: what the caller gets in the driver's place, or null.
void TraceLookup(std::string_view name, int version, bool is_there, const Function* ours);

// Counts one call of the function at this place of functions.inc, and goes on to its target.
const void* CountingJump(std::size_t index);

}  // namespace gpushared::drop_in

// Where each function's call goes on to, by its place in functions.inc: a hook, or the driver.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): jumps read it.
extern "C" [[gnu::visibility("hidden")]] const void* gpushared_gate_targets[];

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_TRACE_H_
