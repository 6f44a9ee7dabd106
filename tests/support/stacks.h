// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARED_TESTS_SUPPORT_STACKS_H_
#define GPUSHARED_TESTS_SUPPORT_STACKS_H_

#include <sys/types.h>

#include <string>

namespace gpushared::testing {

// What a process that should have ended is doing, for the output of a failed test: its signals, its
// open files, and where each of its threads stands. Root sees where that is in the kernel, and a
// machine with gdb where it is in the program. Takes up to 35 s.
std::string Stacks(pid_t pid);

}  // namespace gpushared::testing

#endif  // GPUSHARED_TESTS_SUPPORT_STACKS_H_
