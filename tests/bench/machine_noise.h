// SPDX-License-Identifier: Apache-2.0
// What the machine adds to a measurement by giving its cores to others.

#ifndef GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_
#define GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_

#include <sys/types.h>

#include <chrono>

namespace gpushared::testing {

// Time, over all, in which a thread of the process was ready and had no core, and in which a core
// of this virtual machine was ready and its host had given it to others (proc(5): schedstat, and
// steal in /proc/stat, which counts in ticks of 10 ms). Zero for what the system does not tell.
std::chrono::nanoseconds KeptFromCores(pid_t process);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_
