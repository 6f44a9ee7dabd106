// SPDX-License-Identifier: Apache-2.0
// Noise in a measurement that is caused by the machine giving its cores to other work.

#ifndef GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_
#define GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_

#include <sys/types.h>

#include <chrono>

namespace gpushared::testing {

// Returns the total time in which a thread of the process was ready but had no core, plus the time
// in which the host took a ready core from this virtual machine. Sources: proc(5), schedstat, steal
// in /proc/stat, in ticks of 10 ms. Figures that the system does not provide count as zero.
std::chrono::nanoseconds KeptFromCores(pid_t process);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_BENCH_MACHINE_NOISE_H_
