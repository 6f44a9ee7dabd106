// SPDX-License-Identifier: Apache-2.0
// The noise that a machine adds to a measurement by giving its cores to others.

#ifndef GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_
#define GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_

#include <sys/types.h>

#include <chrono>

namespace gpushared::testing {

// Total time in which a thread of the process was ready and had no core. Time in which the host
// gave a ready core of this virtual machine to others is added. Sources: proc(5), schedstat, steal
// in /proc/stat, in ticks of 10 ms. Zero for figures that the system does not tell.
std::chrono::nanoseconds KeptFromCores(pid_t process);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_
