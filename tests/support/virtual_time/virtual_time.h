// SPDX-License-Identifier: Apache-2.0
// Time that passes only where somebody spends it. One thread of the process lives in it: its clock
// and its sleeps are virtual, so what it does takes as long on a busy machine as on an idle one.
//
// The library stands ahead of libc in the order of look-up, linked or by LD_PRELOAD. It answers
// clock_gettime (CLOCK_MONOTONIC) and epoll_pwait2 for that thread. All other threads, clocks and
// waits are the machine's. The thread begins by itself in a program whose environment has
// VIRTUAL_TIME, else with virtual_time_begin.

#ifndef GPUSHARED_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_TIME_H_
#define GPUSHARED_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_TIME_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a look at the clock takes, with the code around it: nothing else of a program takes time.
#define VIRTUAL_TIME_LOOK_NS 50
// Until a thread that slept runs again: futex and epoll on an idle core that sleeps lightly.
#define VIRTUAL_TIME_WAKE_NS 20000

// The calling thread lives in virtual time from now on, which is then the real time.
void virtual_time_begin(void);
// Whether there is a thread that does.
int virtual_time_is_on(void);
int virtual_time_is_here(void);  // The calling thread does.
uint64_t virtual_time_now(void);
// On its thread; elsewhere nothing happens.
void virtual_time_spend(uint64_t ns);

// What happens by itself, at times of its own: called on the thread at each look and in each sleep.
// Returns when it is to be called again at the latest; UINT64_MAX: when something else happens.
typedef uint64_t (*virtual_time_world)(uint64_t now, void* context);
void virtual_time_set_world(virtual_time_world world, void* context);

#ifdef __cplusplus
}
#endif

#endif  // GPUSHARED_TESTS_SUPPORT_VIRTUAL_TIME_VIRTUAL_TIME_H_
