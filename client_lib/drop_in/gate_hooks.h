// SPDX-License-Identifier: Apache-2.0
// Hooks of gate mode, by the names in the last column of functions.inc. One hook serves all forms
// of a function with the same parameters.
//
// A hook receives the driver's function, then the arguments of the caller. It runs in the caller's
// thread and returns what the driver returned. It calls the driver only by that address, never by a
// name exported here, and holds no lock during the call.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_

#include <cstdint>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in::gate {

// Marks a function without a hook: its symbol jumps to the driver's function.
struct Forwarded {};
inline constexpr Forwarded kForwarded;
// Marks a function for which no hook has been chosen yet. A table that contains it does not
// compile.
struct Undecided {};
inline constexpr Undecided kUndecided;

// The driver selects the function by its own version rules. If the address that it returns belongs
// to a function of functions.inc, the caller gets this library's symbol instead.
Code GetProcAddress(Code (*native)(const char*, void**, int, std::uint64_t), const char* name,
                    void** function, int version, std::uint64_t flags);
Code GetProcAddressV2(Code (*native)(const char*, void**, int, std::uint64_t, ProcAddressResult*),
                      const char* name, void** function, int version, std::uint64_t flags,
                      ProcAddressResult* result);

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_
