// SPDX-License-Identifier: Apache-2.0
// Time that passes only when a thread spends it. One thread of the process uses it: its clock and
// its sleeps are virtual, so that its actions take as long on a busy machine as on an idle one.
//
// The library precedes libc in symbol lookup, by linking or by LD_PRELOAD. It answers clock_gettime
// (CLOCK_MONOTONIC) and epoll_pwait2 for that thread. All other threads, clocks and waits are real.
// In a program whose environment has VIRTUAL_TIME, the main thread is in virtual time from the
// beginning. In other programs, a thread enters virtual time with virtual_time_begin.

#ifndef GPUSHARED_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_TIME_H_
#define GPUSHARED_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_TIME_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Cost of reading the clock. Includes the code around the read, because that code takes no virtual
// time of its own.
#define VIRTUAL_TIME_READ_NS 50
// Time until a sleeping thread runs again: futex and epoll on an idle core in a shallow sleep
// state.
#define VIRTUAL_TIME_WAKE_NS 20000

// Puts the calling thread into virtual time, which starts at the real time.
void virtual_time_begin(void);
// Returns whether any thread is in virtual time.
int virtual_time_is_on(void);
// Returns whether the calling thread is in virtual time.
int virtual_time_is_here(void);
uint64_t virtual_time_now(void);
// Advances time if called on the virtual thread; a no-op elsewhere.
void virtual_time_spend(uint64_t ns);

// A function that makes spontaneous events happen, such as a modelled GPU's. Called on the virtual
// thread at each clock read and in each sleep. Returns the time by which it must be called again;
// UINT64_MAX if the next event depends on a call.
typedef uint64_t (*virtual_time_world)(uint64_t now, void* context);
void virtual_time_set_world(virtual_time_world world, void* context);

#ifdef __cplusplus
}
#endif

#endif  // GPUSHARED_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_TIME_H_
