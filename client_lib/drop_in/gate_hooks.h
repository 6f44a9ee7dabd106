// SPDX-License-Identifier: Apache-2.0
// What gate mode does in front of the installed driver's functions, by the names that functions.inc
// gives in its last column. One hook serves all forms of a function with the same parameters.
//
// A hook gets the driver's own function first, then the caller's arguments. It runs in the caller's
// thread, and returns what the driver returned. It calls the driver by that address alone, never by
// a name of ours, and holds no lock meanwhile.

#ifndef GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_
#define GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_

#include <cstdint>

#include "client_lib/drop_in/driver_types.h"

namespace gpushared::drop_in::gate {

// The decision that a function has no hook: its symbol jumps to the driver's.
struct Forwarded {};
inline constexpr Forwarded kForwarded;
// No decision yet. A table with it does not compile.
struct Undecided {};
inline constexpr Undecided kUndecided;

// The driver chooses the function, by its own rules of versions. Where it is one that we stand in
// front of, which its address tells, the caller gets ours.
Code GetProcAddress(Code (*native)(const char*, void**, int, std::uint64_t), const char* name,
                    void** function, int version, std::uint64_t flags);
Code GetProcAddressV2(Code (*native)(const char*, void**, int, std::uint64_t, ProcAddressResult*),
                      const char* name, void** function, int version, std::uint64_t flags,
                      ProcAddressResult* result);

}  // namespace gpushared::drop_in::gate

#endif  // GPUSHARED_CLIENT_LIB_DROP_IN_GATE_HOOKS_H_
