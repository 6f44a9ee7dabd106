// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_STACKS_H_
#define GPUSHARED_TESTS_SUPPORT_STACKS_H_

#include <sys/types.h>

#include <string>

namespace gpushared::testing {

// Describes a process that should have ended, for the output of a failed test: its signals, its
// open files, and the position of each thread. Needs root for the positions in the kernel and gdb
// for those in the program. Takes up to 35 s.
std::string Stacks(pid_t pid);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_STACKS_H_
